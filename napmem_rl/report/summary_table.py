"""The quickstart's summary.json as a table for the page: before and after by question type and decoding, then what to compare with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from napmem_rl.evals.metrics import Metric
from napmem_rl.evals.report import MODES

_COLUMNS = (
    (Metric.REWARD, "reward", 2),
    (Metric.CORRECTNESS, "correct", 2),
    (Metric.APPROPRIATE_USE, "appropriate use", 2),
    (Metric.CALLS_PER_QUESTION, "calls", 2),
    (Metric.EVIDENCE_HITS_PER_100_USES, "hits per 100 calls", 0),
)


def build_summary_table(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """Columns, rows and sentences; None where the summary is not one of a quickstart.

    A cell is a list of texts: before and after, or one value.
    """
    by_type = summary.get("by_type")
    if not isinstance(by_type, Mapping) or not all(isinstance(by_type.get(mode), Mapping) for mode in MODES):
        return None
    rows = []
    for kind in sorted(by_type[MODES[0]]):
        rows += [{"name": kind, "mode": mode, "strong": False, "cells": _pair_cells(by_type[mode].get(kind, {}))} for mode in MODES]
    rows += [{"name": "all", "mode": mode, "strong": True, "cells": _pair_cells(summary.get("metrics", {}).get(mode, {}))} for mode in MODES]
    for reference in summary.get("references", []):
        cells = [[_text(reference.get("metrics", {}), metric, digits)] for metric, _, digits in _COLUMNS]
        rows.append({"name": f"for reference: {reference.get('name')}", "mode": reference.get("mode", ""), "strong": False, "cells": cells})
    return {"columns": [name for _, name, _ in _COLUMNS], "rows": rows, "about": list(_sentences(summary))}


def _sentences(summary: Mapping[str, Any]) -> list[str]:
    lines = []
    for mode in MODES:
        gain = summary.get(mode, {})
        if all(isinstance(gain.get(name), int | float) for name in ("before", "after", "gain")):
            low, high = gain.get("gain_low"), gain.get("gain_high")
            interval = f" [{low:+.2f}, {high:+.2f}] (95% over users)" if low is not None and high is not None else ""
            lines.append(f"{mode}: reward {gain['before']:+.2f} → {gain['after']:+.2f}, gain {gain['gain']:+.2f}{interval}; judge: {summary.get('judge')}")
    seconds = summary.get("seconds")
    if isinstance(seconds, Mapping):
        phases = ", ".join(f"{name} {value:.0f} s" for name, value in seconds.items() if isinstance(value, int | float))
        lines.append(f"seconds by phase: {phases}")
    return lines


def _pair_cells(pair: Mapping[str, Any]) -> list[list[str]]:
    return [[_text(pair.get(side, {}), metric, digits) for side in ("before", "after")] for metric, _, digits in _COLUMNS]


def _text(values: Mapping[str, Any], metric: str, digits: int) -> str:
    value = values.get(str(metric))
    return f"{value:.{digits}f}".replace("-", "−") if isinstance(value, int | float) else "–"
