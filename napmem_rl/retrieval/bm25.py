"""Words as keyword search knows them: lower-cased, stemmed (PyStemmer), without stop words (bm25s)."""

from __future__ import annotations

import re
import threading
from functools import lru_cache

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
