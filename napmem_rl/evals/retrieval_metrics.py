"""How much of the gold evidence reached the policy, by provenance: whatever it read (messages, records, topic files) is counted as the messages it rests on.

With G the gold messages of a question and C the messages of the context (`AnswerRow.context_ids`)::

    recall@k          |G ∩ first k of C| / |G|     where C is a ranking, best first; fewer than k messages count as they are
    evidence_recall   |G ∩ C| / |G|
    evidence_hit      1 where G ∩ C is not empty
    session_recall@k, session_recall   the same with the sessions of the messages, each at its first place

An unanswerable question has no evidence to find and is left out, as LongMemEval leaves it out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napmem_rl.errors import DataError
from napmem_rl.evals.result_rows import AnswerRow
from napmem_rl.schema import AnswerKey, AnswerKind

RECALL_AT = (1, 5, 10, 20)
RECALL, SESSION_RECALL = "recall", "session_recall"
SESSION_METRICS = (SESSION_RECALL, *(f"{SESSION_RECALL}@{k}" for k in RECALL_AT))
EVIDENCE_RECALL, EVIDENCE_HIT = "evidence_recall", "evidence_hit"
UNKNOWN_EVIDENCE = "its gold evidence is not known"
UNANSWERABLE = "unanswerable: there is no evidence to find"
NO_RANKING = "what the policy read is no ranking"


def score_retrieval(answer: AnswerRow, key: AnswerKey, sessions: Mapping[str, str] | None = None) -> tuple[dict[str, float], dict[str, str]]:
    """(metric -> value, metric -> why it is absent) of one answer.

    Args:
        answer: its `context_ids` are message ids, each once.
        key: with the gold message ids.
        sessions: message id -> session id of the bank; None leaves the figures by sessions out altogether.

    Raises:
        DataError: a message that `sessions` does not hold, so that bank and questions do not belong together.
    """
    ranked = [f"{RECALL}@{k}" for k in RECALL_AT] + ([f"{SESSION_RECALL}@{k}" for k in RECALL_AT] if sessions is not None else [])
    whole = [EVIDENCE_RECALL, EVIDENCE_HIT] + ([SESSION_RECALL] if sessions is not None else [])
    if key.kind is AnswerKind.UNANSWERABLE or not key.evidence_ids:
        reason = UNANSWERABLE if key.kind is AnswerKind.UNANSWERABLE else UNKNOWN_EVIDENCE
        return {}, dict.fromkeys((*ranked, *whole), reason)
    gold, context = frozenset(key.evidence_ids), answer.context_ids
    scores = {EVIDENCE_RECALL: compute_recall(context, gold), EVIDENCE_HIT: float(not gold.isdisjoint(context))}
    lists = {RECALL: (context, gold)}
    if sessions is not None:
        found = _map_sessions(context, sessions, answer)
        wanted = frozenset(_map_sessions(key.evidence_ids, sessions, answer))
        scores[SESSION_RECALL] = compute_recall(found, wanted)
        lists[SESSION_RECALL] = (found, wanted)
    if not answer.context_ranked:
        return scores, dict.fromkeys(ranked, NO_RANKING)
    at_k = {f"{name}@{k}": compute_recall(places[:k], targets) for name, (places, targets) in lists.items() for k in RECALL_AT}
    return scores | at_k, {}


def compute_recall(found: Sequence[str], gold: frozenset[str]) -> float:
    """Share of gold that was found. Example: (a, b) of {b, c} is 0.5."""
    return len(gold.intersection(found)) / len(gold)


def _map_sessions(message_ids: Sequence[str], sessions: Mapping[str, str], answer: AnswerRow) -> list[str]:
    """Sessions in the order of their first message."""
    unknown = [message_id for message_id in message_ids if message_id not in sessions]
    if unknown:
        fix = "Questions and banks must come from one preparation of the data."
        raise DataError.of(f"answer {answer.task_id}, sample {answer.sample}", "names messages that are not in its bank", got=unknown[:5], fix=fix)
    return list(dict.fromkeys(sessions[message_id] for message_id in message_ids))
