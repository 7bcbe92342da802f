"""The learner of one scope (a user, a domain, everybody) with its state on disk: one writer, saved after answers, refused where it does not belong."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from napmem_rl.file_lock import FileLock
from napmem_rl.retrieval.fusion import Ranking
from napmem_rl.retrieval.rerank_learner import Reranking, RerankLearner, RerankSettings
from napmem_rl.retrieval.rerank_state import RerankStamp, load_reranker, lock_state, save_reranker
from napmem_rl.schema import RerankDecision


class ScopedLearner:
    """A `Learner` whose state lasts. Held from `open` to `close`. For one event loop: its methods never wait."""

    def __init__(self, path: Path, learner: RerankLearner, stamp: RerankStamp, lock: FileLock, *, save_every: int, max_staleness: int | None) -> None:
        """For `open`."""
        self.path, self.learner, self.stamp = path, learner, stamp
        self._lock, self._save_every, self._max_staleness = lock, save_every, max_staleness
        self._num_unsaved = 0

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        scope: str,
        encoder: str,
        dim: int,
        settings: RerankSettings,
        ranking: str = Ranking.DENSE,
        versions: Mapping[str, Collection[str]] | None = None,
        save_every: int = 1,
        max_staleness: int | None = None,
    ) -> ScopedLearner:
        """Go on with the state at `path`, or start one.

        Args:
            path: its file.
            scope, encoder, dim, settings, ranking, versions: see `load_reranker`.
            save_every: answers between two saves; 1 loses none.
            max_staleness: updates that may lie between a draw and its citations.

        Raises:
            DataError: another process writes it, or it belongs to something else.
        """
        lock = lock_state(path, scope)
        try:
            if path.exists():
                learner, stamp = load_reranker(path, encoder=encoder, dim=dim, scope=scope, settings=settings, ranking=ranking, versions=versions)
            else:
                learner, stamp = RerankLearner(dim, settings), RerankStamp(scope=scope, encoder=encoder, ranking=ranking)
        except BaseException:
            lock.release()
            raise
        return cls(path, learner, stamp, lock, save_every=save_every, max_staleness=max_staleness)

    async def draw(self, ids: Sequence[str], query: np.ndarray, memories: np.ndarray, *, prior: np.ndarray | None = None) -> Reranking:
        """See `RerankLearner.draw`."""
        return self.learner.draw(ids, query, memories, prior=prior)

    async def rank(self, ids: Sequence[str], query: np.ndarray, memories: np.ndarray, *, prior: np.ndarray | None = None) -> Reranking:
        """See `RerankLearner.rank`."""
        return self.learner.rank(ids, query, memories, prior=prior)

    async def learn(self, reranking: Reranking, cited: Sequence[bool], *, bank_id: str | None = None) -> RerankDecision | None:
        """See `RerankLearner.learn`; saved where it is time to, together with the number of this bank's questions that are done."""
        decision = self.learner.learn(reranking, cited, max_staleness=self._max_staleness)
        self._count(bank_id)
        return decision

    def skip(self, bank_id: str) -> None:
        """Say that a question of a bank is done that taught nothing."""
        self._count(bank_id)

    def count_done(self, bank_id: str) -> int:
        """Questions of a bank that are done."""
        return self.stamp.answered.get(bank_id, 0)

    def note_bank(self, bank_id: str, version: str) -> None:
        """Say which version of a bank is learned from now on; kept with the next save."""
        self.stamp = replace(self.stamp, banks={**self.stamp.banks, bank_id: version})

    def note_done(self, name: str, number: int) -> None:
        """Say that so many episodes of a finished run have been taken in, and save at once."""
        self.stamp = replace(self.stamp, answered={**self.stamp.answered, name: self.count_done(name) + number})
        self.save()

    def save(self) -> None:
        """Write the state now."""
        save_reranker(self.path, self.learner, self.stamp)
        self._num_unsaved = 0

    def close(self) -> None:
        """Save what is not saved, and let others write."""
        if self._num_unsaved:
            self.save()
        self.release()

    def release(self) -> None:
        """Let others write; what is not saved is lost."""
        self._lock.release()

    def _count(self, bank_id: str | None) -> None:
        if bank_id is not None:
            self.stamp = replace(self.stamp, answered={**self.stamp.answered, bank_id: self.count_done(bank_id) + 1})
        self._num_unsaved += 1
        if self._num_unsaved >= self._save_every:
            self.save()
