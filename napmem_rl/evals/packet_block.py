"""One packet on the page of an evaluation: candidates, trace with actions, and evidence side by side, as plain HTML. Every text is escaped."""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_EVIDENCE = "evidence"  # the tag of a candidate that the evidence rests on
_MAX_TEXT = 1200


def render_packet_block(packet: Mapping[str, Any]) -> str:
    """The HTML of what `systems/memchain/rendering.py` keeps of a packet; its style is that of the viewer."""
    uses = _find_uses(packet)
    candidates = "".join(_candidate(item, uses.get(item["id"], [])) for item in packet["candidates"])
    trace = "".join(_entry([step["role"]], step["ids"], step["statement"], _name_relation(step["relation"])) for step in packet["trace"])
    actions = "".join(_entry([action["action"]], action["ids"], action["statement"] or "", action["rationale"]) for action in packet["actions"])
    evidence = "".join(_entry([], item["ids"], item["statement"], "") for item in packet["evidence"])
    facts = packet["facts"]
    columns = (
        ("Candidates", _count(len(packet["candidates"]), facts.get("candidate_tokens")), _list(candidates)),
        ("Trace and actions", f"{len(packet['trace'])} steps, {len(packet['actions'])} actions", _list(trace) + _list(actions)),
        ("Evidence", _count(len(packet["evidence"]), facts.get("evidence_tokens")), _list(evidence) or "<p>None: no answer was asked for.</p>"),
    )
    body = "".join(
        f'<div class="packet-part" tabindex="0" role="region" aria-label="{title}"><h4>{title}<span class="muted">{_text(note)}</span></h4>{content}</div>'
        for title, note, content in columns
    )
    told = "".join(f"<li>{_text(fault)}</li>" for fault in packet["faults"])
    return f'<div class="packet"><div class="packet-columns">{body}</div>{f"<ul class=packet-faults>{told}</ul>" if told else ""}</div>'


def _find_uses(packet: Mapping[str, Any]) -> dict[str, list[str]]:
    """What is done with each candidate: its actions, and whether the evidence rests on it."""
    uses: dict[str, dict[str, None]] = defaultdict(dict)
    for action in packet["actions"]:
        for item_id in action["ids"]:
            uses[item_id][action["action"]] = None
    for item in packet["evidence"]:
        for item_id in item["ids"]:
            uses[item_id][_EVIDENCE] = None
    return {item_id: list(labels) for item_id, labels in uses.items()}


def _candidate(item: Mapping[str, Any], uses: Sequence[str]) -> str:
    head = " ".join(part for part in (item["time"][:10], item["speaker"]) if part)
    tags = "".join(f'<span class="tag{" good" if use == _EVIDENCE else ""}">{_text(use)}</span>' for use in uses)
    kind = "entry used" if _EVIDENCE in uses else "entry"
    return f'<li class="{kind}"><div class="item-head">{_ids([item["id"]])}<span>{_text(head)}</span>{tags}</div><p class="text">{_text(item["text"])}</p></li>'


def _entry(tags: Iterable[str], ids: Sequence[str], statement: str, note: str) -> str:
    named = "".join(f'<span class="tag">{_text(tag)}</span>' for tag in tags)
    said = f'<p class="text">{_text(statement)}</p>' if statement else ""
    noted = f'<p class="muted small">{_text(note)}</p>' if note else ""
    return f'<li class="entry"><div class="item-head">{named}{_ids(ids)}</div>{said}{noted}</li>'


def _name_relation(relation: str) -> str:
    return "" if relation in ("", "none") else f"↓ {relation}"


def _ids(ids: Sequence[str]) -> str:
    return f'<span class="ids">{"".join(f"<code>{_text(item_id)}</code>" for item_id in ids)}</span>'


def _list(items: str) -> str:
    return f'<ul class="packet-items">{items}</ul>' if items else ""


def _count(number: int, tokens: float | None) -> str:
    return str(number) if tokens is None else f"{number}, {tokens:.0f} tokens"


def _text(value: Any) -> str:
    text = str(value)
    shown = text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]} …"
    return html.escape(shown).encode("utf-8", "replace").decode()
