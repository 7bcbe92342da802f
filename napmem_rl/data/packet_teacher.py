"""Teachers of MemChain: whoever writes the packet that a policy first learns from (arXiv 2607.24097, appendix A.3). A packet counts only if the one strict
parser finds nothing wrong with it, and it cites a candidate that holds the evidence.

- `GoldTeacher`: fixed rules over gold evidence. No model; made for synthetic users, and good for any row whose key names its evidence.
- `ModelTeacher`: a chat model that is shown the answer and the ids that hold it, beside what the policy sees.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from napmem_rl.llm.base import ChatClient
from napmem_rl.schema import AnswerKey, Task
from napmem_rl.systems.memchain.candidates import Candidate, index_memories
from napmem_rl.systems.memchain.fixed_packets import compose_packet
from napmem_rl.systems.memchain.packet import FULL, Packet, PacketForm, build_packet_schema, normalise_id, render_packet
from napmem_rl.systems.memchain.parse import parse_packet
from napmem_rl.systems.memchain.prompts import build_messages
from napmem_rl.systems.memchain.reward import find_cited_ids, find_reference_ids

TEACHER_VERSION = "memchain-teacher-1"  # change it with the wording below
_HINT = """You write the packet that another model will learn from, so it must be right. For you alone, not to be quoted as a source:
the answer is {answer}; it rests on the candidates {ids}.
Every statement must follow from the candidates that it cites. Leave out what the question does not need. Write the JSON object alone."""


class Teacher(Protocol):
    """Writes reference packets."""

    name: str

    async def write(self, task: Task, key: AnswerKey, candidates: Sequence[Candidate], form: PacketForm = FULL) -> Packet | None:
        """A packet without fault, or None where there is none: retrieval missed the evidence, or what was written was refused. Raises LLMError."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """Why a teacher's packet cannot be learnt from: a reason to count, and words for whoever wrote it."""

    reason: str
    words: str


def find_fault(text: str, key: AnswerKey, candidates: Sequence[Candidate], form: PacketForm = FULL) -> Fault | None:
    """What is wrong with a teacher's packet; None where it can be learnt from."""
    parsed = parse_packet(text, index_memories(candidates), form)
    if parsed.violations:
        return Fault(reason=str(parsed.violations[0].reason), words="; ".join(violation.describe() for violation in parsed.violations[:3]))
    if parsed.packet is None or not parsed.packet.evidence:
        return Fault(reason="no_evidence", words="no evidence")
    if not find_cited_ids(parsed.packet) & find_gold_ids(key, candidates):
        return Fault(reason="misses_the_evidence", words="cites no candidate that holds the evidence")
    return None


def find_gold_ids(key: AnswerKey, candidates: Sequence[Candidate]) -> frozenset[str]:
    """Candidates that rest on gold messages, by normalised id."""
    return find_reference_ids(key.evidence_ids, {normalise_id(item.id): item.source_ids or (item.id,) for item in candidates})


class GoldTeacher:
    """Plan by the words of the question, one step and one statement for each gold candidate in the order of time, the others left alone."""

    name = "gold"

    async def write(self, task: Task, key: AnswerKey, candidates: Sequence[Candidate], form: PacketForm = FULL) -> Packet | None:
        """See `Teacher`. None too where retrieval found a part of the evidence only."""
        gold = find_gold_ids(key, candidates)
        found = sorted((item for item in candidates if normalise_id(item.id) in gold), key=lambda item: item.time)
        reached = {source for item in found for source in item.source_ids or (item.id,)}
        if not found or not set(key.evidence_ids) <= reached:
            return None
        packet = compose_packet(task, found)
        return packet if find_fault(render_packet(packet, form), key, candidates, form) is None else None


@dataclass(kw_only=True, slots=True)
class ModelTeacher:
    """A chat model as teacher. A packet with a fault is sent back with it, up to `max_tries` in all; `refused` counts what was given up, by why."""

    client: ChatClient
    max_tries: int = 3
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        """The model's."""
        return self.client.name

    async def write(self, task: Task, key: AnswerKey, candidates: Sequence[Candidate], form: PacketForm = FULL) -> Packet | None:
        """See `Teacher`."""
        gold = find_gold_ids(key, candidates)
        if not gold:
            return None
        messages = build_messages(task, candidates, form)
        hint = _HINT.format(answer=json.dumps(list(key.references), ensure_ascii=False), ids=", ".join(sorted(gold)))
        messages[-1] = {"role": "user", "content": f"{messages[-1]['content']}\n\n{hint}"}
        schema = build_packet_schema(form, list(index_memories(candidates)))
        fault = None
        for _ in range(self.max_tries):
            text = await self.client.chat(messages, schema=schema)
            fault = find_fault(text, key, candidates, form)
            if fault is None:
                return parse_packet(text, index_memories(candidates), form).packet
            request = f"This is refused: {fault.words}. Write the whole object again."
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": request}]
        self.refused[fault.reason if fault is not None else "not asked"] += 1
        return None
