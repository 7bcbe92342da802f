"""Inverted lists of words, and BM25 over them.

The lists hold counts, not finished scores, so that those of a stored segment and of what was appended since are searched as one: a score does not depend on
where the passages were cut into segments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

K1 = 1.5  # saturation of a word's count; with B the defaults of bm25s, whose scores (variant of Lucene) these are
B = 0.75  # weight of a passage's length


@dataclass(frozen=True, kw_only=True, slots=True)
class Postings:
    """Inverted lists of n passages: which passages hold a word, and how often. Row w of the lists is [starts[w], starts[w + 1])."""

    vocabulary: dict[str, int]  # word -> row
    starts: np.ndarray  # [words + 1] int64
    passages: np.ndarray  # [entries] int32, ascending within a row
    counts: np.ndarray  # [entries] uint16
    lengths: np.ndarray  # [n] int32, words of each passage

    def __len__(self) -> int:
        """Number of passages."""
        return len(self.lengths)

    @classmethod
    def build(cls, passages: Sequence[Sequence[str]]) -> Postings:
        """The lists of passages given as words, [n]."""
        vocabulary: dict[str, int] = {}
        rows = np.fromiter((vocabulary.setdefault(word, len(vocabulary)) for words in passages for word in words), dtype=np.int64)
        lengths = np.fromiter((len(words) for words in passages), dtype=np.int32, count=len(passages))
        total = max(len(passages), 1)
        keys, counts = np.unique(rows * total + np.repeat(np.arange(len(passages)), lengths), return_counts=True)
        return cls(
            vocabulary=vocabulary,
            starts=np.searchsorted(keys, np.arange(len(vocabulary) + 1) * total),
            passages=(keys % total).astype(np.int32),
            counts=np.minimum(counts, np.iinfo(np.uint16).max).astype(np.uint16),
            lengths=lengths,
        )

    def joined(self, later: Postings) -> Postings:
        """The lists of these passages with `later` ones after them."""
        vocabulary = dict(self.vocabulary)
        moved = np.fromiter((vocabulary.setdefault(word, len(vocabulary)) for word in later.vocabulary), dtype=np.int64, count=len(later.vocabulary))
        rows = np.concatenate([np.repeat(np.arange(len(self.vocabulary)), np.diff(self.starts)), np.repeat(moved, np.diff(later.starts))])
        order = np.argsort(rows, kind="stable")  # the later passages stay behind the earlier ones within each row
        return Postings(
            vocabulary=vocabulary,
            starts=np.searchsorted(rows[order], np.arange(len(vocabulary) + 1)),
            passages=np.concatenate([self.passages, later.passages + np.int32(len(self))])[order],
            counts=np.concatenate([self.counts, later.counts])[order],
            lengths=np.concatenate([self.lengths, later.lengths]),
        )

    def find(self, word: str) -> slice:
        """Where the word's entries lie; empty for an unknown word."""
        row = self.vocabulary.get(word)
        return slice(0, 0) if row is None else slice(int(self.starts[row]), int(self.starts[row + 1]))


class WordIndex:
    """BM25 over consecutive runs of passages, as one. Word statistics are those of all passages, also when a search is limited to some of them."""

    def __init__(self, parts: Sequence[Postings]) -> None:
        """Args: parts: inverted lists of consecutive passages, together [n]."""
        self.parts = tuple(parts)
        self._total = sum(len(part) for part in self.parts)
        num_words = sum(int(part.lengths.sum(dtype=np.int64)) for part in self.parts)
        average = num_words / max(self._total, 1) or 1.0
        self._norms = tuple((K1 * (1 - B + B * part.lengths / average)).astype(np.float32) for part in self.parts)  # [part] each

    def compute_scores(self, words: Sequence[str]) -> np.ndarray:
        """BM25 of every passage for a query's words (repeated ones count as often), [n] float32; 0 where none occurs.

        score = sum over words of idf · count / (count + K1 (1 - B + B length / average length)), idf = ln(1 + (n - df + 0.5) / (df + 0.5)).
        """
        scores = np.zeros(self._total, dtype=np.float32)
        for word, repeats in Counter(words).items():
            found = [part.find(word) for part in self.parts]
            frequency = sum(span.stop - span.start for span in found)
            weight = np.float32(repeats * np.log1p((self._total - frequency + 0.5) / (frequency + 0.5)))
            for start, part, norms, span in self._walk(found):
                passages, counts = part.passages[span], part.counts[span].astype(np.float32)
                scores[start + passages] += weight * counts / (counts + norms[passages])
        return scores

    def _walk(self, spans: Sequence[slice]) -> Iterator[tuple[int, Postings, np.ndarray, slice]]:
        start = 0
        for part, norms, span in zip(self.parts, self._norms, spans, strict=True):
            if span.stop > span.start:
                yield start, part, norms, span
            start += len(part)
