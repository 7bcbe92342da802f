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
        self._index.add(np.ascontiguousarray(vectors, dtype=np.float32))

    def rank(self, vector: np.ndarray, *, limit: int, depth: int) -> list[int]:
        """Positions of the passages most similar to a query vector, best first.

        Args:
            vector: [dim] float32, of length 1.
            limit: only positions below it are eligible; they are filtered before ranking.
            depth: how many to return at most.

        Returns:
            At most ``depth`` positions; equal scores put the later position first. A similarity of 0 or less is no hit.
        """
        limit = min(limit, self._index.ntotal)
        if limit <= 0:
            return []
        params = None
        if limit < self._index.ntotal:
            params = self._faiss.SearchParameters(sel=self._faiss.IDSelectorRange(0, limit))
        scores, positions = self._index.search(vector.reshape(1, -1), min(depth, limit), params=params)
        hits = positions[0][(positions[0] >= 0) & (scores[0] > 0)]
        hit_scores = scores[0][(positions[0] >= 0) & (scores[0] > 0)]
        return hits[np.lexsort((-hits, -hit_scores))].tolist()
