"""Learning from what any policy did with its search results: opened by id later on, or cited (`rewards/evidence_use.py`), instead of an answer's citations.

The results were ranked, not drawn: REINFORCE takes them as if they had been drawn in that order, without a correction for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from napmem_rl.memory.bank_view import BankView
from napmem_rl.retrieval.passages import SearchFilter
from napmem_rl.retrieval.rerank_learner import RerankLearner
from napmem_rl.rewards.evidence_use import SearchUse, find_search_uses
from napmem_rl.schema import Level, RerankDecision, Trajectory


def learn_from_trajectory(learner: RerankLearner, trajectory: Trajectory, bank: BankView) -> list[RerankDecision]:
    """Learn from every search of a trajectory over records or messages; see `learn_from_uses`."""
    return learn_from_uses(learner, find_search_uses(trajectory), bank, before=trajectory.task.asked_at)


def learn_from_uses(learner: RerankLearner, uses: Iterable[SearchUse], bank: BankView, *, before: str | None) -> list[RerankDecision]:
    """Learn from what was shown and what of it was used.

    Args:
        learner: of the bank's scope.
        uses: in any system, with the bank's ids.
        bank: as it was searched, with an encoder and without a reranker.
        before: nothing later than this moment is a candidate.

    Returns:
        A decision for each search whose results are among the K candidates.
    """
    found = (_learn_from_search(learner, use, bank, before) for use in uses)
    return [decision for decision in found if decision is not None]


def _learn_from_search(learner: RerankLearner, use: SearchUse, bank: BankView, before: str | None) -> RerankDecision | None:
    level = Level.RECORD if use.item_ids[0].startswith("rec:") else Level.RAW
    found = bank.find_index(level).find_candidates(use.query, k=learner.settings.num_candidates, where=SearchFilter(before=before))
    if found is None:
        return None
    if level is Level.RECORD:
        ids = [bank.snapshot.revisions.revision(position).record.record_id for position in found.positions]
    else:
        ids = [bank.messages[position].message_id for position in found.positions]
    reranking = learner.adopt(ids, found.query, found.vectors, use.item_ids, prior=found.prior)
    used = dict(zip(use.item_ids, use.used, strict=True))
    return learner.learn(reranking, [used[name] for name in reranking.chosen_ids]) if len(reranking.choice.chosen) else None
