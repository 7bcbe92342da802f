"""Packets by fixed rules: each chosen candidate is one trace step and one statement as it stands. What a teacher of synthetic users writes over the gold ones,
and, over the first of a retrieval, the extractive packet that a learned policy has to beat."""

from __future__ import annotations

from collections.abc import Sequence

from napmem_rl.schema import RecordType, Task
from napmem_rl.systems.memchain.candidates import Candidate, render_memory
from napmem_rl.systems.memchain.intent import guess_intent
from napmem_rl.systems.memchain.packet import Action, Evidence, Intent, MemoryAction, Packet, Plan, Relation, Role, TimeScope, TraceStep, normalise_id

NUM_EXTRACTED = 3  # statements of an extractive packet
_SCOPES = {Intent.UPDATE: TimeScope.CURRENT, Intent.TEMPORAL: TimeScope.HISTORICAL}
_TYPES = {Intent.TEMPORAL: RecordType.EVENT, Intent.PREFERENCE: RecordType.PREFERENCE}


def extract_packet(task: Task, candidates: Sequence[Candidate], *, number: int = NUM_EXTRACTED) -> Packet | None:
    """The first `number` candidates, as retrieval ranked them, in the order of time. No model, and nothing of the answer. None without candidates."""
    chosen = sorted(candidates[:number], key=lambda item: item.time)
    return compose_packet(task, chosen) if chosen else None


def compose_packet(task: Task, chosen: Sequence[Candidate]) -> Packet:
    """Plan by the words of the question, one step and one statement for each candidate in the order given, all kept, the others left alone.

    Args:
        task: only `question` is read.
        chosen: at least one candidate.
    """
    assert chosen, f"compose_packet: no candidate for task {task.task_id}"
    ids, last = [normalise_id(item.id) for item in chosen], len(chosen) - 1
    intent = guess_intent(task.question)
    plan = Plan(
        intent=intent,
        memory_types=(_TYPES.get(intent, RecordType.FACT),),
        time_scope=_SCOPES.get(intent, TimeScope.ANY),
        requirement=task.question.rstrip(" ?"),
        evidence_target=len(chosen),
    )
    steps = [
        TraceStep(
            role=Role.ANSWER if index == last else Role.BRIDGE,
            ids=(ids[index],),
            statement=item.text,
            relation=Relation.NONE if index == last else Relation.SUPPORTS,
        )
        for index, item in enumerate(chosen)
    ]
    keep = MemoryAction(action=Action.KEEP, ids=tuple(ids), rationale="needed")
    evidence = [Evidence(statement=render_memory(item), ids=(ids[index],)) for index, item in enumerate(chosen)]
    return Packet(plan=plan, trace=tuple(steps), actions=(keep,), evidence=tuple(evidence))
