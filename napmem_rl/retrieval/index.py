"""Search over a bank's passages: sealed segments on disk, a tail in memory, filters before ranking, keyword and vector scores fused.

An index is immutable and safe to search from several threads. Up to `LARGE` passages all scores are computed, and what is found depends on the passages alone,
not on how they were cut into segments. From there on `build` leaves a tantivy index and an HNSW graph, which later searches take their candidates from.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from napmem_rl.retrieval.bm25 import tokenize_words
from napmem_rl.retrieval.choice import rank_top
from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.retrieval.fusion import CANDIDATES, RRF_K, FusionWeights, Ranking, compute_rrf_scores, find_top, fuse_scores, rank_rrf
from napmem_rl.retrieval.passages import PassageSource, SearchFilter
from napmem_rl.retrieval.query import find_speakers, is_first_person, names_date, score_days, tokenize_query
from napmem_rl.retrieval.rerank_state import SearchReranker
from napmem_rl.retrieval.segments import SegmentStore
from napmem_rl.retrieval.vectors import PassageVectors
from napmem_rl.retrieval.words import PassageWords
from napmem_rl.schema import Level

_LOG = logging.getLogger(__name__)
LARGE = 50_000  # passages; up to here computing all scores takes a few milliseconds, and is exact
LARGE_CANDIDATES = 64  # of the keyword and of the vector side of a large index, and at least four times k; their neighbours come on top
TAIL_SHARE = 16  # a tail of more than a sixteenth of all passages is sealed when the index opens, so that few are encoded by every process
USER = "user"  # the role of messages by the one who asks
EVERYTHING = SearchFilter()
RECORD_WEIGHTS = FusionWeights(neighbours=0.3, reach=1)  # records next to each other share less than turns do; chosen like the others


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """What a search found, with what a reranker needs."""

    positions: tuple[int, ...]  # [K], best first
    query: np.ndarray  # [d] float32
    vectors: np.ndarray  # [K, d] float32
    prior: np.ndarray | None  # [K] the ranking's own scores; None where they are the inner products of the vectors


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
        candidates: int = CANDIDATES,
        weights: FusionWeights | None = None,
        large: int = LARGE,
        seal: bool = True,
        reranker: SearchReranker | None = None,
    ) -> None:
        """Read what is sealed on disk and compute the rest.

        Args:
            source: the passages.
            level: whose they are, e.g. "raw"; names the files.
            encoder: for passages and queries; None for BM25 alone.
            directory: where sealed segments lie; None keeps everything in memory.
            ranking: one of `Ranking`.
            rrf_k: the constant of reciprocal rank fusion.
            candidates: how deep reciprocal rank fusion reads each ranking, and at least twice k.
            weights: of the fused ranking; None for those of the level.
            large: number of passages from which on `build` leaves tantivy's lists and a graph.
            seal: store a large tail on disk at once; where that is not allowed, a line in the log says so.
            reranker: ranks again what `search` found, over its K candidates; needs an encoder.
        """
        self._level, self._large = level, large
        self._ranking, self._rrf_k, self._candidates = Ranking(ranking), rrf_k, candidates
        self._weights = weights or (RECORD_WEIGHTS if level == Level.RECORD else FusionWeights())
        self._encoder = None if self._ranking is Ranking.BM25 else encoder
        assert reranker is None or self._encoder is not None, "PassageIndex: a reranker needs vectors"
        self._reranker = reranker
        self._store = None if directory is None else SegmentStore(directory, level)
        self._open(source)
        if seal and self._store is not None and (len(source) - self._num_sealed) * TAIL_SHARE > len(source):
            self.build()

    def __len__(self) -> int:
        """Number of passages."""
        return len(self._source)

    def extended(self, source: PassageSource) -> PassageIndex:
        """An index over a longer version of the same passages; what is there already is shared, only new ones are read and encoded."""
        assert len(source) >= len(self._source), f"PassageIndex: {len(source)} passages cannot extend {len(self._source)}"
        index = object.__new__(PassageIndex)
        index._level, index._encoder, index._large, index._store = self._level, self._encoder, self._large, self._store
        index._reranker = self._reranker
        index._ranking, index._rrf_k, index._candidates, index._weights = self._ranking, self._rrf_k, self._candidates, self._weights
        index._source, index._num_sealed = source, self._num_sealed
        words, vectors = self._sides
        if vectors is None and self._encoder is not None:  # there were no passages
            vectors = PassageVectors(source, self._encoder, None, ())
        index._sides = words.extended(source), vectors and vectors.extended(source)
        return index

    def build(self) -> None:
        """Leave everything on disk for the next process. A directory that cannot be written is logged; passages that end amid a commit are not stored."""
        if self._store is None or self._num_sealed == len(self._source):
            return
        is_large = len(self._source) >= self._large
        words, vectors = self._sides
        if not words.save(self._store, is_large=is_large) or not (vectors is None or vectors.save(self._store, is_large=is_large)):
            return
        if is_large:
            self._open(self._source)
        else:
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
        if self._reranker is None or k <= 0:
            return self._find(query, k, where)[0]
        found = self.find_candidates(query, k=max(k, self._reranker.num_candidates), where=where)
        if found is None:
            return []
        order = rank_top(self._reranker.reranker.score(found.query, found.vectors, prior=found.prior), k)
        return [found.positions[index] for index in order]

    def find_candidates(self, query: str, *, k: int, where: SearchFilter = EVERYTHING) -> Candidates | None:
        """What a search finds before any reranking, with vectors; None where it finds nothing, or there is no encoder."""
        positions, scores = self._find(query, k, where)
        vectors = self._sides[1]
        if vectors is None or not positions:
            return None
        prior = None if self._ranking is Ranking.DENSE else np.array(scores)
        return Candidates(positions=tuple(positions), query=vectors.encode(query), vectors=vectors.gather(np.array(positions)), prior=prior)

    def _find(self, query: str, k: int, where: SearchFilter) -> tuple[list[int], list[float]]:
        """Positions of the k best by the index's own ranking, best first, and their scores."""
        if k <= 0 or not query.strip() or not len(self._source):
            return [], []
        mask = self._find_eligible(where)
        if not mask.any():
            return [], []
        if self._ranking is Ranking.FUSED:
            return self._rank_fused(query, mask, where, k)
        depth = max(self._candidates, 2 * k)
        (words, vectors), found = self._sides, []
        if self._ranking is not Ranking.DENSE or vectors is None:
            found.append(words.find(tokenize_words(query), mask, where, self._recency, depth))
        if vectors is not None:
            found.append(vectors.find(vectors.encode(query), mask, self._recency, depth))
        if len(found) == 1:
            positions, scores = found[0]
            return positions[:k].tolist(), scores[:k].tolist()
        rankings = [positions for positions, _ in found]
        fused = compute_rrf_scores([ranking.tolist() for ranking in rankings], rrf_k=self._rrf_k)
        positions = rank_rrf(rankings, self._recency, k=k, rrf_k=self._rrf_k)
        return positions, [fused[position] for position in positions]

    def _open(self, source: PassageSource) -> None:
        self._source = source
        is_large = len(source) >= self._large
        words = PassageWords.open(source, self._store, is_large=is_large)
        vectors = None if self._encoder is None or not len(source) else PassageVectors.open(source, self._encoder, self._store, is_large=is_large)
        self._sides: tuple[PassageWords, PassageVectors | None] = words, vectors  # replaced as a whole, while others may search
        self._num_sealed = words.num_stored if self._encoder is None else min(words.num_stored, vectors.num_stored if vectors else 0)

    def _rank_fused(self, query: str, mask: np.ndarray, where: SearchFilter, k: int) -> tuple[list[int], list[float]]:
        """The k best of the passages of a mask by `fuse_scores`, and their scores; what is left out of the mask lends nothing either."""
        words, vectors = self._sides
        terms = tokenize_query(query) if self._weights.drop_asking_words else tokenize_words(query)
        vector = None if vectors is None else vectors.encode(query)
        if words.base is None and (vectors is None or vectors.base is None):
            places = np.flatnonzero(mask[self._by_session])
            word_scores = words.score(terms)[self._by_session[places]]
        else:
            depth = max(LARGE_CANDIDATES, 4 * k)
            found = words.find(terms, mask, where, self._recency, depth)
            near = found[0][:0] if vectors is None else vectors.find(vector, mask, self._recency, depth)[0]
            places, word_scores = self._gather(found, near, mask)
        chosen = self._by_session[places]  # [m] positions
        scores = fuse_scores(
            word_scores,
            None if vectors is None else vectors.score_some(vector, chosen),
            places=places,
            sessions=self._source.sessions[chosen],
            is_speaker=self._find_speaker(query, chosen),
            nearness=self._score_days(query, chosen, where.before),
            weights=self._weights,
        )
        top = find_top(scores, self._recency[chosen], k)
        return chosen[top].tolist(), scores[top].tolist()

    def _find_speaker(self, query: str, chosen: np.ndarray) -> np.ndarray | None:
        """[m] bool, True for the passages of a speaker whom the query names, or of the user where the query is in the first person; None for neither."""
        speakers = self._source.speakers[chosen]
        named = np.append(find_speakers(query, self._source.speaker_names[: speakers.max(initial=-1) + 1]), False)  # code -1 reads the last
        if named.any():
            return named[speakers]
        if USER in self._source.kind_names and is_first_person(query):
            return self._source.kinds[chosen] == list(self._source.kind_names).index(USER)
        return None

    def _gather(self, found: tuple[np.ndarray, np.ndarray], near: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Candidates of a large index with their neighbours.

        Args:
            found: positions and scores by keywords.
            near: positions by vectors.
            mask: [n] bool, the passages that take part.

        Returns:
            Places in `_by_session`, ascending, and keyword scores; 0 for what keywords did not find.
        """
        reach = self._weights.reach if self._weights.neighbours > 0 else 0
        around = self._places[np.concatenate([found[0], near])][:, None] + np.arange(-reach, reach + 1)
        places = np.unique(around[(around >= 0) & (around < len(mask))])
        places = places[mask[self._by_session[places]]]
        scores = np.zeros(len(places), dtype=np.float32)
        scores[np.searchsorted(places, self._places[found[0]])] = found[1]
        return places, scores

    def _score_days(self, query: str, chosen: np.ndarray, before: str | None) -> np.ndarray | None:
        """See `score_days`; "today" is the day of the search where it is limited, else the newest passage's."""
        if not names_date(query) or self._days is None or not len(chosen):
            return None
        days = self._days[chosen]
        try:
            today = days.max() if before is None else np.datetime64(before[:10], "D")
        except ValueError:
            today = days.max()
        return score_days(query, days, today)

    @cached_property
    def _by_time(self) -> np.ndarray:
        """[n] positions, oldest first, later positions last among equal times."""
        times = self._source.times
        return np.arange(len(times)) if (times[1:] >= times[:-1]).all() else np.argsort(times, kind="stable")

    @cached_property
    def _recency(self) -> np.ndarray:
        """[n] int64, the rank of each passage by age; the newest has the highest."""
        return _invert(self._by_time)

    @cached_property
    def _sorted_times(self) -> np.ndarray:
        return self._source.times[self._by_time]

    @cached_property
    def _by_session(self) -> np.ndarray:
        """[n] positions, those of one session next to each other, in order."""
        return np.argsort(self._source.sessions, kind="stable")

    @cached_property
    def _places(self) -> np.ndarray:
        """[n] where each passage stands in `_by_session`."""
        return _invert(self._by_session)

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
        if where.without:
            mask = mask.copy()
            mask[list(where.without)] = False
        return mask


def _invert(order: np.ndarray) -> np.ndarray:
    """[n] the place of each position in an order."""
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places


def _is_named(codes: np.ndarray, names: list[str], wanted: tuple[str, ...]) -> np.ndarray:
    """[n] bool, True where a code stands for one of the wanted names."""
    chosen = np.array([name in wanted for name in names] + [False])  # code -1 reads the last
    return chosen[codes]
