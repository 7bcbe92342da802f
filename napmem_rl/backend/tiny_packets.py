"""A tiny policy that can write packets: that of `tiny_policy.py`, with the fixed text between a packet's words as added tokens, untrained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from napmem_rl.backend.tiny_policy import build_model, build_tokenizer, save_policy
from napmem_rl.data.packet_rows import PacketRow
from napmem_rl.data.worlds import all_words
from napmem_rl.systems.memchain.packet import FORMS, Packet, PacketForm, render_packet
from napmem_rl.systems.memchain.prompts import build_messages

_BLANK = "@@"


def find_fixed_texts(packets: Sequence[Packet], form: PacketForm) -> list[str]:
    """Everything in packets that is neither an id nor a statement: braces, names of fields, choices.

    Example: ``{"evidence": [{"statement": "``, ``", "ids": ["`` and ``"]}]}`` of a packet with one statement and no other part.
    """
    return sorted({part for packet in packets for part in render_packet(_blank(packet), form).split(_BLANK) if part.strip()})


def _blank(packet: Packet) -> Packet:
    """The packet without its words."""
    assert packet.plan is not None, "find_fixed_texts: a taught packet has a plan"
    return Packet(
        plan=replace(packet.plan, requirement=_BLANK),
        trace=tuple(replace(step, ids=(_BLANK,) * len(step.ids), statement=_BLANK) for step in packet.trace),
        actions=tuple(replace(action, ids=(_BLANK,) * len(action.ids)) for action in packet.actions),
        evidence=tuple(replace(item, ids=(_BLANK,) * len(item.ids), statement=_BLANK) for item in packet.evidence),
    )


def save_tiny_policy(path: Path, rows: Sequence[PacketRow], *, max_length: int, seed: int) -> None:
    """Write an untrained policy that knows the words of these rows and of synthetic users, and the fixed texts of packets of every form.

    Args:
        rows: taught ones.
        max_length: the longest context, in tokens.
        seed: of its weights.
    """
    texts = [message["content"] for row in rows for message in build_messages(row.task, row.candidates)[1:]]
    texts += [item.statement for row in rows if row.packet is not None for item in row.packet.trace]
    packets = [row.packet for row in rows if row.packet is not None]
    fixed = sorted({text for form in FORMS.values() for text in find_fixed_texts(packets, form)})
    tokenizer = build_tokenizer([*texts, " ".join(all_words())], max_length=max_length, plain=fixed)
    save_policy(build_model(tokenizer, seed=seed), tokenizer, path)
