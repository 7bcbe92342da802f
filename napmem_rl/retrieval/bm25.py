"""Keyword search: BM25 over stemmed English words without stop words (bm25s, PyStemmer)."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

_WORD = re.compile(r"\w\w+")
_THREAD = threading.local()  # a PyStemmer object must not be shared between threads


@lru_cache(maxsize=1)
def _load_stop_words() -> frozenset[str]:
    """The 33 English stop words of Lucene, as bm25s ships them."""
    from bm25s.stopwords import STOPWORDS_EN

    return frozenset(STOPWORDS_EN)


def _stem(words: list[str]) -> list[str]:
    stemmer = getattr(_THREAD, "stemmer", None)
    if stemmer is None:
        import Stemmer

        stemmer = _THREAD.stemmer = Stemmer.Stemmer("english")
    return stemmer.stemWords(words)


def tokenize_words(text: str) -> list[str]:
    """Lower-cased, stemmed words of two characters or more, stop words left out.

    Example: ``tokenize_words("The nurses of Oslo")`` gives ``["nurs", "oslo"]``.
    """
    stop_words = _load_stop_words()
    return _stem([word for word in _WORD.findall(text.lower()) if word not in stop_words])


class BM25Index:
    """BM25 (Lucene's variant, k1 = 1.5, b = 0.75) over a fixed list of passages.

    Word statistics are those of all passages, also when a search is limited to the first of them.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        import bm25s

        logging.getLogger("bm25s").setLevel(logging.WARNING)  # the library sets itself to DEBUG on import
        passages = [tokenize_words(text) for text in texts]
        self._index = None
        if any(passages):
            self._index = bm25s.BM25()
            self._index.index(passages, show_progress=False)

    def rank(self, query: str, *, limit: int, depth: int) -> list[int]:
        """Positions of the passages that share a word with the query, best first.

        Args:
            query: free text.
            limit: only positions below it are eligible; they are filtered before ranking.
            depth: how many to return at most.

        Returns:
            At most ``depth`` positions; equal scores put the later position first. A score of 0 is no hit.
        """
        words = tokenize_words(query)
        if self._index is None or not words or limit <= 0:
            return []
        scores = self._index.get_scores(words)[:limit]  # [limit]
        hits = np.flatnonzero(scores > 0)
        order = np.lexsort((-hits, -scores[hits]))[:depth]
        return hits[order].tolist()
