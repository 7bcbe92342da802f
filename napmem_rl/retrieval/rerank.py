"""The residual linear reranker of RMM (arXiv 2503.08026, retrospective reflection), in numpy: scores of candidates, and updates of its two maps.

    q' = q + W_q q        m_i' = m_i + W_m m_i        s_i = q'^T m_i'

factored as  s_i = (q' + W_m^T q')^T m_i : one query costs O(d^2) once, each memory O(d). With R_j the reward of the j-th chosen memory, b the baseline and
g the gradient of  sum_j (R_j - b) log p(c_j | drawn before)  by the scores (`choice.compute_score_gradient`):

    d/dW_q = (sum_i g_i m_i') q^T        d/dW_m = q' (sum_i g_i m_i)^T

Both are of rank one, so that an update is kept as two pairs of vectors beside the maps. Every `FOLD_AFTER` of them are added to the maps in place, block by
block; what is computed in between includes them.

Ours: `prior`. Where the retriever's score is not the inner product of the two vectors, s_i = prior_i + (q'^T m_i' - q^T m_i), so that maps of 0 rank as any
retriever does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from napmem_rl.errors import DataError

FOLD_AFTER = 32  # updates kept as vectors; each adds 4 d multiplications to a query
BLOCK = 64  # rows that are folded at once: they and their scratch stay in the cache
ARRAYS = ("query_map", "memory_map", "pending", "num_pending")


@dataclass(frozen=True, kw_only=True, slots=True)
class RankOne:
    """An update's direction: the gradient by W_q is outer(query_left, query_right), that by W_m outer(memory_left, memory_right). All [d] float32."""

    query_left: np.ndarray
    query_right: np.ndarray
    memory_left: np.ndarray
    memory_right: np.ndarray


class ResidualReranker:
    """W_q and W_m, [d, d] float32. Not for several threads at once.

    Example: ``ResidualReranker(384, init_std=0).score(query, memories)`` is ``memories @ query``.
    """

    def __init__(self, dim: int, *, init_std: float = 0.01, seed: int = 0) -> None:
        """Args:
        dim: width of the encoder's vectors, d.
        init_std: standard deviation of the maps' entries; 0 starts as the retriever. 0.1 would drown it.
        seed: of the entries.
        """
        assert dim > 0, f"ResidualReranker: width {dim}"
        rng = np.random.default_rng(seed)
        self.dim = dim
        self._maps = [rng.standard_normal((dim, dim), dtype=np.float32) * np.float32(init_std) for _ in range(2)]  # of queries, of memories
        self._pending = np.zeros((4, FOLD_AFTER, dim), dtype=np.float32)  # left and right of W_q, left and right of W_m
        self._num_pending = 0

    def score(self, query: np.ndarray, memories: np.ndarray, *, prior: np.ndarray | None = None) -> np.ndarray:
        """Scores of candidates for a query.

        Args:
            query: [d].
            memories: [K, d]; K may be 0.
            prior: [K] the retriever's own scores, where they are not the inner products.

        Returns:
            [K] float64.

        Raises:
            DataError: another width, or a number that is not finite.
        """
        query, memories = self.check_vectors(query, memories)
        mapped = self._map(0, query)
        scores = (memories @ (mapped + self._map_back(1, mapped))).astype(np.float64)
        if prior is None:
            return scores
        prior = np.asarray(prior, dtype=np.float64)
        if prior.shape != scores.shape or not np.isfinite(prior).all():
            raise DataError.of("reranker", "was given scores of the retriever that cannot be used", got=prior, expected=f"{len(scores)} finite numbers")
        return prior + scores - (memories @ query).astype(np.float64)

    def find_direction(self, query: np.ndarray, memories: np.ndarray, score_gradient: np.ndarray) -> RankOne:
        """The gradient by both maps, from that by the scores, [K]; at the maps as they are now."""
        query, memories = self.check_vectors(query, memories)
        pull = (np.asarray(score_gradient, dtype=np.float32)) @ memories  # sum_i g_i m_i
        mapped = query + self._apply(0, query)
        return RankOne(query_left=pull + self._apply(1, pull), query_right=query, memory_left=mapped, memory_right=pull)

    def update(self, directions: Sequence[RankOne], rate: float) -> None:
        """Add rate times the mean of these directions to both maps.

        Raises:
            DataError: a direction is not finite: the maps have grown beyond all bounds, and the rate is to be lowered. Nothing was changed.
        """
        rows = [(one.query_left, one.query_right, one.memory_left, one.memory_right) for one in directions]
        if not np.isfinite(rows).all():
            raise DataError.of("reranker", "its update is not finite", fix="Lower the learning rate and start from the last good state.")
        for row in rows:
            if self._num_pending == FOLD_AFTER:
                self._fold()
            self._pending[:, self._num_pending] = row
            self._pending[::2, self._num_pending] *= np.float32(rate / len(rows))
            self._num_pending += 1

    def score_many(self, queries: np.ndarray, memories: np.ndarray) -> np.ndarray:
        """`score` for many queries with K candidates each: [B, d] and [B, K, d] float32, finite -> [B, K] float32."""
        self._fold()
        mapped = queries + queries @ self._maps[0].T
        return np.einsum("bkd,bd->bk", memories, mapped + mapped @ self._maps[1])

    def update_many(self, queries: np.ndarray, memories: np.ndarray, score_gradients: np.ndarray, rate: float) -> None:
        """`find_direction` of each query, then `update` by all of them. Raises DataError as `update` does, but with the maps changed."""
        self._fold()
        pulls = np.einsum("bk,bkd->bd", score_gradients.astype(np.float32), memories)
        lefts, mapped = pulls + pulls @ self._maps[1].T, queries + queries @ self._maps[0].T
        share = np.float32(rate / len(queries))
        self._maps[0] += share * (lefts.T @ queries)
        self._maps[1] += share * (mapped.T @ pulls)
        if not np.isfinite(pulls).all() or not np.isfinite(lefts).all():
            raise DataError.of("reranker", "its update is not finite", fix="Lower the learning rate and start anew.")

    def check_vectors(self, query: np.ndarray, memories: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both as float32; memories of shape [K, d] also where K is 0.

        Raises:
            DataError: another width, or a number that is not finite.
        """
        query = np.asarray(query, dtype=np.float32)
        memories = np.asarray(memories, dtype=np.float32)
        memories = memories.reshape(0, self.dim) if memories.size == 0 else memories
        if query.shape != (self.dim,) or memories.ndim != 2 or memories.shape[1] != self.dim:
            got = f"a query of shape {query.shape} and memories of shape {memories.shape}"
            fix = "It belongs to one encoder; start a new state for another one."
            raise DataError.of(f"reranker of width {self.dim}", "was given vectors of another width", got=got, fix=fix)
        if not np.isfinite(query).all() or not np.isfinite(memories).all():
            bad = [index for index, row in enumerate(memories) if not np.isfinite(row).all()]
            where = f"memories {bad}" if bad else "the query"
            raise DataError.of("reranker", "was given a vector with NaN or infinity", got=where, fix="Encode the texts again.")
        return query, memories

    def export_arrays(self) -> dict[str, np.ndarray]:
        """Everything that it is, as copies: arrays by the names in `ARRAYS`."""
        pending = self._pending[:, : self._num_pending].copy()
        return {"query_map": self._maps[0].copy(), "memory_map": self._maps[1].copy(), "pending": pending, "num_pending": np.array(self._num_pending)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> ResidualReranker:
        """The reranker that `export_arrays` gave.

        Raises:
            DataError: arrays are missing, do not fit each other, or hold what is not finite.
        """
        missing = [name for name in ARRAYS if name not in arrays]
        if missing:
            raise DataError.of("reranker", f"lacks {', '.join(missing)}")
        maps, pending, count = [arrays["query_map"], arrays["memory_map"]], arrays["pending"], int(arrays["num_pending"])
        dim = len(maps[0])
        shapes = [one.shape for one in maps] + [pending.shape]
        if shapes != [(dim, dim), (dim, dim), (4, count, dim)] or not 0 <= count <= FOLD_AFTER or not dim:
            raise DataError.of("reranker", "has arrays that do not fit each other", got=shapes)
        if not all(np.isfinite(one).all() for one in (*maps, pending)):
            raise DataError.of("reranker", "holds NaN or infinity")
        reranker = cls(dim, init_std=0.0)
        reranker._maps = [np.array(one, dtype=np.float32, order="C") for one in maps]
        reranker._pending[:, :count] = pending
        reranker._num_pending = count
        return reranker

    def _map(self, which: int, vector: np.ndarray) -> np.ndarray:
        """v + W v."""
        return vector + self._apply(which, vector)

    def _apply(self, which: int, vector: np.ndarray) -> np.ndarray:
        """W v, pending updates included."""
        left, right = self._pending[2 * which : 2 * which + 2, : self._num_pending]
        return self._maps[which] @ vector + (right @ vector) @ left

    def _map_back(self, which: int, vector: np.ndarray) -> np.ndarray:
        """W^T v, pending updates included."""
        left, right = self._pending[2 * which : 2 * which + 2, : self._num_pending]
        return vector @ self._maps[which] + (left @ vector) @ right

    def _fold(self) -> None:
        """Add the pending updates to the maps."""
        if not self._num_pending:
            return
        scratch = np.empty((BLOCK, self.dim), dtype=np.float32)
        for which, target in enumerate(self._maps):
            left, right = self._pending[2 * which : 2 * which + 2, : self._num_pending]
            for start in range(0, self.dim, BLOCK):
                rows = target[start : start + BLOCK]
                rows += np.matmul(left[:, start : start + BLOCK].T, right, out=scratch[: len(rows)])
        self._num_pending = 0
