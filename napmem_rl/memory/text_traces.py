"""Does a text quote what was forgotten? Compared are words in a row, whatever their case, spacing and punctuation, also escaped.

Looked for are runs of QUOTED_WORDS words, and shorter texts as a whole. What the bank still says elsewhere is no trace. Texts of fewer than MIN_CHARS letters
("Yes.") are not looked for: they are everywhere. A paraphrase is not found.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

QUOTED_WORDS = 5
MIN_CHARS = 8
_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"  # written without spaces: a sign is a word
_WORD = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")
_ESCAPED = re.compile(r"\\+u([0-9a-fA-F]{4})")
_CONTROL = re.compile(r"\\+[nrtbf\"/]")


class Traces:
    """What was forgotten, as runs of words. `num_short` counts the texts that are too short to be looked for."""

    def __init__(self, texts: Iterable[str], *, kept: Iterable[str] = ()) -> None:
        """Args:
        texts: what goes.
        kept: what stays; a run of words that it holds is no trace.
        """
        self.num_short = 0
        self._runs: set[tuple[str, ...]] = set()
        for text in texts:
            words = split_words(text)
            if len("".join(words)) < MIN_CHARS:
                self.num_short += bool(words)
            else:
                self._runs.update(_list_runs(words, min(len(words), QUOTED_WORDS)))
        self._measure()
        for text in kept:
            self._runs.difference_update(self._find(text))
        self._measure()

    def __bool__(self) -> bool:
        return bool(self._runs)

    def are_in(self, text: str) -> bool:
        """Whether a text quotes any of it."""
        return next(self._find(text), None) is not None

    def find_lines(self, lines: Sequence[str]) -> set[int]:
        """Positions of the lines that hold a word of a quotation, which may run over the ends of lines."""
        words = [(word, position) for position, line in enumerate(lines) for word in split_words(line)]
        found: set[int] = set()
        for start, (word, _) in enumerate(words):
            if word in self._first:
                runs = (words[start : start + size] for size in self._sizes)
                found.update(position for run in runs if tuple(one for one, _ in run) in self._runs for _, position in run)
        return found

    def _measure(self) -> None:
        self._sizes = sorted({len(run) for run in self._runs})
        self._first = {run[0] for run in self._runs}

    def _find(self, text: str) -> Iterator[tuple[str, ...]]:
        words = split_words(text)
        for start, word in enumerate(words):
            if word in self._first:
                yield from (run for size in self._sizes if (run := tuple(words[start : start + size])) in self._runs)


def split_words(text: str) -> list[str]:
    """The words of a text, small; JSON's escapes are undone, also where they were escaped again."""
    if "\\" in text:
        text = _CONTROL.sub(" ", _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text))
    return _WORD.findall(fold_text(text))


def fold_text(text: str) -> str:
    """A text in small letters, and each letter in the one form that Unicode has for it: a phone may write "é" as one sign, a Mac as two."""
    return unicodedata.normalize("NFKC", text.casefold())


def _list_runs(words: Sequence[str], size: int) -> Iterator[tuple[str, ...]]:
    return (tuple(words[start : start + size]) for start in range(len(words) - size + 1))
