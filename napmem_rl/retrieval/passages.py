"""What a search index is built over: passages that only ever grow in number, with the columns that searches filter by."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchFilter:
    """Which passages take part in a search; what is left out is left out before ranking. Times are ISO 8601 texts, ends included."""

    before: str | None = None  # at or before
    after: str | None = None  # at or after
    kinds: tuple[str, ...] | None = None  # record types, or roles of messages
    session_ids: tuple[str, ...] | None = None
    without: tuple[int, ...] = ()  # positions


class PassageSource(Protocol):
    """Passages by position, [n]; position i is the same passage in every later version, but may no longer be live there.

    Columns are arrays over all positions; codes index the lists of names.
    """

    times: np.ndarray  # [n] of dtype S19, ISO 8601
    kinds: np.ndarray  # [n] int16 codes into kind_names
    kind_names: Sequence[str]
    sessions: np.ndarray  # [n] int32 codes into session_names
    session_names: Sequence[str]
    speakers: np.ndarray  # [n] int16 codes into speaker_names; -1 where a passage has no speaker
    speaker_names: Sequence[str]
    live: np.ndarray  # [n] bool; False for a record revision that a later one replaced

    def __len__(self) -> int:
        """Number of passages."""
        ...

    def texts(self, start: int, stop: int) -> list[str]:
        """The passages [start, stop) as they are indexed, e.g. "[2024-03-05] Ana: We moved to Oslo."."""
        ...

    def prefix_key(self, stop: int) -> str | None:
        """Hex digest of the first `stop` passages' content, or None where `stop` is not the end of a commit; what a stored segment is named by."""
        ...


class PassageList:
    """Passages that are held in lists: a `PassageSource` for benchmarks and tests."""

    def __init__(
        self,
        texts: Sequence[str],
        times: Sequence[str],
        *,
        kinds: Sequence[str] = (),
        sessions: Sequence[str] = (),
        speakers: Sequence[str | None] = (),
        live: Sequence[bool] = (),
        ends: Sequence[int] | None = None,
    ) -> None:
        """Args:
        texts, times: [n].
        kinds, sessions, speakers, live: [n] names and flags; left out, all passages are of one kind and session, by nobody, and live.
        ends: numbers of passages at which a commit ends; None for all numbers.
        """
        self._texts = list(texts)
        self._ends = None if ends is None else frozenset(ends)
        num = len(self._texts)
        self.times = np.array([time.encode() for time in times], dtype="S19")
        self.kinds, self.kind_names = _code_names(kinds or ["passage"] * num, np.int16)
        self.sessions, self.session_names = _code_names(sessions or ["s1"] * num, np.int32)
        self.speakers, self.speaker_names = _code_names(speakers or [None] * num, np.int16)
        self.live = np.array(live, dtype=bool) if len(live) else np.ones(num, dtype=bool)

    def __len__(self) -> int:
        return len(self._texts)

    def texts(self, start: int, stop: int) -> list[str]:
        """See `PassageSource`."""
        return self._texts[start:stop]

    def prefix_key(self, stop: int) -> str | None:
        """See `PassageSource`; of the texts."""
        if stop > len(self._texts) or (self._ends is not None and stop not in self._ends):
            return None
        return hashlib.sha256("\0".join(self._texts[:stop]).encode()).hexdigest()


def _code_names(names: Sequence[str | None], dtype: type[np.generic]) -> tuple[np.ndarray, list[str]]:
    """Codes in order of appearance, -1 for None, and the names they stand for."""
    known = list(dict.fromkeys(name for name in names if name is not None))
    codes: dict[str | None, int] = {name: code for code, name in enumerate(known)} | {None: -1}
    return np.array([codes[name] for name in names], dtype=dtype), known
