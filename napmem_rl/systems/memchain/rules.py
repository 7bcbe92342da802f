"""What must hold between the items of a packet and the candidates, beyond the form of each item (arXiv 2607.24097, equations 8 and 11, appendix B.1)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from napmem_rl.systems.memchain.packet import FULL, REWRITING, Action, MemoryAction, Packet, PacketForm, Part, Reason, Violation
from napmem_rl.tools.spec import shorten


def find_rule_violations(packet: Packet, candidate_ids: Collection[str], form: PacketForm = FULL) -> tuple[Violation, ...]:
    """Everything that breaks a rule, by part and item.

    Every cited id is a candidate (equations 8 and 11: every step and every statement cites at least one); actions cite at least one, MERGE two; MERGE, REFINE
    and ADD hold a statement; no id is kept and dropped; nothing is said twice.
    """
    known = frozenset(candidate_ids)
    return (*_check_trace(packet, known, form), *_check_actions(packet, known), *_check_evidence(packet, known))


def _check_trace(packet: Packet, known: frozenset[str], form: PacketForm) -> Iterator[Violation]:
    if form.has_trace and not packet.trace:
        yield Violation(reason=Reason.EMPTY_TRACE, part=Part.TRACE)
    for index, step in enumerate(packet.trace):
        if not step.ids:
            yield Violation(reason=Reason.STEP_WITHOUT_IDS, part=Part.TRACE, index=index)
        yield from _find_foreign(step.ids, known, Part.TRACE, index)
    yield from _find_repeats(packet.trace, Part.TRACE)


def _check_actions(packet: Packet, known: frozenset[str]) -> Iterator[Violation]:
    kept = {item_id for action in packet.actions if action.action is Action.KEEP for item_id in action.ids}
    dropped = {item_id for action in packet.actions if action.action is Action.DROP for item_id in action.ids}
    for index, action in enumerate(packet.actions):
        yield from _check_action(action, index)
        yield from _find_foreign(action.ids, known, Part.ACTIONS, index)
        both = [item_id for item_id in action.ids if item_id in kept & dropped]
        if both and action.action in (Action.KEEP, Action.DROP):
            yield Violation(reason=Reason.KEEP_AND_DROP, part=Part.ACTIONS, index=index, detail=shorten(", ".join(both)))
    yield from _find_repeats(packet.actions, Part.ACTIONS)


def _check_action(action: MemoryAction, index: int) -> Iterator[Violation]:
    """What an action must hold by itself."""
    if not action.ids:
        reason = Reason.ADD_WITHOUT_SUPPORT if action.action is Action.ADD else Reason.ACTION_WITHOUT_IDS
        yield Violation(reason=reason, part=Part.ACTIONS, index=index)
    elif action.action is Action.MERGE and len(set(action.ids)) == 1:
        yield Violation(reason=Reason.MERGE_OF_ONE, part=Part.ACTIONS, index=index, detail=f"MERGE cites {shorten(action.ids[0])} alone")
    if action.action in REWRITING and not action.statement:
        yield Violation(reason=Reason.ACTION_WITHOUT_STATEMENT, part=Part.ACTIONS, index=index, detail=str(action.action))


def _check_evidence(packet: Packet, known: frozenset[str]) -> Iterator[Violation]:
    for index, item in enumerate(packet.evidence):
        if not item.ids:
            yield Violation(reason=Reason.EVIDENCE_WITHOUT_PROVENANCE, part=Part.EVIDENCE, index=index)
        yield from _find_foreign(item.ids, known, Part.EVIDENCE, index)
    yield from _find_repeats(packet.evidence, Part.EVIDENCE)


def _find_foreign(ids: tuple[str, ...], known: frozenset[str], part: Part, index: int) -> Iterator[Violation]:
    foreign = [item_id for item_id in ids if item_id not in known]
    if foreign:
        yield Violation(reason=Reason.FOREIGN_ID, part=part, index=index, detail=shorten(", ".join(foreign)))


def _find_repeats(items: tuple[object, ...], part: Part) -> Iterator[Violation]:
    """Every item that stands once more; the first of them is fine."""
    seen: set[object] = set()
    for index, item in enumerate(items):
        if item in seen:
            yield Violation(reason=Reason.REPEATED_ITEM, part=part, index=index)
        seen.add(item)
