"""Vector search: exact inner product over unit rows (faiss, flat)."""

from __future__ import annotations

import numpy as np


class DenseIndex:
    """Exact search over a fixed matrix of unit rows."""

    def __init__(self, vectors: np.ndarray) -> None:
        """Args: vectors: [n, dim] float32, rows of length 1 (or all zero for passages without content)."""
        import faiss

        self._faiss = faiss
        self._index = faiss.IndexFlatIP(vectors.shape[1])
        self._index.add(np.ascontiguousarray(vectors[::-1], dtype=np.float32))  # last first: among equal scores faiss keeps what it meets first

    def rank(self, vector: np.ndarray, *, limit: int, depth: int) -> list[int]:
        """Positions of the passages most similar to a query vector, best first.

        Args:
            vector: [dim] float32, of length 1.
            limit: only positions below it are eligible; they are filtered before ranking.
            depth: how many to return at most.

        Returns:
            At most ``depth`` positions; equal scores put the later position first. A similarity of 0 or less is no hit.
        """
        total = self._index.ntotal
        limit = min(limit, total)
        if limit <= 0:
            return []
        params = None
        if limit < total:
            params = self._faiss.SearchParameters(sel=self._faiss.IDSelectorRange(total - limit, total))
        scores, ids = self._index.search(vector.reshape(1, -1), min(depth, limit), params=params)  # [1, depth] each
        is_hit = (ids[0] >= 0) & (scores[0] > 0)
        hits, hit_scores = total - 1 - ids[0][is_hit], scores[0][is_hit]
        return hits[np.lexsort((-hits, -hit_scores))].tolist()
