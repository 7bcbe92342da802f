"""The keyword side of an index: inverted lists in segments, or tantivy's for very many passages with a tail of lists after them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from napmem_rl.retrieval.bm25 import tokenize_words
from napmem_rl.retrieval.fusion import find_top
from napmem_rl.retrieval.passages import PassageSource, SearchFilter
from napmem_rl.retrieval.postings import Postings, WordIndex
from napmem_rl.retrieval.segments import SegmentStore
from napmem_rl.retrieval.tantivy_words import TantivyWords


class PassageWords:
    """Keyword scores of the passages of a source. Immutable."""

    def __init__(self, source: PassageSource, base: TantivyWords | None, parts: Sequence[Postings], num_stored: int = 0) -> None:
        """Args:
        source: the passages.
        base: the first of them, by tantivy, or None.
        parts: inverted lists of those after `base`; what they lack is read from `source`.
        num_stored: how many of the passages are on disk in the form that their number asks for.
        """
        self.base = base
        self.num_stored = num_stored
        self._source = source
        self._start = len(base) if base else 0
        known = self._start + sum(len(part) for part in parts)
        new = [Postings.build([tokenize_words(text) for text in source.texts(known, len(source))])] if known < len(source) else []
        self._lists = WordIndex(settle([*parts, *new]))

    @classmethod
    def open(cls, source: PassageSource, store: SegmentStore | None, *, is_large: bool) -> PassageWords:
        """What is stored, and the rest in memory. `is_large`: look for tantivy's lists first."""
        base = store.load_tantivy(source) if store and is_large else None
        postings = store.load_words(source) if store and base is None else None
        num_stored = len(base) if base else 0 if is_large or postings is None else len(postings)
        return cls(source, base, [] if postings is None else [postings], num_stored)

    def extended(self, source: PassageSource) -> PassageWords:
        """The same for a longer source, sharing what is there."""
        return PassageWords(source, self.base, self._lists.parts, self.num_stored)

    def save(self, store: SegmentStore, *, is_large: bool) -> bool:
        """Store the lists of all passages; True where that was done."""
        if is_large:
            return store.save_tantivy(self._source, self.base)
        whole = self._lists.parts[0]
        for part in self._lists.parts[1:]:
            whole = whole.joined(part)
        return store.save_words(self._source, whole)

    def score(self, words: Sequence[str]) -> np.ndarray:
        """Scores of all passages, [n] float32; only where there is no `base`."""
        assert self.base is None, "PassageWords: tantivy scores no passage but those it finds"
        return self._lists.compute_scores(words)

    def find(self, words: Sequence[str], mask: np.ndarray, where: SearchFilter, recency: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """Positions and scores of the passages of a mask that fit words best, at most `depth`, best first, the more recent first among equals."""
        if not words:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32)
        if self.base is None:
            scores = np.where(mask, self.score(words), 0)
            found = find_top(scores, recency, depth)
            return found, scores[found]
        found, scores = self.base.find(words, mask[: self._start], where, depth)
        later = np.where(mask[self._start :], self._score_tail(words), 0)
        hits = np.flatnonzero(later)
        found, scores = np.concatenate([found, hits + self._start]), np.concatenate([scores, later[hits]])
        order = find_top(scores, recency[found], depth)
        return found[order], scores[order]

    def _score_tail(self, words: Sequence[str]) -> np.ndarray:
        assert self.base is not None
        return np.concatenate([np.zeros(0, dtype=np.float32), *(self.base.score_later(part, words) for part in self._lists.parts)])


def settle(parts: list) -> list:
    """Runs of which each is less than half as long as the one before: a run that has grown joins the one before it, so that growth costs little each time."""
    while len(parts) > 1 and 2 * len(parts[-1]) > len(parts[-2]):
        parts = [*parts[:-2], parts[-2].joined(parts[-1])]
    return parts
