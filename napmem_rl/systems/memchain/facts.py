"""What is measured of one packet with its reward. Names are those of `reward.py`'s terms, and those below; absent where nothing is known, never zero."""

from __future__ import annotations

from collections import Counter
from typing import Any

from napmem_rl.schema import AnswerKey, ScoredTrajectory, Status
from napmem_rl.systems.memchain.episode import PacketEpisode
from napmem_rl.systems.memchain.packet import Action

PARSED = "parsed"  # share of packets with all of their parts
HAS_EVIDENCE = "has_evidence"
NUM_CANDIDATES, NUM_EVIDENCE = "candidates_shown", "evidence_statements"
EVIDENCE_WORDS, CANDIDATE_WORDS = "evidence_words", "candidate_words"  # what the answer model reads, and what the policy read
ACTIONS = "actions/{action}"  # of one packet
ACTIONS_OF_CATEGORY = "actions/{category}/{action}"
FAULTS = "faults/{reason}"


def state_identity(scored: ScoredTrajectory, key: AnswerKey) -> dict[str, Any]:
    """Task, user, category and status of an episode, and whether it was abstained from."""
    task = scored.trajectory.task
    facts: dict[str, Any] = {"task_id": task.task_id, "bank_id": task.bank_id, "category": task.category, "status": str(scored.trajectory.status)}
    facts |= {"num_questions": 1, "num_abstained": int(scored.reward is None)}
    return facts | {f"status/{status}": float(status is scored.trajectory.status) for status in Status}


def compute_packet_facts(scored: ScoredTrajectory, episode: PacketEpisode, key: AnswerKey) -> dict[str, Any]:
    """All that is known of one packet, flat."""
    facts = state_identity(scored, key)
    if scored.trajectory.status.is_ours:
        return facts
    if scored.reward is not None:
        facts["reward"] = scored.reward
    facts |= {str(name): float(value) for name, value in scored.terms.items()}
    packet, evidence = episode.parsed.packet, episode.composition.evidence
    facts |= {PARSED: float(not episode.parsed.is_failure), HAS_EVIDENCE: float(bool(evidence)), NUM_EVIDENCE: float(len(evidence))}
    facts[EVIDENCE_WORDS] = float(sum(len(item.statement.split()) for item in evidence))
    facts |= {NUM_CANDIDATES: float(len(episode.candidates)), CANDIDATE_WORDS: float(sum(len(item.text.split()) for item in episode.candidates))}
    counts = Counter(action.action for action in packet.actions) if packet is not None else Counter()
    for action in Action:
        facts[ACTIONS.format(action=action)] = float(counts[action])
        facts[ACTIONS_OF_CATEGORY.format(category=scored.trajectory.task.category, action=action)] = float(counts[action])
    return facts | {FAULTS.format(reason=reason): float(count) for reason, count in episode.parsed.count_reasons().items()}
