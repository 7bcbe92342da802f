"""Before and after: what a run's table and its summary.json hold, made of the facts of `metrics` alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from napmem_rl.evals.metrics import CATEGORY, Facts, Metric, aggregate, aggregate_by_category, bootstrap_interval, group_by_user, paired_gain
from napmem_rl.schema import ScoredTrajectory

MODES = ("sampled", "greedy")
_COLUMNS = (  # metric, header, decimals
    (Metric.REWARD, "reward", 2),
    (Metric.CORRECTNESS, "correct", 2),
    (Metric.APPROPRIATE_USE, "use ok", 2),
    (Metric.CALLS_PER_QUESTION, "calls", 2),
    (Metric.MULTI_LEVEL_RATE, "multi-level", 2),
    (Metric.EVIDENCE_HITS_PER_100_USES, "hits/100", 0),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class BeforeAfter:
    """One decoding mode: facts of the same tasks before and after training."""

    mode: str  # one of MODES
    before: Sequence[Facts]
    after: Sequence[Facts]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """A row to compare with, on the same tasks: a name, a decoding mode and facts."""

    name: str
    mode: str
    facts: Sequence[Facts]


def summarise_gain(before: Sequence[Facts], after: Sequence[Facts]) -> dict[str, float | None]:
    """Mean reward before and after, and the paired gain with its 95% interval over users."""
    gain = paired_gain(before, after, Metric.REWARD)
    values: dict[str, float | None] = {"before": aggregate(before)[Metric.REWARD], "after": aggregate(after)[Metric.REWARD], "gain": gain.mean}
    return _rounded(values | {"gain_low": gain.low, "gain_high": gain.high})


def build_summary(pairs: Sequence[BeforeAfter], references: Sequence[Reference], *, control: str) -> dict[str, Any]:
    """The part of summary.json that evaluation knows.

    Args:
        control: the category whose questions need no memory; `needs_memory` leaves it out.
    """
    summary: dict[str, Any] = {"needs_memory": {}, "correctness": {}, "metrics": {}, "by_type": {}}
    for pair in pairs:
        summary[pair.mode] = summarise_gain(pair.before, pair.after)
        kept = [[row for row in side if row[CATEGORY] != control] for side in (pair.before, pair.after)]
        summary["needs_memory"][pair.mode] = summarise_gain(*kept)
        sides = {"before": aggregate(pair.before), "after": aggregate(pair.after)}
        summary["correctness"][pair.mode] = _rounded({name: side.get(Metric.CORRECTNESS) for name, side in sides.items()})
        summary["metrics"][pair.mode] = {name: _rounded(side) for name, side in sides.items()}
        summary["by_type"][pair.mode] = _by_type(pair)
    summary["references"] = [_summarise_reference(reference) for reference in references]
    return summary


def _by_type(pair: BeforeAfter) -> dict[str, Any]:
    before, after = aggregate_by_category(pair.before), aggregate_by_category(pair.after)
    return {kind: {"before": _rounded(before[kind]), "after": _rounded(after[kind])} for kind in before}


def _summarise_reference(reference: Reference) -> dict[str, Any]:
    interval = bootstrap_interval(group_by_user(reference.facts, Metric.REWARD))
    reward = _rounded({"mean": interval.mean, "low": interval.low, "high": interval.high})
    return {"name": reference.name, "mode": reference.mode, "reward": reward, "metrics": _rounded(aggregate(reference.facts))}


def _rounded(values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {str(name): None if value is None else round(value, 4) for name, value in values.items()}


def render_table(pairs: Sequence[BeforeAfter], references: Sequence[Reference], *, judge: str) -> str:
    """The table for people: for each question type one line a decoding mode, then all types together with intervals, then the reference rows."""
    widths = (14, 10, *(13 for _ in _COLUMNS))
    lines = [f"before → after; judge: {judge}", _render_line(("question type", "decoding", *(header for _, header, _ in _COLUMNS)), widths)]
    kinds = sorted({row[CATEGORY] for pair in pairs for row in pair.before})
    for kind in [*kinds, None]:
        for pair in pairs:
            sides = [aggregate([row for row in side if kind in (None, row[CATEGORY])]) for side in (pair.before, pair.after)]
            cells = (_render_change(*sides, metric, decimals) for metric, _, decimals in _COLUMNS)
            lines.append(_render_line((kind or "all", pair.mode, *cells), widths))
    lines += [_render_intervals(pair) for pair in pairs]
    lines.append("for reference, on the same questions:")
    for reference in references:
        means = aggregate(reference.facts)
        cells = (_render_value(means, metric, decimals) for metric, _, decimals in _COLUMNS)
        lines += [f"  {reference.name}", _render_line(("", reference.mode, *cells), widths)]
    return "\n".join(lines)


def _render_intervals(pair: BeforeAfter) -> str:
    texts = []
    for name, facts in (("before", pair.before), ("after", pair.after)):
        interval = bootstrap_interval(group_by_user(facts, Metric.REWARD))
        texts.append(f"{name} {interval.mean:+.2f} [{_signed(interval.low)}, {_signed(interval.high)}]")
    gain = paired_gain(pair.before, pair.after, Metric.REWARD)
    return f"{pair.mode} reward {', '.join(texts)}, gain {gain.mean:+.2f} [{_signed(gain.low)}, {_signed(gain.high)}] (95% over {gain.num_users} users)"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}"


def _render_value(means: Mapping[str, float], metric: str, decimals: int) -> str:
    return f"{means[metric]:.{decimals}f}" if metric in means else "–"


def _render_change(before: Mapping[str, float], after: Mapping[str, float], metric: str, decimals: int) -> str:
    return f"{_render_value(before, metric, decimals)}→{_render_value(after, metric, decimals)}"


def _render_line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "".join(cell.ljust(width) if i < 2 else cell.rjust(width) for i, (cell, width) in enumerate(zip(cells, widths, strict=True)))


def render_transcript(scored: ScoredTrajectory) -> str:
    """One episode for people: question, each turn, each result, answer, reward."""
    trajectory = scored.trajectory
    lines = [f"question: {trajectory.task.question}"]
    for turn in trajectory.turns:
        lines.append("policy:   " + " ".join(turn.text.split()))
        lines += [f"  result: {line}" for result in turn.tool_results for line in result.text.splitlines()]
    reward = "abstained" if scored.reward is None else f"{scored.reward:+.1f}"
    lines.append(f"reward:   {reward} ({trajectory.status}{': ' + trajectory.detail if trajectory.detail else ''})")
    return "\n".join(lines)
