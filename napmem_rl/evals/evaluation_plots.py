"""Plots of an evaluation's page as plain SVG and HTML: no script draws them, and every number in them also stands as text."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 360, 260  # of a scatter plot; as wide as a phone, so that its letters keep their size there
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 12, 14, 36
_MAX_NAME = 24


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One mark of a scatter plot; `low` and `high` are the ends of the interval of `y`, None where there is none."""

    name: str
    x: float
    y: float
    low: float | None = None
    high: float | None = None
    is_whole: bool = False  # stands for all the others


def render_bars(rows: Sequence[tuple[str, Mapping[str, Any] | None]], *, caption: str, is_apart: bool = False) -> str:
    """A table with one bar a row: name, bar with its interval, the figures as text, and n.

    Args:
        rows: (name, interval as of `metrics.Interval`); None where there is no value.
        caption: what is shown.
        is_apart: in the second colour.
    """
    known = [interval for _, interval in rows if interval]
    top = max([1.0, *(interval["high"] if interval["high"] is not None else interval["mean"] for interval in known)])
    body = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th><td class="bar">{_bar(interval, top)}</td><td>{_figures(interval)}</td>'
        f"<td>{interval['num_values'] if interval else 0}</td></tr>"
        for name, interval in rows
    )
    head = '<tr><th scope="col"></th><th scope="col"></th><th scope="col">mean [95%]</th><th scope="col">n</th></tr>'
    kind = "plain bars bar-apart" if is_apart else "plain bars"
    return region(f'<table class="{kind}"><caption>{html.escape(caption)}</caption><thead>{head}</thead><tbody>{body}</tbody></table>', caption)


def render_shares(rows: Sequence[tuple[str, float]], *, caption: str, unit: str) -> str:
    """A table with one bar a row, for values without intervals."""
    top = max([1e-9, *(value for _, value in rows)])
    body = "".join(
        f'<tr><th scope="row">{html.escape(name)}</th><td class="bar">{_bar({"mean": value, "low": None, "high": None}, top)}</td><td>{value:.3g}</td></tr>'
        for name, value in rows
    )
    head = f'<tr><th scope="col"></th><th scope="col"></th><th scope="col">{html.escape(unit)}</th></tr>'
    return region(f'<table class="plain bars"><caption>{html.escape(caption)}</caption><thead>{head}</thead><tbody>{body}</tbody></table>', caption)


def render_scatter(points: Sequence[Point], *, title: str, x_name: str, y_name: str) -> str:
    """Cost to the right, score upwards, one mark a category and one for all; "" where there is nothing to show."""
    shown = [point for point in points if math.isfinite(point.x) and math.isfinite(point.y)]
    if not shown:
        return ""
    right = max(point.x for point in shown) * 1.08 or 1.0
    top = max([1.0, *(point.high or point.y for point in shown)])
    marks = "".join(_mark(point, right, top) for point in sorted(shown, key=lambda point: point.is_whole))
    said = "; ".join(f"{point.name}: {point.x:.4g}, {point.y:.3g}" for point in shown)
    axes = _axes(right, top, x_name, y_name)
    label = html.escape(f"{title}. {x_name}, {y_name}: {said}", quote=True)
    picture = f'<svg class="scatter" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{axes}{marks}</svg>'
    return f'<figure class="card"><figcaption><h3>{html.escape(title)}</h3></figcaption>{picture}</figure>'


def region(table: str, name: str) -> str:
    """A table that scrolls within itself and can be reached by the keyboard."""
    return f'<div class="scroll whole" role="region" tabindex="0" aria-label="{html.escape(name, quote=True)}">{table}</div>'


def _bar(interval: Mapping[str, Any] | None, top: float) -> str:
    if interval is None:
        return ""
    width = max(0.0, 100 * interval["mean"] / top)
    whisker = ""
    if interval["low"] is not None:
        low, high = (f"{100 * interval[end] / top:.2f}" for end in ("low", "high"))
        whisker = f'<line class="bar-whisker" x1="{low}" x2="{high}" y1="5" y2="5"/>'
    ground = '<rect class="bar-ground" x="0" y="0" width="100" height="10"/>'
    value = f'<rect class="bar-value" x="0" y="1" width="{width:.2f}" height="8"/>'
    return f'<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{ground}{value}{whisker}</svg>'


def _figures(interval: Mapping[str, Any] | None) -> str:
    if interval is None:
        return "–"
    if interval["low"] is None:
        return f"{interval['mean']:.3f} [one group]"
    return f"{interval['mean']:.3f} [{interval['low']:.3f}, {interval['high']:.3f}]"


def _place(x: float, y: float, right: float, top: float) -> tuple[float, float]:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * x / right, HEIGHT - _BOTTOM - (HEIGHT - _BOTTOM - _TOP) * y / top


def _mark(point: Point, right: float, top: float) -> str:
    x, y = _place(point.x, point.y, right, top)
    whisker = ""
    if point.low is not None and point.high is not None:
        low, high = _place(point.x, point.low, right, top)[1], _place(point.x, point.high, right, top)[1]
        whisker = f'<line class="whisker" x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'
    is_right = x > WIDTH * 0.6
    anchor, shift = ("end", -7) if is_right else ("start", 7)
    name = point.name if len(point.name) <= _MAX_NAME else f"{point.name[: _MAX_NAME - 1]}…"
    text = f'<text class="name" x="{x + shift:.1f}" y="{y + 4:.1f}" text-anchor="{anchor}">{html.escape(name)}</text>'
    circle = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{5 if point.is_whole else 3.5}"/>'
    return f'<g class="{"all" if point.is_whole else "one"}">{whisker}{circle}{text}</g>'


def _axes(right: float, top: float, x_name: str, y_name: str) -> str:
    lines = []
    for step in range(5):
        value = top * step / 4
        _, y = _place(0, value, right, top)
        lines.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text x="{_LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{value:.2g}</text>')
        x, _ = _place(right * step / 4, 0, right, top)
        anchor = "end" if step == 4 else "middle" if step else "start"
        lines.append(f'<text x="{x:.1f}" y="{HEIGHT - _BOTTOM + 14}" text-anchor="{anchor}">{_short(right * step / 4)}</text>')
    lines.append(f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 6}" text-anchor="end">{html.escape(x_name)} →</text>')
    lines.append(f'<text x="{_LEFT}" y="{_TOP - 4}">{html.escape(y_name)}</text>')
    return "".join(lines)


def _short(value: float) -> str:
    return f"{value / 1000:.3g}k" if value >= 1000 else f"{value:.3g}"
