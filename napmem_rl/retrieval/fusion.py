"""How scores of several kinds become one ranking: pure functions over arrays of scores.

Reciprocal rank fusion: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods", SIGIR 2009:
score(d) = sum over rankings of 1 / (k + rank of d), ranks counted from 1, k = 60.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RRF_K = 60
CANDIDATES = 20  # how deep each ranking is read, and at least twice k: on LoCoMo deeper rankings lower the recall (recall@5 .518 at 20, .503 at 50 and 100)


def find_top(scores: np.ndarray, recency: np.ndarray, depth: int) -> np.ndarray:
    """Positions of the best positive scores, best first; equal scores put the more recent first.

    Args:
        scores: [n]; 0 and below are no hits.
        recency: [n], all different; higher is newer.
        depth: how many at most.

    Returns:
        [at most depth] positions.
    """
    hits = np.flatnonzero(scores > 0)
    if len(hits) > depth > 0:
        values = scores[hits]
        hits = hits[values >= np.partition(values, len(hits) - depth)[len(hits) - depth]]  # all that tie with the last one stay until they are ordered
    return hits[np.lexsort((-recency[hits], -scores[hits]))][: max(depth, 0)]


def compute_rrf_scores(rankings: Sequence[Sequence[int] | np.ndarray], *, rrf_k: int = RRF_K) -> dict[int, float]:
    """Fused score of every position that occurs in a ranking.

    Example: ``compute_rrf_scores([[3, 5], [5]])`` gives ``{3: 1/61, 5: 1/62 + 1/61}``.
    """
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, position in enumerate(ranking, start=1):
            scores[int(position)] = scores.get(int(position), 0.0) + 1.0 / (rrf_k + rank)
    return scores


def rank_rrf(scores: Sequence[np.ndarray], recency: np.ndarray, *, k: int, rrf_k: int = RRF_K) -> list[int]:
    """The k best positions by reciprocal rank fusion of one ranking per array of scores, [n] each; see `find_top`."""
    depth = max(CANDIDATES, 2 * k)
    fused = compute_rrf_scores([find_top(array, recency, depth) for array in scores], rrf_k=rrf_k)
    return sorted(fused, key=lambda position: (-fused[position], -recency[position]))[:k]
