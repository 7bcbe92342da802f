"""What a search index is built over: passages that only ever grow in number, with the columns that searches filter by."""

from __future__ import annotations

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
