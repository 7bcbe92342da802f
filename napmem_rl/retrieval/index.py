"""Search over a bank's passages: sealed segments on disk, a tail in memory, filters before ranking, keyword and vector scores fused.

An index is immutable and safe to search from several threads. What it finds depends on its passages alone, not on how they were cut into segments.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from napmem_rl.retrieval.bm25 import tokenize_words
from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.retrieval.fusion import RRF_K, rank_rrf
from napmem_rl.retrieval.passages import PassageSource, SearchFilter
from napmem_rl.retrieval.postings import Postings, WordIndex
from napmem_rl.retrieval.segments import SegmentStore

_LOG = logging.getLogger(__name__)
TAIL_SHARE = 16  # a tail of more than a sixteenth of all passages is sealed when the index opens, so that few are encoded by every process
MERGE_SHARE = 4  # in memory, a tail of more than a quarter is joined to the rest
ENCODE_BATCH = 1024  # passages whose texts are rendered and encoded at once
EVERYTHING = SearchFilter()


@dataclass(frozen=True, slots=True)
class VectorRun:
    """Vectors of consecutive passages: as they are stored, and as they are computed with."""

    stored: np.ndarray  # [n, dim] float16, perhaps memory-mapped
    rows: np.ndarray  # [n, dim] float32

    @classmethod
    def of(cls, stored: np.ndarray) -> VectorRun:
        """The run of vectors in half precision."""
        return cls(stored, np.ascontiguousarray(stored, dtype=np.float32))

    def joined(self, later: VectorRun) -> VectorRun:
        """These vectors with `later` ones after them."""
        return VectorRun(np.concatenate([self.stored, later.stored]), np.concatenate([self.rows, later.rows]))


class PassageIndex:
    """Hybrid search over a `PassageSource`; keywords alone where there is no encoder."""

    def __init__(
        self, source: PassageSource, *, level: str, encoder: Encoder | None = None, directory: Path | None = None, rrf_k: int = RRF_K, seal: bool = True
    ) -> None:
        """Read what is sealed on disk and compute the rest.

        Args:
            source: the passages.
            level: whose they are, e.g. "raw"; names the files.
            encoder: for passages and queries; None for BM25 alone.
            directory: where sealed segments lie; None keeps everything in memory.
            rrf_k: the constant of the fusion.
            seal: store a large tail on disk at once; where that is not allowed, a line in the log says so.
        """
        self._level = level
        self._encoder = encoder
        self._store = None if directory is None else SegmentStore(directory, level)
        self._rrf_k = rrf_k
        words = self._store.load_words(source) if self._store else None
        vectors = self._store.load_vectors(source, encoder) if self._store and encoder else None
        self._num_sealed = min(0 if words is None else len(words), len(source) if encoder is None else 0 if vectors is None else len(vectors))
        self._take(source, [] if words is None else [words], [] if vectors is None else [VectorRun.of(vectors)])
        if seal and (len(source) - self._num_sealed) * TAIL_SHARE > len(source):
            self.build()

    def __len__(self) -> int:
        """Number of passages."""
        return len(self._source)

    def extended(self, source: PassageSource) -> PassageIndex:
        """An index over a longer version of the same passages; what is there already is shared, only new ones are read and encoded."""
        assert len(source) >= len(self._source), f"PassageIndex: {len(source)} passages cannot extend {len(self._source)}"
        index = object.__new__(PassageIndex)
        index._level, index._encoder, index._store, index._rrf_k = self._level, self._encoder, self._store, self._rrf_k
        index._num_sealed = self._num_sealed
        index._take(source, list(self._words.parts), list(self._vectors))
        return index

    def build(self) -> None:
        """Leave everything on disk for the next process. A directory that cannot be written is logged; passages that end amid a commit are not stored."""
        if self._store is None or self._num_sealed == len(self._source):
            return
        self._store.save_words(self._source, _join(list(self._words.parts)))
        if self._encoder is not None:
            self._store.save_vectors(self._source, self._encoder, np.concatenate([run.stored for run in self._vectors]))
        self._num_sealed = len(self._source)

    def search(self, query: str, *, k: int, where: SearchFilter = EVERYTHING) -> list[int]:
        """Positions of the k passages that fit a query best, best first.

        Args:
            query: free text; one without content gives nothing.
            k: how many at most.
            where: which passages take part; the others are left out before ranking, as are those no longer live.

        Returns:
            At most k positions; equal scores put the newer passage first.
        """
        if k <= 0 or not query.strip() or not len(self._source):
            return []
        mask = self._find_eligible(where)
        if not mask.any():
            return []
        scores = [self._words.compute_scores(tokenize_words(query))]
        if self._encoder is not None:
            scores.append(self._compute_similarities(self._encoder.encode([query])[0]))
        return rank_rrf([np.where(mask, array, 0) for array in scores], self._recency, k=k, rrf_k=self._rrf_k)

    def _take(self, source: PassageSource, words: list[Postings], vectors: list[VectorRun]) -> None:
        """Hold the runs given, with new ones for the passages after them."""
        self._source = source
        start = sum(len(part) for part in words)
        if start < len(source):
            words.append(Postings.build([tokenize_words(text) for text in source.texts(start, len(source))]))
        self._words = WordIndex(_settle(words))
        self._vectors: list[VectorRun] = []
        if self._encoder is not None and len(source):
            start = sum(len(run.rows) for run in vectors)
            if start < len(source):
                vectors.append(self._encode(source, start))
            self._vectors = _settle(vectors)

    def _encode(self, source: PassageSource, start: int) -> VectorRun:
        """Vectors of the passages from `start` on, rounded to half precision as the stored ones are."""
        assert self._encoder is not None
        stops = range(start, len(source), ENCODE_BATCH)
        rows = [self._encoder.encode(source.texts(stop, min(stop + ENCODE_BATCH, len(source)))).astype(np.float16) for stop in stops]
        return VectorRun.of(np.concatenate(rows))

    def _compute_similarities(self, vector: np.ndarray) -> np.ndarray:
        """Inner product of every passage with a query vector of length 1, [n] float32; equal rows get equal values."""
        import faiss

        query = np.ascontiguousarray(vector, dtype=np.float32)
        values = np.empty(len(self._source), dtype=np.float32)
        start = 0
        for run in self._vectors:
            count, dim = run.rows.shape
            part = values[start : start + count]
            faiss.fvec_inner_products_ny(faiss.swig_ptr(part), faiss.swig_ptr(query), faiss.swig_ptr(run.rows), dim, count)  # row by row, unlike BLAS
            start += count
        return values

    @cached_property
    def _by_time(self) -> np.ndarray:
        """[n] positions, oldest first, later positions last among equal times."""
        return np.argsort(self._source.times, kind="stable")

    @cached_property
    def _recency(self) -> np.ndarray:
        """[n] int64, the rank of each passage by age; the newest has the highest."""
        ranks = np.empty(len(self._source), dtype=np.int64)
        ranks[self._by_time] = np.arange(len(ranks))
        return ranks

    @cached_property
    def _sorted_times(self) -> np.ndarray:
        return self._source.times[self._by_time]

    def _find_eligible(self, where: SearchFilter) -> np.ndarray:
        """[n] bool, True for the passages that take part."""
        mask = np.asarray(self._source.live, dtype=bool)
        if where.before is not None:
            mask = mask & (self._recency < np.searchsorted(self._sorted_times, where.before.encode(), side="right"))
        if where.after is not None:
            mask = mask & (self._recency >= np.searchsorted(self._sorted_times, where.after.encode(), side="left"))
        if where.kinds is not None:
            mask = mask & _is_named(self._source.kinds, list(self._source.kind_names), where.kinds)
        if where.session_ids is not None:
            mask = mask & _is_named(self._source.sessions, list(self._source.session_names), where.session_ids)
        return mask


def _is_named(codes: np.ndarray, names: list[str], wanted: tuple[str, ...]) -> np.ndarray:
    """[n] bool, True where a code stands for one of the wanted names."""
    chosen = np.array([name in wanted for name in names] + [False])  # code -1 reads the last
    return chosen[codes]


def _join(parts: list) -> Postings | VectorRun:
    """All runs as one."""
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.joined(part)
    return whole


def _settle(parts: list) -> list:
    """At most one large run and a tail: tails are joined, and a tail that has grown large joins the rest. Costs as much as it saves."""
    if len(parts) > 2:
        parts = [parts[0], _join(parts[1:])]
    if len(parts) == 2 and _length(parts[1]) * MERGE_SHARE > _length(parts[0]):
        parts = [_join(parts)]
    return parts


def _length(part: Postings | VectorRun) -> int:
    return len(part) if isinstance(part, Postings) else len(part.rows)
