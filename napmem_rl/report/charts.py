"""One chart of a page: a name, words for people, curves by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

LINE, STACK = "line", "stack"


@dataclass(kw_only=True, slots=True)
class Chart:
    """One chart. `series` holds (label, values by step); `lines` are horizontal marks (label, value)."""

    name: str
    title: str
    about: str  # one sentence for people
    kind: str = LINE
    unit: str = ""
    is_log: bool = False
    low: float | None = None  # ends of the value axis that are always shown
    high: float | None = None
    series: list[tuple[str, list[float | None]]] = field(default_factory=list)
    lines: list[tuple[str, float]] = field(default_factory=list)
    from_episodes: bool = False  # counted from trajectories, because no metrics were logged

    def add(self, label: str, values: Sequence[float | None]) -> None:
        """Add a curve, unless it has no value at all."""
        if any(value is not None for value in values):
            self.series.append((label, list(values)))
