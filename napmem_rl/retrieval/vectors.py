"""The vector side of an index: rows of half precision, compared exactly, or through a graph for very many passages with an exact tail after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.retrieval.fusion import find_top
from napmem_rl.retrieval.hnsw import HnswGraph
from napmem_rl.retrieval.passages import PassageSource
from napmem_rl.retrieval.segments import SegmentStore
from napmem_rl.retrieval.words import settle

ENCODE_BATCH = 1024  # passages whose texts are read and encoded at once


@dataclass(frozen=True, slots=True)
class VectorRun:
    """Vectors of consecutive passages: as they are stored, and as they are computed with."""

    stored: np.ndarray  # [n, dim] float16, perhaps memory-mapped
    rows: np.ndarray  # [n, dim] float32

    @classmethod
    def of(cls, stored: np.ndarray) -> VectorRun:
        """The run of vectors in half precision."""
        return cls(stored, np.ascontiguousarray(stored, dtype=np.float32))

    def __len__(self) -> int:
        """Number of vectors."""
        return len(self.rows)

    def joined(self, later: VectorRun) -> VectorRun:
        """These vectors with `later` ones after them."""
        return VectorRun(np.concatenate([self.stored, later.stored]), np.concatenate([self.rows, later.rows]))


class PassageVectors:
    """Similarities of the passages of a source to a query's vector. Immutable."""

    def __init__(
        self, source: PassageSource, encoder: Encoder, base: tuple[HnswGraph, np.ndarray] | None, runs: Sequence[VectorRun], num_stored: int = 0
    ) -> None:
        """Args:
        source: the passages.
        encoder: of the passages and of queries.
        base: a graph over the first of them and its vectors, [stop, dim] float16; or None.
        runs: vectors of those after `base`; what they lack is encoded.
        num_stored: how many of the passages are on disk in the form that their number asks for.
        """
        self.base = base
        self.num_stored = num_stored
        self._source = source
        self._encoder = encoder
        self._start = len(base[0]) if base else 0
        known = self._start + sum(len(run) for run in runs)
        new = [VectorRun.of(encode_passages(source, encoder, known))] if known < len(source) else []
        self._runs = settle([*runs, *new])

    @classmethod
    def open(cls, source: PassageSource, encoder: Encoder, store: SegmentStore | None, *, is_large: bool) -> PassageVectors:
        """What is stored, and the rest encoded. `is_large`: look for a graph first."""
        base = store.load_graph(source, encoder) if store and is_large else None
        vectors = store.load_vectors(source, encoder) if store and base is None else None
        num_stored = len(base[1]) if base else 0 if is_large or vectors is None else len(vectors)
        return cls(source, encoder, base, [] if vectors is None else [VectorRun.of(vectors)], num_stored)

    def extended(self, source: PassageSource) -> PassageVectors:
        """The same for a longer source, sharing what is there."""
        return PassageVectors(source, self._encoder, self.base, self._runs, self.num_stored)

    def save(self, store: SegmentStore, *, is_large: bool) -> bool:
        """Store the vectors of all passages, and the graph over them where they are very many; True where that was done."""
        base = [] if self.base is None else [self.base[1]]
        return store.save_vectors(self._source, self._encoder, np.concatenate([*base, *(run.stored for run in self._runs)]), with_graph=is_large)

    def encode(self, query: str) -> np.ndarray:
        """A query's vector, [dim] float32."""
        return np.ascontiguousarray(self._encoder.encode([query])[0], dtype=np.float32)

    def score(self, vector: np.ndarray) -> np.ndarray:
        """Similarities of all passages, [n] float32; equal rows get equal values."""
        assert self.base is None, "PassageVectors: a graph scores no passage but those it finds"
        return self._score_runs(vector)

    def score_some(self, vector: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Similarities of some passages, [m] float32."""
        if self.base is None:
            return self.score(vector)[positions]
        scores = np.empty(len(positions), dtype=np.float32)
        is_early = positions < self._start
        scores[is_early] = self.base[0].score(vector, positions[is_early])
        if not is_early.all():
            scores[~is_early] = self._score_runs(vector)[positions[~is_early] - self._start]
        return scores

    def find(self, vector: np.ndarray, mask: np.ndarray, recency: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions and similarities of the passages of a mask nearest to a vector, at most `depth`, best first, the more recent first among equals."""
        if self.base is None:
            scores = np.where(mask, self.score(vector), 0)
            found = find_top(scores, recency, depth)
            return found, scores[found]
        found, scores = self.base[0].find(vector, mask[: self._start], depth)
        later = np.where(mask[self._start :], self._score_runs(vector), 0)
        hits = np.flatnonzero(later > 0)
        found, scores = np.concatenate([found, hits + self._start]), np.concatenate([scores, later[hits]])
        order = find_top(scores, recency[found], depth)
        return found[order], scores[order]

    def gather(self, positions: np.ndarray) -> np.ndarray:
        """The vectors of some passages, [m, dim] float32, as they are compared with."""
        rows = np.empty((len(positions), self._encoder.dim), dtype=np.float32)
        starts = [0, *np.cumsum([self._start, *(len(run) for run in self._runs)])]
        parts = [self.base[1] if self.base else rows[:0], *(run.rows for run in self._runs)]
        for part, start in zip(parts, starts, strict=False):
            is_here = (positions >= start) & (positions < start + len(part))
            rows[is_here] = part[positions[is_here] - start]
        return rows

    def _score_runs(self, vector: np.ndarray) -> np.ndarray:
        import faiss

        values = np.empty(sum(len(run) for run in self._runs), dtype=np.float32)
        start = 0
        for run in self._runs:
            count, dim = run.rows.shape
            part = values[start : start + count]
            faiss.fvec_inner_products_ny(faiss.swig_ptr(part), faiss.swig_ptr(vector), faiss.swig_ptr(run.rows), dim, count)  # row by row, unlike BLAS
            start += count
        return values


def encode_passages(source: PassageSource, encoder: Encoder, start: int) -> np.ndarray:
    """Vectors of the passages from `start` on, [m, dim] float16: rounded as the stored ones are, so that both compare alike."""
    firsts = range(start, len(source), ENCODE_BATCH)
    rows = [encoder.encode(source.texts(first, min(first + ENCODE_BATCH, len(source)))).astype(np.float16) for first in firsts]
    return np.concatenate(rows)
