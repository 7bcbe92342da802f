"""What a query says beside its words: who spoke, and when."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date

import numpy as np

from napmem_rl.retrieval.bm25 import tokenize_words
from napmem_rl.retrieval.dates import find_intervals

_WORD = re.compile(r"\w+")
_FIRST_PERSON = re.compile(r"\b(?:[Ii](?!\.)|[Mm]e|[Mm]y|[Mm]ine)\b")
_DAYS_NEAR = 7.0  # a date's weight falls to 1/e this many days off: what is told is mostly about the days before
_MAX_YEARS = 30  # of a bank, for months without a year
# They ask, and say nothing of what is asked for; Lucene's stop words, which never count, are not repeated here
_ASKING = frozenset(
    "what when where who whom whose which why how do does did done has have had having would could should can am me my i you your we our us them her his him "
    "she he its were been being about any some tell know".split()
)


def tokenize_query(query: str) -> list[str]:
    """A query's words without those that only ask; all of them where nothing else is left. See `tokenize_words`.

    Example: ``tokenize_query("What did Ana say about her job?")`` gives ``["ana", "say", "job"]``.
    """
    kept = " ".join(word for word in _WORD.findall(query) if word.lower() not in _ASKING)
    return tokenize_words(kept) or tokenize_words(query)


def find_speakers(query: str, names: Sequence[str]) -> np.ndarray:
    """[names] bool, True for the speakers that a query names, by the whole name or by the first word of it; all False where it names every one or none."""
    words = [word.lower() for word in _WORD.findall(query)]
    held = set(words)
    parts = [[word.lower() for word in _WORD.findall(name)] for name in names]
    named = np.array([bool(part) and (part[0] in held) for part in parts], dtype=bool)
    return named & (not named.all())


def is_first_person(query: str) -> bool:
    """True where the user asks about themselves: I, me, my or mine."""
    return _FIRST_PERSON.search(query) is not None


def names_date(query: str) -> bool:
    """True where a query speaks of a date; cheap, whatever the number of passages."""
    return bool(find_intervals(query, today=date(2000, 1, 1), years=range(2000, 2001)))  # a leap year, which has every day


def score_days(query: str, days: np.ndarray, today: np.datetime64) -> np.ndarray | None:
    """How near each day lies to a date in the query, [n] float32 in [0, 1], 1 inside it; None where the query names no date.

    Args:
        query: free text.
        days: [n] datetime64[D].
        today: what "yesterday" counts from.
    """
    if not len(days):
        return None
    first, last = int(days.min().astype("datetime64[Y]").astype(int)) + 1970, int(days.max().astype("datetime64[Y]").astype(int)) + 1970
    intervals = find_intervals(query, today=today.astype(date), years=range(max(first, last - _MAX_YEARS), last + 1))
    if not intervals:
        return None
    distance = np.full(len(days), np.inf, dtype=np.float32)
    for start, end in intervals:
        off = np.maximum(np.datetime64(start) - days, days - np.datetime64(end)).astype(np.int64)  # days outside; 0 or less inside
        distance = np.minimum(distance, np.maximum(off, 0))
    return np.exp(-distance / _DAYS_NEAR, dtype=np.float32)
