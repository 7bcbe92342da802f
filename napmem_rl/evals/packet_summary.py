"""What MemChain's packets were like in an evaluation: whether they could be read, what they did with candidates by type of question, sizes, seconds, citations.

Made out of what each answer keeps of its packet (`systems/memchain/rendering.py`) and the keys, so that it can be made again without the policy.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from napmem_rl.evals.answer_log import is_error
from napmem_rl.evals.result_rows import AnswerRow
from napmem_rl.rewards.trace import compute_agreement
from napmem_rl.schema import AnswerKey
from napmem_rl.systems.memchain.facts import (
    ACTIONS,
    ANSWER_S,
    ASKED_AGAIN,
    CANDIDATE_TOKENS,
    EVIDENCE_TOKENS,
    HAS_EVIDENCE,
    NUM_CANDIDATES,
    NUM_EVIDENCE,
    PACKET_S,
    PARSED,
    RETRIEVAL_S,
)
from napmem_rl.systems.memchain.packet import Action
from napmem_rl.systems.memchain.rendering import PACKET
from napmem_rl.systems.memchain.reward import GATE_WEIGHTS, find_reference_ids

SHARES = (PARSED, ASKED_AGAIN, HAS_EVIDENCE, *GATE_WEIGHTS)  # of packets
SIZES = (CANDIDATE_TOKENS, EVIDENCE_TOKENS, NUM_CANDIDATES, NUM_EVIDENCE)
SECONDS = (RETRIEVAL_S, PACKET_S, ANSWER_S)
ALL = "all"  # beside the types of questions


def summarise_packets(rows: Iterable[AnswerRow], keys: Mapping[str, AnswerKey]) -> dict[str, Any]:
    """Figures over all answers that have a packet and did not fail by our doing; empty where none has.

    - `shares`: of packets, those that could be read, were asked for again, gave evidence, and kept j, v, i, h of equation 15;
    - `sizes`, `seconds`: mean, median and 95th percentile; what nobody measured is absent;
    - `citations`: precision, recall and F1 of what is cited against the candidates that hold gold evidence, and the share of gold messages that retrieval had
      among its candidates; over questions whose evidence is known;
    - `actions`: of each type of question, how many actions a packet has, and the share of each of the five;
    - `faults`: violations by reason, and in how many packets; `origins`: where evidence came from.
    """
    found = [row for row in rows if not is_error(row) and PACKET in row.details]
    if not found:
        return {}
    facts = [row.details[PACKET]["facts"] for row in found]
    return {
        "n": len(found),
        "shares": {name: float(np.mean(values)) for name in SHARES if (values := [fact[name] for fact in facts if name in fact])},
        "sizes": {name: _spread(values) for name in SIZES if (values := [fact[name] for fact in facts if name in fact])},
        "seconds": {name: _spread(values) for name in SECONDS if (values := [fact[name] for fact in facts if name in fact])},
        "citations": _summarise_citations(found, keys),
        "actions": _summarise_actions(found),
        "faults": _count_faults(facts),
        "origins": dict(sorted(Counter(row.details[PACKET]["evidence_origin"] for row in found).items())),
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    p50, p95 = np.percentile(values, (50, 95))
    return {"mean": float(np.mean(values)), "p50": float(p50), "p95": float(p95)}


def _summarise_citations(rows: Sequence[AnswerRow], keys: Mapping[str, AnswerKey]) -> dict[str, float]:
    known = [(row.details[PACKET], keys[row.task_id].evidence_ids) for row in rows if row.task_id in keys and keys[row.task_id].evidence_ids]
    if not known:
        return {}
    agreements, reached = [], []
    for packet, gold in known:
        sources = {candidate["id"]: candidate["sources"] for candidate in packet["candidates"]}
        agreements.append(compute_agreement(packet["cited"], find_reference_ids(gold, sources)))
        among = {message_id for ids in sources.values() for message_id in ids}
        reached.append(len(among & set(gold)) / len(set(gold)))
    figures = {name: float(np.mean([getattr(one, name) for one in agreements])) for name in ("precision", "recall", "f1")}
    return figures | {"gold_among_candidates": float(np.mean(reached)), "n": len(known)}


def _summarise_actions(rows: Sequence[AnswerRow]) -> dict[str, Any]:
    """By type of question, and over all; empty where nobody wrote a packet."""
    groups: dict[str, list[Mapping[str, float]]] = defaultdict(list)
    for row in rows:
        facts = row.details[PACKET]["facts"]
        if ACTIONS.format(action=Action.KEEP) in facts:
            groups[row.trajectory["category"]].append(facts)
    if not groups:
        return {}
    shown = {ALL: [facts for members in groups.values() for facts in members]} | dict(sorted(groups.items()))
    return {category: _count_actions(members) for category, members in shown.items()}


def _count_actions(facts: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    counts = {str(action): sum(fact[ACTIONS.format(action=action)] for fact in facts) for action in Action}
    total = sum(counts.values())
    return {"n": len(facts), "per_packet": total / len(facts), "shares": {action: count / total for action, count in counts.items()} if total else {}}


def _count_faults(facts: Sequence[Mapping[str, float]]) -> dict[str, dict[str, int]]:
    """Reason -> {faults, packets}, the most frequent first."""
    totals: Counter[str] = Counter()
    packets: Counter[str] = Counter()
    for fact in facts:
        for name, count in fact.items():
            if name.startswith("faults/"):
                reason = name.removeprefix("faults/")
                totals[reason] += int(count)
                packets[reason] += 1
    return {reason: {"faults": count, "packets": packets[reason]} for reason, count in totals.most_common()}
