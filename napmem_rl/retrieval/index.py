"""Search over a bank's passages: sealed segments on disk, a tail in memory, filters before ranking, keyword and vector scores fused.

An index is immutable and safe to search from several threads. What it finds depends on its passages alone, not on how they were cut into segments.
"""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from napmem_rl.retrieval.bm25 import tokenize_words
from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.retrieval.fusion import RRF_K, FusionWeights, Ranking, find_top, fuse_scores, rank_rrf
from napmem_rl.retrieval.passages import PassageSource, SearchFilter
from napmem_rl.retrieval.postings import K1, B, Postings, WordIndex
from napmem_rl.retrieval.query import find_speakers, score_days, tokenize_query
from napmem_rl.retrieval.segments import SegmentStore

_LOG = logging.getLogger(__name__)
TAIL_SHARE = 16  # a tail of more than a sixteenth of all passages is sealed when the index opens, so that few are encoded by every process
ENCODE_BATCH = 1024  # passages whose texts are rendered and encoded at once
EVERYTHING = SearchFilter()
WEIGHTS = FusionWeights()
FUSED_BM25 = {"k1": 0.9, "b": 0.4}  # of the fused ranking: passages are short, so that their length says little (Anserini's defaults)


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
        self,
        source: PassageSource,
        *,
        level: str,
        encoder: Encoder | None = None,
        directory: Path | None = None,
        ranking: str = Ranking.FUSED,
        rrf_k: int = RRF_K,
        weights: FusionWeights = WEIGHTS,
        seal: bool = True,
    ) -> None:
        """Read what is sealed on disk and compute the rest.

        Args:
            source: the passages.
            level: whose they are, e.g. "raw"; names the files.
            encoder: for passages and queries; None for BM25 alone.
            directory: where sealed segments lie; None keeps everything in memory.
            ranking: one of `Ranking`.
            rrf_k: the constant of reciprocal rank fusion.
            weights: of the fused ranking.
            seal: store a large tail on disk at once; where that is not allowed, a line in the log says so.
        """
        self._level, self._encoder, self._ranking, self._rrf_k, self._weights = level, encoder, Ranking(ranking), rrf_k, weights
        self._store = None if directory is None else SegmentStore(directory, level)
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
        index = copy.copy(self)
        for name in ("_by_time", "_recency", "_sorted_times", "_days", "_by_session"):  # of the shorter version
            index.__dict__.pop(name, None)
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
        if self._ranking is Ranking.FUSED:
            return self._rank_fused(query, mask, k, where.before)
        scores = []
        if self._ranking is not Ranking.DENSE:
            scores.append(np.where(mask, self._words.compute_scores(tokenize_words(query)), 0))
        if self._encoder is not None and self._ranking is not Ranking.BM25:
            scores.append(np.where(mask, self._compute_similarities(self._encoder.encode([query])[0]), 0))
        if len(scores) == 1:
            return find_top(scores[0], self._recency, k).tolist()
        return rank_rrf(scores, self._recency, k=k, rrf_k=self._rrf_k)

    def _rank_fused(self, query: str, mask: np.ndarray, k: int, before: str | None) -> list[int]:
        """The k best of the passages of a mask by `fuse_scores`; what is left out of the mask lends nothing either."""
        places = np.flatnonzero(mask[self._by_session])
        chosen = self._by_session[places]  # [m] positions
        words = self._words.compute_scores(tokenize_query(query) if self._weights.drop_asking_words else tokenize_words(query))[chosen]
        vectors = None if self._encoder is None else self._compute_similarities(self._encoder.encode([query])[0])[chosen]
        speakers = self._source.speakers[chosen]
        named = np.append(find_speakers(query, self._source.speaker_names[: speakers.max() + 1]), False)  # code -1 reads the last
        scores = fuse_scores(
            words,
            vectors,
            places=places,
            sessions=self._source.sessions[chosen],
            is_speaker=named[speakers] if named.any() else None,
            nearness=self._score_days(query, chosen, before),
            weights=self._weights,
        )
        return chosen[find_top(scores, self._recency[chosen], k)].tolist()

    def _score_days(self, query: str, chosen: np.ndarray, before: str | None) -> np.ndarray | None:
        """See `score_days`; "today" is the day of the search where it is limited, else the newest passage's."""
        if self._days is None:
            return None
        days = self._days[chosen]
        try:
            today = days.max() if before is None else np.datetime64(before[:10], "D")
        except ValueError:
            today = days.max()
        return score_days(query, days, today)

    def _take(self, source: PassageSource, words: list[Postings], vectors: list[VectorRun]) -> None:
        """Hold the runs given, with new ones for the passages after them."""
        self._source = source
        start = sum(len(part) for part in words)
        if start < len(source):
            words.append(Postings.build([tokenize_words(text) for text in source.texts(start, len(source))]))
        self._words = WordIndex(_settle(words), **(FUSED_BM25 if self._ranking is Ranking.FUSED else {"k1": K1, "b": B}))
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

    @cached_property
    def _by_session(self) -> np.ndarray:
        """[n] positions, those of one session next to each other, in order."""
        return np.argsort(self._source.sessions, kind="stable")

    @cached_property
    def _days(self) -> np.ndarray | None:
        """[n] datetime64[D], or None where a time is no date."""
        try:
            return self._source.times.astype("S10").astype("U10").astype("datetime64[D]")
        except ValueError as error:
            _LOG.warning("%s passages: dates do not count in searches (%s)", self._level, error)
            return None

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
    """Runs of which each is less than half as long as the one before: a run that has grown joins the one before it, so that growth costs little each time."""
    while len(parts) > 1 and 2 * _length(parts[-1]) > _length(parts[-2]):
        parts = [*parts[:-2], parts[-2].joined(parts[-1])]
    return parts


def _length(part: Postings | VectorRun) -> int:
    return len(part) if isinstance(part, Postings) else len(part.rows)
