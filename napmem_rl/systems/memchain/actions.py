"""From a packet to the evidence that the answer model reads: lines 7 to 10 of Algorithm 1 (arXiv 2607.24097), and nothing beyond them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from napmem_rl.systems.memchain.packet import PRODUCING, Action, Evidence, MemoryAction, Packet, PacketForm, Part, Reason, TraceStep, Violation
from napmem_rl.systems.memchain.rules import find_rule_violations

_ANY_FORM = PacketForm(has_plan=False, has_trace=False, has_actions=False)  # an empty trace is no reason to remove anything


class Origin(StrEnum):
    """Where the evidence of an answer comes from."""

    PACKET = "packet"  # the packet's own E
    ACTIONS = "actions"  # the outputs of its actions, because E held nothing valid
    CANDIDATES = "candidates"  # all candidates as they are, without a packet: equation 2, to compare with
    NONE = "none"  # there is none: no answer is asked for


@dataclass(frozen=True, kw_only=True, slots=True)
class Composition:
    """The active memory E, what is left of T and A, and everything that was removed with its reason."""

    evidence: tuple[Evidence, ...]
    origin: Origin
    trace: tuple[TraceStep, ...] = ()
    actions: tuple[MemoryAction, ...] = ()
    removed: tuple[Violation, ...] = ()  # by part, and index in the packet


EMPTY = Composition(evidence=(), origin=Origin.NONE)


def apply_actions(packet: Packet | None, memories: Mapping[str, str]) -> Composition:
    """Compose E.

    - line 7: entries of T, A and E that cite an id outside the candidates are removed, whole;
    - line 8: what is left is checked again, and entries that break a rule are removed (without ids, MERGE of one, ADD without support, KEEP and DROP of one id,
      the same entry again);
    - line 9: only where E is empty now, E becomes the outputs of the valid actions in their order: KEEP gives each record as it is, MERGE, REFINE and
      ADD their statement;
    - line 10: where E is still empty, there is none. No candidate ever takes its place.

    Args:
        packet: what the policy wrote; None where nothing could be read.
        memories: each candidate as the answer model should read it, by its id.
    """
    if packet is None:
        return EMPTY
    foreign = tuple(found for found in find_rule_violations(packet, memories, _ANY_FORM) if found.reason is Reason.FOREIGN_ID)
    inside, places = _remove(packet, foreign)
    broken = find_rule_violations(inside, memories, _ANY_FORM)
    valid, _ = _remove(inside, broken)
    removed = (*foreign, *(replace(found, index=places[found.part][found.index or 0]) for found in broken))
    evidence, origin = valid.evidence, Origin.PACKET
    if not evidence:
        evidence, origin = _run_actions(valid.actions, memories), Origin.ACTIONS
    return Composition(evidence=evidence, origin=origin if evidence else Origin.NONE, trace=valid.trace, actions=valid.actions, removed=removed)


def _run_actions(actions: tuple[MemoryAction, ...], memories: Mapping[str, str]) -> tuple[Evidence, ...]:
    """What valid actions produce, each statement once."""
    found: list[Evidence] = []
    for action in actions:
        if action.action is Action.KEEP:
            found += [Evidence(statement=memories[item_id], ids=(item_id,)) for item_id in action.ids]
        elif action.action in PRODUCING:
            assert action.statement is not None, "apply_actions: a valid MERGE, REFINE or ADD has a statement"
            found.append(Evidence(statement=action.statement, ids=action.ids))
    return tuple(dict.fromkeys(found))


def _remove(packet: Packet, violations: tuple[Violation, ...]) -> tuple[Packet, dict[Part, list[int]]]:
    """The packet without the entries that violations name, and where each entry that is left stood."""
    gone = {(found.part, found.index) for found in violations}
    parts = {Part.TRACE: packet.trace, Part.ACTIONS: packet.actions, Part.EVIDENCE: packet.evidence}
    places = {part: [index for index in range(len(items)) if (part, index) not in gone] for part, items in parts.items()}
    return (
        replace(
            packet,
            trace=tuple(packet.trace[index] for index in places[Part.TRACE]),
            actions=tuple(packet.actions[index] for index in places[Part.ACTIONS]),
            evidence=tuple(packet.evidence[index] for index in places[Part.EVIDENCE]),
        ),
        places,
    )
