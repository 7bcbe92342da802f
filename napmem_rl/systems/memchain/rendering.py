"""A packet as plain data, for logs and pages: what the policy read, what it wrote, what became of it, side by side."""

from __future__ import annotations

from typing import Any

from napmem_rl.systems.memchain.episode import PacketEpisode
from napmem_rl.systems.memchain.facts import measure_packet
from napmem_rl.systems.memchain.packet import MemoryAction, Packet, normalise_id
from napmem_rl.systems.memchain.reward import find_cited_ids

PACKET = "packet"  # where it stands in a line of trajectories or answers


def render_episode(episode: PacketEpisode) -> dict[str, Any]:
    """JSON-ready, under `PACKET`.

    Trace and actions stand as they were written; `removed` tells which entries Algorithm 1 took out, and `faults` all that is wrong. `evidence` is what the
    answer model reads, `cited` what trace and evidence cite as they were written (t of equation 16).
    """
    composition, packet = episode.composition, episode.parsed.packet
    shown = {
        "candidates": [
            {
                "id": normalise_id(item.id),
                "time": item.time,
                "speaker": item.speaker,
                "text": item.text,
                "views": list(item.views),
                "sources": list(item.source_ids or (item.id,)),
            }
            for item in episode.candidates
        ],
        "plan": _render_plan(packet),
        "trace": [
            {"role": str(step.role), "ids": list(step.ids), "statement": step.statement, "relation": str(step.relation)}
            for step in (packet.trace if packet is not None else ())
        ],
        "actions": [_render_action(action) for action in (packet.actions if packet is not None else ())],
        "evidence": [{"statement": item.statement, "ids": list(item.ids)} for item in composition.evidence],
        "evidence_origin": str(composition.origin),
        "cited": sorted(find_cited_ids(packet) if packet is not None else {item_id for item in composition.evidence for item_id in item.ids}),
        "removed": [{"part": str(found.part), "index": found.index, "why": found.describe()} for found in composition.removed],
        "faults": [violation.describe() for violation in episode.parsed.violations],
        "facts": measure_packet(episode),
    }
    if episode.first_turn is not None:
        shown["first_try"] = {"text": episode.first_turn.text, "error": episode.first_turn.error}
    return {PACKET: shown}


def _render_plan(packet: Packet | None) -> dict[str, Any] | None:
    if packet is None or packet.plan is None:
        return None
    plan = packet.plan
    return {
        "intent": str(plan.intent),
        "memory_types": [str(kind) for kind in plan.memory_types],
        "time_scope": str(plan.time_scope),
        "requirement": plan.requirement,
        "evidence_target": plan.evidence_target,
    }


def _render_action(action: MemoryAction) -> dict[str, Any]:
    return {"action": str(action.action), "ids": list(action.ids), "rationale": action.rationale, "statement": action.statement}
