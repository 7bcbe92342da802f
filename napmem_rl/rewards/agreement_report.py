"""Agreement of raters, and of a judge with them, from a file of labels.

The file is JSON lines, or one JSON list, of rows::

    {"id": "q1", "labels": {"ana": true, "ben": false, "cem": true}, "judge": true}

`labels` may be a list too, one label a rater in the same order in every row; a label is true or false, 1 or 0, "correct" or "incorrect", or null where a
rater did not say. `judge` may be absent or null. Other fields are passed over.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from napmem_rl.errors import DataError
from napmem_rl.rewards.agreement import Agreement, Statistic, cohen_kappa, compare_labels, fleiss_kappa

_MEANINGS = {"correct": True, "incorrect": False}
_NAMES = {"accuracy": "accuracy", "precision": "precision", "recall": "recall", "f1": "F1", "kappa": "Cohen's kappa"}


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelRow:
    """One labelled item. Raters who did not say are left out of `labels`."""

    labels: dict[str, bool]  # rater -> label
    judge: bool | None


@dataclass(frozen=True, kw_only=True, slots=True)
class AgreementReport:
    """What a file of labels says. `judge` compares with the majority; items on which raters are split evenly are in `num_ties` and nowhere else there."""

    num_rows: int
    raters: tuple[str, ...]
    pairs: dict[str, Statistic]  # "ana, ben" -> Cohen's kappa over the items that both labelled
    fleiss: Statistic | None  # over the items that all raters labelled; None for fewer than three raters
    judge: Agreement | None  # None where the file holds no verdict of a judge
    num_ties: int

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def load_labels(path: Path) -> list[LabelRow]:
    """Read a file of labels.

    Raises:
        DataError: no such file, no rows, or a row that cannot be read; the message names it.
    """
    raws = _load_json(path)
    rows = [_read_row(raw, f"labels {path}, row {index} (counting from 1)") for index, raw in enumerate(raws, 1)]
    twice = [name for name, count in Counter(str(raw["id"]) for raw in raws if raw.get("id") is not None).items() if count > 1]
    if twice:
        raise DataError.of(f"labels {path}", f"item {twice[0]} stands twice", expected="one row an item, with the labels of all raters")
    if not any(row.labels for row in rows):
        raise DataError.of(f"labels {path}", "hold no label", expected='rows such as {"id": "q1", "labels": {"ana": true}, "judge": true}')
    return rows


def report_agreement(rows: Sequence[LabelRow]) -> AgreementReport:
    """All statistics of a file: raters in pairs, all raters, and the judge against their majority."""
    raters = tuple(sorted({name for row in rows for name in row.labels}))
    complete = [[row.labels[name] for name in raters] for row in rows if len(row.labels) == len(raters)]
    judged = [(row.judge, majority) for row in rows if row.judge is not None and (majority := find_majority(row)) is not None]
    return AgreementReport(
        num_rows=len(rows),
        raters=raters,
        pairs={f"{first}, {second}": _compare_pair(rows, first, second) for first, second in combinations(raters, 2)},
        fleiss=fleiss_kappa(complete) if len(raters) > 2 else None,
        judge=compare_labels([verdict for verdict, _ in judged], [label for _, label in judged]) if any(row.judge is not None for row in rows) else None,
        num_ties=sum(bool(row.labels) and find_majority(row) is None for row in rows),
    )


def find_majority(row: LabelRow) -> bool | None:
    """What more than half of the raters say; None where they are split evenly, or nobody said."""
    num_correct, num_raters = sum(row.labels.values()), len(row.labels)
    return None if 2 * num_correct == num_raters else 2 * num_correct > num_raters


def render_agreement(report: AgreementReport) -> str:
    """The report as lines for people."""
    return "\n".join(_render_lines(report))


def _render_lines(report: AgreementReport) -> Iterator[str]:
    yield f"{report.num_rows} items, {len(report.raters)} rater(s): {', '.join(report.raters)}"
    if report.judge is not None:
        ties = f"; {report.num_ties} item(s) on which raters are split evenly are left out" if report.num_ties else ""
        yield f"judge against {'the majority' if len(report.raters) > 1 else 'the labels'}{ties}"
        yield from (f"  {shown:13} {_show(getattr(report.judge, name))}" for name, shown in _NAMES.items())
        yield f"  wrong answers accepted: {report.judge.num_false_accepts}, right answers rejected: {report.judge.num_false_rejects}"
    if report.pairs:
        yield "Cohen's kappa of raters in pairs"
        yield from (f"  {names:12} {_show(kappa)}" for names, kappa in report.pairs.items())
    if report.fleiss is not None:
        yield f"Fleiss' kappa over all raters: {_show(report.fleiss)}"


def _show(statistic: Statistic) -> str:
    if statistic.value is None:
        return f"absent ({statistic.absent}; n={statistic.n})"
    return f"{statistic.value:.3f} (n={statistic.n})"


def _compare_pair(rows: Sequence[LabelRow], first: str, second: str) -> Statistic:
    both = [row.labels for row in rows if first in row.labels and second in row.labels]
    return cohen_kappa([labels[first] for labels in both], [labels[second] for labels in both])


def _load_json(path: Path) -> list[Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError.of(f"labels {path}", f"cannot be read ({error})") from error
    try:
        if text.lstrip().startswith("["):
            return json.loads(text)
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        return [_load_line(line, f"labels {path}, line {number}") for number, line in lines]
    except json.JSONDecodeError as error:
        raise DataError.of(f"labels {path}", f"is not JSON ({error})", expected="JSON lines, or one JSON list") from error


def _load_line(line: str, what: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError.of(what, f"is not JSON ({error})", got=line[:80], expected="one JSON object a line") from error


def _read_row(raw: Any, what: str) -> LabelRow:
    labels = raw.get("labels") if isinstance(raw, dict) else None
    if isinstance(labels, list):
        labels = {f"rater {index}": label for index, label in enumerate(labels, 1)}
    if not isinstance(labels, dict):
        raise DataError.of(what, "holds no labels", got=raw, expected='an object such as {"id": "q1", "labels": {"ana": true}, "judge": true}')
    read = {name: _read_label(label, f"{what}, label of {name}") for name, label in labels.items()}
    judge = _read_label(raw.get("judge"), f"{what}, judge")
    return LabelRow(labels={name: label for name, label in read.items() if label is not None}, judge=judge)


def _read_label(value: Any, what: str) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    if isinstance(value, str) and value in _MEANINGS:
        return _MEANINGS[value]
    raise DataError.of(what, "is no label", got=value, expected='true or false, 1 or 0, "correct" or "incorrect", or null')
