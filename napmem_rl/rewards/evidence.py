"""Whether a statement rests on the memories it cites, by words alone: no model, the same on every machine.

Words are stemmed, stop words left out; numbers count, one-digit ones too. What words cannot see: a negation, two facts mixed up, a paraphrase without a shared
word, a date or duration that was worked out. A statement of the right words in the wrong order therefore passes, and a derived number costs its share.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from napmem_rl.retrieval.bm25 import tokenize_words

_DIGIT = re.compile(r"(?<![\w.,])\d(?![\w]|[.,]\d)")
_ORDINAL = re.compile(r"\b(\d+)(?:st|nd|rd|th)\b")


def compute_support(statement: str, sources: Sequence[str]) -> float:
    """Share of the distinct content words of a statement that occur in one of its sources, in [0, 1]; 0 for a statement without content words.

    Example: ``compute_support("Ana moved to Oslo in 2020.", ["Ana: I moved to Oslo."])`` is 3/4: ana, moved and oslo of ana, moved, oslo and 2020.
    """
    words = find_content_words(statement)
    if not words:
        return 0.0
    known = frozenset().union(*(find_content_words(source) for source in sources))
    return len(words & known) / len(words)


def find_content_words(text: str) -> frozenset[str]:
    """Stemmed words and numbers of a text; "3rd" is 3."""
    plain = _ORDINAL.sub(r"\1", text)
    return frozenset(tokenize_words(plain)) | frozenset(_DIGIT.findall(plain))


def render_source(text: str, *, time: str = "", speaker: str = "") -> str:
    """A memory as a source of statements: its text, who said it, and its day in the ways in which people write one.

    Example: ``render_source("We moved.", time="2024-03-05T13:56:00", speaker="Ana")`` gives ``"2024-03-05 Tuesday 5 March 2024 Ana: We moved."``.
    """
    return " ".join(part for part in (_spell_day(time), f"{speaker}:" if speaker else "", text) if part)


def _spell_day(time: str) -> str:
    try:
        day = datetime.fromisoformat(time)
    except ValueError:
        return time
    return f"{time[:10]} {day:%A} {day.day} {day:%B} {day.year}"
