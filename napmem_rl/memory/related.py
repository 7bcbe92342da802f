"""Hybrid retrieval of the records that a draft may repeat, revise or extend (NapMem section 3.2, "reconciled with the existing related record bank").

The bank's own search serves a snapshot that stays as it is; here records come and go with every draft, so word statistics and vectors are kept up one record
at a time. A search reads the postings of the draft's words and, with an encoder, one product of all vectors; nothing is ever built again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from napmem_rl.memory.build_state import number_of
from napmem_rl.retrieval.bm25 import tokenize_words
from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.retrieval.hybrid import CANDIDATES, compute_rrf_scores
from napmem_rl.schema import Record

_K1, _B = 1.5, 0.75  # as in `retrieval.bm25`
_DECIMALS = 5  # of similarities: their last bits depend on where a row stands in the matrix


class RelatedRecords:
    """Live records by id, to find those related to a text. The order of what is found depends on the records that are there alone, not on how they came."""

    def __init__(self, records: Iterable[Record] = (), *, encoder: Encoder | None = None) -> None:
        self._records: dict[str, Record] = {}
        self._words: dict[str, tuple[str, ...]] = {}
        self._lengths: dict[str, int] = {}
        self._postings: dict[str, dict[str, int]] = {}  # word -> record id -> occurrences
        self._num_words = 0
        self._vectors = _VectorTable(encoder) if encoder is not None else None
        for record in records:
            self.put(record)

    def put(self, record: Record) -> None:
        """Add a record, or put it in the place of the one with its id."""
        self.remove(record.record_id)
        words = Counter(tokenize_words(record.text))
        self._records[record.record_id] = record
        self._words[record.record_id] = tuple(words)
        self._lengths[record.record_id] = words.total()
        self._num_words += words.total()
        for word, occurrences in words.items():
            self._postings.setdefault(word, {})[record.record_id] = occurrences
        if self._vectors is not None:
            self._vectors.put(record.record_id, record.text)

    def remove(self, record_id: str) -> None:
        """Take a record out; nothing happens where there is none."""
        if self._records.pop(record_id, None) is None:
            return
        self._num_words -= self._lengths.pop(record_id)
        for word in self._words.pop(record_id):
            del self._postings[word][record_id]
            if not self._postings[word]:
                del self._postings[word]
        if self._vectors is not None:
            self._vectors.remove(record_id)

    def search(self, text: str, *, k: int) -> list[Record]:
        """The k records most related to a text, best first; none that shares neither a word nor, with an encoder, a direction with it.

        Both rankings are read as deep as by `retrieval.hybrid.HybridIndex`, and fused by reciprocal ranks; among equals the higher number is first.
        """
        depth = max(CANDIDATES, 2 * k)
        scores = [self._score_words(text)] + ([self._vectors.score(text)] if self._vectors is not None else [])
        rankings = [_rank(found)[:depth] for found in scores]
        order = sorted({record_id for ranking in rankings for record_id in ranking}, key=_recency)
        positions = {record_id: position for position, record_id in enumerate(order)}
        fused = compute_rrf_scores([[positions[record_id] for record_id in ranking] for ranking in rankings])
        best = sorted(fused, key=lambda position: (-fused[position], position))[:k]
        return [self._records[order[position]] for position in best]

    def _score_words(self, text: str) -> dict[str, float]:
        """BM25 (Lucene's variant) of the records that share a word with the text."""
        scores: dict[str, float] = {}
        mean_length = self._num_words / max(1, len(self._records))
        for word in dict.fromkeys(tokenize_words(text)):
            postings = self._postings.get(word, {})
            weight = math.log(1 + (len(self._records) - len(postings) + 0.5) / (len(postings) + 0.5))
            for record_id, occurrences in postings.items():
                length = self._lengths[record_id] / mean_length
                scores[record_id] = scores.get(record_id, 0.0) + weight * occurrences / (occurrences + _K1 * (1 - _B + _B * length))
        return scores


class _VectorTable:
    """One unit row a record, in a matrix that doubles when it is full; rows are computed when they are first searched."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._rows = np.zeros((64, encoder.dim), dtype=np.float32)  # [capacity, dim]; an unused row is all zero
        self._ids: list[str | None] = []  # record of each row
        self._row_of: dict[str, int] = {}
        self._free: list[int] = []
        self._waiting: dict[str, str] = {}  # record id -> text without a row yet
        self._last_query: tuple[str, np.ndarray] | None = None

    def put(self, record_id: str, text: str) -> None:
        self._waiting[record_id] = text

    def remove(self, record_id: str) -> None:
        self._waiting.pop(record_id, None)
        row = self._row_of.pop(record_id, None)
        if row is not None:
            self._rows[row] = 0.0
            self._ids[row] = None
            self._free.append(row)

    def score(self, text: str) -> dict[str, float]:
        """Similarity of the records that point the same way, above 0."""
        self._compute_waiting()
        query = self._encode([text])[0]
        self._last_query = (text, query)
        similarities = (self._rows[: len(self._ids)] @ query).round(_DECIMALS)
        return {record_id: float(similarities[row]) for row in np.flatnonzero(similarities > 0) if (record_id := self._ids[row]) is not None}

    def _compute_waiting(self) -> None:
        if not self._waiting:
            return
        for record_id, vector in zip(self._waiting, self._encode(list(self._waiting.values())), strict=True):
            row = self._free.pop() if self._free else len(self._ids)
            if row == len(self._rows):
                self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
            self._ids[row : row + 1] = [record_id]
            self._row_of[record_id] = row
            self._rows[row] = vector
        self._waiting.clear()

    def _encode(self, texts: Sequence[str]) -> np.ndarray:
        """Rows of the texts; a draft that was just searched for is mostly the record that comes next."""
        if self._last_query is not None and list(texts) == [self._last_query[0]]:
            return self._last_query[1][None]
        return self._encoder.encode(texts)


def _rank(scores: dict[str, float]) -> list[str]:
    """Ids by score, best first; among equals the highest number first."""
    return sorted(scores, key=lambda record_id: (-scores[record_id], *_recency(record_id)))


def _recency(record_id: str) -> tuple[int, str]:
    return -number_of(record_id), record_id
