"""What is measured of one packet. Names are those of `reward.py`'s terms, and those below; absent where nothing is known, never zero."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

from napmem_rl.schema import AnswerKey, ScoredTrajectory, Status
from napmem_rl.systems.memchain.actions import Origin
from napmem_rl.systems.memchain.candidates import render_memory
from napmem_rl.systems.memchain.episode import PacketCosts, PacketEpisode
from napmem_rl.systems.memchain.packet import Action, PacketForm
from napmem_rl.systems.memchain.reward import GATE_WEIGHTS, compute_gates

PARSED = "parsed"  # share of packets with all of their parts
ASKED_AGAIN = "asked_again"  # share of questions whose first packet did not parse (evaluation alone)
HAS_EVIDENCE = "has_evidence"
NUM_CANDIDATES, NUM_EVIDENCE = "candidates_shown", "evidence_statements"
EVIDENCE_WORDS, CANDIDATE_WORDS = "evidence_words", "candidate_words"  # what the answer model reads, and what the policy read
EVIDENCE_TOKENS, CANDIDATE_TOKENS = "evidence_tokens", "candidate_tokens"  # the same, as the policy's tokenizer counts
RETRIEVAL_S, PACKET_S, ANSWER_S = "retrieval_s", "packet_s", "answer_s"  # seconds of candidates, policy, answer model (in training with its judge)
ACTIONS = "actions/{action}"  # of one packet
ACTIONS_OF_CATEGORY = "actions/{category}/{action}"
FAULTS = "faults/{reason}"
CUT_TURN, CUT_CONTEXT = "truncated/turn", "truncated/context"  # shares of packets that the length limit cut, and of questions without room for one


def state_identity(scored: ScoredTrajectory, key: AnswerKey) -> dict[str, Any]:
    """Task, user, category and status of an episode, and whether it was abstained from."""
    task = scored.trajectory.task
    facts: dict[str, Any] = {"task_id": task.task_id, "bank_id": task.bank_id, "category": task.category, "status": str(scored.trajectory.status)}
    facts |= {"num_questions": 1, "num_abstained": int(scored.reward is None)}
    return facts | {f"status/{status}": float(status is scored.trajectory.status) for status in Status}


def compute_packet_facts(scored: ScoredTrajectory, episode: PacketEpisode, key: AnswerKey) -> dict[str, Any]:
    """All that is known of one rewarded packet, flat."""
    facts = state_identity(scored, key)
    if scored.trajectory.status.is_ours:
        return facts
    if scored.reward is not None:
        facts["reward"] = scored.reward
    facts |= {str(name): float(value) for name, value in scored.terms.items()} | measure_packet(episode)
    category = scored.trajectory.task.category
    return facts | {ACTIONS_OF_CATEGORY.format(category=category, action=action): facts[ACTIONS.format(action=action)] for action in Action}


def measure_packet(episode: PacketEpisode) -> dict[str, float]:
    """What can be said of a packet without knowing the answer, flat. Of evidence that no packet gave (all candidates), its sizes and seconds alone."""
    evidence, costs = episode.composition.evidence, episode.costs
    facts = {NUM_EVIDENCE: len(evidence), EVIDENCE_WORDS: sum(len(item.statement.split()) for item in evidence)}
    facts |= {NUM_CANDIDATES: len(episode.candidates), CANDIDATE_WORDS: sum(len(item.text.split()) for item in episode.candidates)}
    facts |= {field.name: value for field in dataclasses.fields(costs) if (value := getattr(costs, field.name)) is not None}
    if episode.composition.origin is not Origin.CANDIDATES:
        packet = episode.parsed.packet
        counts = Counter(action.action for action in packet.actions) if packet is not None else Counter()
        facts |= {PARSED: not episode.parsed.is_failure, HAS_EVIDENCE: bool(evidence), ASKED_AGAIN: episode.first_turn is not None}
        is_cut, has_text = episode.trajectory.status is Status.TRUNCATED, any(turn.text for turn in episode.trajectory.turns)
        facts |= {CUT_TURN: is_cut and has_text, CUT_CONTEXT: is_cut and not has_text}
        facts |= {ACTIONS.format(action=action): counts[action] for action in Action}
        facts |= {FAULTS.format(reason=reason): count for reason, count in episode.parsed.count_reasons().items()}
    return {name: float(value) for name, value in facts.items()}


def measure_gates(episode: PacketEpisode, form: PacketForm) -> dict[str, float]:
    """j, v, i, h and m of equation 15 for a packet that is not rewarded."""
    gates = compute_gates(episode.parsed, form)
    return {name: float(holds) for name in GATE_WEIGHTS if (holds := getattr(gates, name)) is not None} | {"gate": gates.multiplier}


def count_costs(episode: PacketEpisode, count_tokens: Callable[[str], int], **seconds: float) -> PacketCosts:
    """What an episode took: `seconds` as they were measured, and the tokens of candidates and evidence as they are read, a line each."""
    candidates = "\n".join(render_memory(item) for item in episode.candidates)
    evidence = "\n".join(item.statement for item in episode.composition.evidence)
    counted = {"candidate_tokens": count_tokens(candidates) if candidates else 0, "evidence_tokens": count_tokens(evidence) if evidence else 0}
    return dataclasses.replace(episode.costs, **counted, **seconds)
