"""Inverted lists of very many passages, by tantivy: on disk, appendable, fed with our own stemmed words so that terms are the same as elsewhere.

Scores are tantivy's BM25 (k1 = 1.2, b = 0.75, lengths rounded to a byte), over the statistics of the passages that are stored.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from napmem_rl.retrieval.bm25 import tokenize_words
from napmem_rl.retrieval.passages import PassageSource, SearchFilter
from napmem_rl.retrieval.postings import Postings

K1 = 1.2
B = 0.75
_SCALE = 1.0 + K1  # tantivy keeps the factor that others leave out
_HEAP_BYTES = 128 << 20  # of a writer
_BATCH = 4096  # passages whose texts are read at once
_GROWTH = 4  # of the number of hits read where too few of them take part in the search
_LOCKS = ".lock"


class TantivyWords:
    """Search over the passages [0, n) of a source. Safe to search from several threads."""

    def __init__(self, path: Path, num_passages: int, num_words: int) -> None:
        """Args:
        path: tantivy's directory.
        num_passages: how many it holds.
        num_words: of all of them together.

        Raises:
            ValueError: it holds another number.
        """
        import tantivy

        self.path = path
        self.num_words = num_words
        self._num = num_passages
        self._copy = None if os.access(path, os.W_OK) else _LinkedCopy(path)  # tantivy takes a lock in the directory that it reads
        self._tantivy = tantivy
        index = tantivy.Index.open(str(self._copy.path if self._copy else path))
        index.config_reader("manual")  # what is stored never changes: no thread need look for it
        self._schema, self._searcher = index.schema, index.searcher()
        if self._searcher.num_docs != num_passages:
            raise ValueError(f"{self._searcher.num_docs} passages, expected {num_passages}")

    def __len__(self) -> int:
        """Number of passages."""
        return self._num

    def count_passages(self, word: str) -> int:
        """How many passages hold a word."""
        return self._searcher.doc_freq("words", word)

    def find(self, words: Sequence[str], mask: np.ndarray, where: SearchFilter, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """The passages that fit words best.

        Args:
            words: of the query; repeated ones count as often.
            mask: [n] bool, the passages that take part.
            where: the same for tantivy, as far as it knows; `mask` has the last word.
            depth: how many at most.

        Returns:
            Positions and scores, best first. What takes part is found however many others fit better.
        """
        wanted = min(depth, int(mask.sum()))
        if not wanted:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32)
        query = self._build_query(words, where)
        limit = depth
        while True:
            hits = self._searcher.search(query, limit, count=False).hits
            positions = np.array(self._searcher.fast_field_values("position", [address for _, address in hits]), dtype=np.int64)
            scores = np.array([score for score, _ in hits], dtype=np.float32)
            kept = mask[positions] & (scores > 0)
            if kept.sum() >= wanted or len(hits) < limit:
                return positions[kept][:depth], scores[kept][:depth]
            limit *= _GROWTH

    def score_later(self, later: Postings, words: Sequence[str]) -> np.ndarray:
        """Scores of passages that are not stored yet, by the statistics of those that are, [len(later)] float32."""
        scores = np.zeros(len(later), dtype=np.float32)
        norms = K1 * (1 - B + B * later.lengths / (self.num_words / max(self._num, 1) or 1.0))
        for word, repeats in Counter(words).items():
            span = later.find(word)
            frequency = self.count_passages(word)
            counts, passages = later.counts[span].astype(np.float32), later.passages[span]
            weight = repeats * _SCALE * np.log1p((self._num - frequency + 0.5) / (frequency + 0.5))
            scores[passages] += (weight * counts / (counts + norms[passages])).astype(np.float32)
        return scores

    def _build_query(self, words: Sequence[str], where: SearchFilter) -> Any:
        query, must, should = self._tantivy.Query, self._tantivy.Occur.Must, self._tantivy.Occur.Should
        terms = [(should, query.boost_query(query.term_query(self._schema, "words", word, "freq"), float(repeats))) for word, repeats in Counter(words).items()]
        filters = [(must, query.const_score_query(narrow, 0.0)) for narrow in self._build_filters(where)]
        return query.boolean_query([(must, query.boolean_query(terms)), *filters])

    def _build_filters(self, where: SearchFilter) -> Iterator[Any]:
        query = self._tantivy.Query
        if where.before is not None or where.after is not None:
            first = None if where.after is None else _number_time(where.after, fill="0")
            last = None if where.before is None else _number_time(where.before, fill="9")
            yield query.range_query(self._schema, "time", self._tantivy.FieldType.Unsigned, first, last)
        for field, names in (("kind", where.kinds), ("session", where.session_ids)):
            if names is not None:
                yield query.term_set_query(self._schema, field, list(names))


def write_tantivy(path: Path, source: PassageSource, base: TantivyWords | None) -> int:
    """Write the passages of `source` to an empty directory; those of `base`, which it begins with, are taken over as they are.

    Returns:
        The number of words of all passages.
    """
    import tantivy

    path.mkdir(parents=True)
    if base is not None:
        _link_files(base.path, path)
        index = tantivy.Index.open(str(path))
    else:
        index = tantivy.Index(_build_schema(tantivy), path=str(path))
    schema, num_words, start = index.schema, base.num_words if base else 0, len(base) if base else 0
    writer = index.writer(heap_size=_HEAP_BYTES, num_threads=1)
    for first in range(start, len(source), _BATCH):
        for position, text in enumerate(source.texts(first, min(first + _BATCH, len(source))), start=first):
            words = tokenize_words(text)
            num_words += len(words)
            writer.add_document(tantivy.Document.from_dict(_build_fields(source, position, words), schema))
    writer.commit()
    writer.wait_merging_threads()
    for lock in path.glob(f".*{_LOCKS}"):
        lock.unlink()
    return num_words


def _build_schema(tantivy: Any) -> Any:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("words", tokenizer_name="whitespace", index_option="freq")
    builder.add_text_field("kind", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("session", tokenizer_name="raw", index_option="basic")
    builder.add_unsigned_field("position", fast=True)
    builder.add_unsigned_field("time", indexed=True, fast=True)
    return builder.build()


def _build_fields(source: PassageSource, position: int, words: Sequence[str]) -> dict[str, Any]:
    return {
        "words": " ".join(words),
        "kind": source.kind_names[source.kinds[position]],
        "session": source.session_names[source.sessions[position]],
        "position": position,
        "time": _number_time(source.times[position].decode(), fill="0"),
    }


def _number_time(time: str, *, fill: str) -> int:
    """A time's digits as one number of fourteen digits, which orders as the text does; shorter times are filled up."""
    return int("".join(sign for sign in time if sign.isdigit())[:14].ljust(14, fill))


def _link_files(old: Path, new: Path) -> None:
    """The same files under another directory; tantivy never changes one, it writes others in their place."""
    for file in old.iterdir():
        if not file.name.endswith(_LOCKS):
            try:
                os.link(file, new / file.name)
            except OSError:  # another file system, or one without links
                shutil.copyfile(file, new / file.name)


class _LinkedCopy:
    """A directory of our own that points to the files of one that cannot be written; gone with this object."""

    def __init__(self, path: Path) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="napmem-words-", ignore_cleanup_errors=True)
        self.path = Path(self._directory.name)
        for file in path.resolve().iterdir():
            (self.path / file.name).symlink_to(file)
