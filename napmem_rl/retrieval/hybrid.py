"""Hybrid search: BM25 and dense rankings joined by reciprocal rank fusion.

Fusion: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods", SIGIR 2009:
score(d) = sum over rankings of 1 / (k + rank of d), ranks counted from 1, k = 60.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from napmem_rl.retrieval.bm25 import BM25Index
from napmem_rl.retrieval.dense import DenseIndex
from napmem_rl.retrieval.encoder import Encoder

RRF_K = 60
CANDIDATES = 20  # how deep each ranking is read, and at least twice k: on LoCoMo deeper rankings lower the recall (recall@5 .518 at 20, .503 at 50 and 100)


def compute_rrf_scores(rankings: Sequence[Sequence[int]], *, rrf_k: int = RRF_K) -> dict[int, float]:
    """Fused score of every position that occurs in a ranking.

    Example: ``compute_rrf_scores([[3, 5], [5]])`` gives ``{3: 1/61, 5: 1/62 + 1/61}``.
    """
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, position in enumerate(ranking, start=1):
            scores[position] = scores.get(position, 0.0) + 1.0 / (rrf_k + rank)
    return scores


class HybridIndex:
    """Search over passages with times; BM25 alone where there is no encoder."""

    def __init__(
        self, texts: Sequence[str], times: Sequence[str], *, encoder: Encoder | None = None, vectors: np.ndarray | None = None, rrf_k: int = RRF_K
    ) -> None:
        """Args:
        texts: passages, [n].
        times: ISO 8601 times of the passages, [n].
        encoder: for queries; None for BM25 alone.
        vectors: [n, dim] float32, the encoder's rows of `texts`; computed here when None.
        rrf_k: the constant of the fusion.
        """
        assert len(texts) == len(times), f"HybridIndex: {len(texts)} texts and {len(times)} times"
        self._order = sorted(range(len(texts)), key=lambda position: times[position])  # stable: oldest first, so that "at or before" is a prefix
        self._times = [times[position] for position in self._order]
        self._rrf_k = rrf_k
        ordered = [texts[position] for position in self._order]
        self._bm25 = BM25Index(ordered)
        self._encoder = encoder if texts else None
        self._dense: DenseIndex | None = None
        if self._encoder is not None:
            rows = self._encoder.encode(ordered) if vectors is None else vectors[self._order]
            self._dense = DenseIndex(rows)

    def search(self, query: str, *, k: int, before: str | None) -> list[int]:
        """Positions (in the given `texts`) of the k best passages at or before a time, best first.

        Args:
            query: free text; one without content gives nothing.
            k: how many at most.
            before: ISO 8601; later passages are left out before ranking, not after. None for all.

        Returns:
            At most k positions; equal fused scores put the newer passage first.
        """
        limit = len(self._times) if before is None else bisect_right(self._times, before)
        if k <= 0 or limit == 0 or not query.strip():
            return []
        depth = max(CANDIDATES, 2 * k)
        rankings = [self._bm25.rank(query, limit=limit, depth=depth)]
        if self._dense is not None and self._encoder is not None:
            rankings.append(self._dense.rank(self._encoder.encode([query])[0], limit=limit, depth=depth))
        scores = compute_rrf_scores(rankings, rrf_k=self._rrf_k)
        best = sorted(scores, key=lambda position: (-scores[position], -position))[:k]
        return [self._order[position] for position in best]
