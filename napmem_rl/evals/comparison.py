"""Two evaluations side by side, question by question: what differs, how sure that is, and what only one of them holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from napmem_rl.errors import DataError
from napmem_rl.evals.evaluation_settings import DECIDES_ANSWERS, find_changes, load_settings
from napmem_rl.evals.result_rows import SCORES, ScoreRow
from napmem_rl.evals.scored_evaluation import load_scores
from napmem_rl.evals.statistics import PairedComparison, compare_scores
from napmem_rl.evals.summary import sort_metrics
from napmem_rl.schema import AnswerKind

ALL, UNANSWERABLE = "all", "unanswerable"


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedRow:
    """One metric over the shared questions of one benchmark: all answerable ones, one category of them, or the unanswerable ones."""

    benchmark: str
    questions: str  # ALL, UNANSWERABLE or a category
    comparison: PairedComparison


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """B against A. `notes` says what is not shared or was not measured the same way."""

    a: str
    b: str
    rows: tuple[ComparedRow, ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def compare_evaluations(dir_a: Path, dir_b: Path, *, metrics: Sequence[str] = (), seed: int = 0) -> Comparison:
    """Compare two evaluation directories on the benchmarks that both hold, by name, or by what was asked where the names differ.

    Args:
        dir_a, dir_b: what launch/evaluate.py has written.
        metrics: only these; empty for all that both sides have.
        seed: of the bootstrap.

    Raises:
        DataError: no evaluation, no benchmark in common, no question in common, or questions of other data under one name.
    """
    settings = [load_settings(directory) for directory in (dir_a, dir_b)]
    benchmarks = [one[DECIDES_ANSWERS]["benchmarks"] for one in settings]
    shared = _match_benchmarks(*benchmarks)
    if not shared:
        raise DataError.of("comparison", "the two evaluations share no benchmark", got=list(map(list, benchmarks)), fix="Give both evaluations the same --on.")
    notes = [f"{name} of A is {other} of B: the data are the same" for name, other in shared.items() if name != other]
    for side, own, matched in (("A", benchmarks[0], shared.keys()), ("B", benchmarks[1], shared.values())):
        notes += [f"only {side} holds {name}" for name in own if name not in matched]
    rows: list[ComparedRow] = []
    known: set[str] = set()
    for name, other in shared.items():
        facts = [benchmarks[0][name], benchmarks[1][other]]
        if facts[0]["data_sha256"] != facts[1]["data_sha256"]:
            notes.append(f"{name}: the data differ; only questions with the same id are compared")
        elif changed := find_changes(facts[0], facts[1]):
            notes.append(f"{name}: {'; '.join(changed)}")
        sides = [load_scores(directory / own / SCORES) for directory, own in ((dir_a, name), (dir_b, other))]
        notes += [f"{name}: {note}" for note in _find_differences(*sides)]
        known |= _name_metrics(sides[0]) & _name_metrics(sides[1])
        rows += _compare_benchmark(name, *sides, metrics=metrics, seed=seed)
    missing = [metric for metric in metrics if metric not in known]
    if missing:
        raise DataError.of(f"metric {missing[0]}", "is on neither side, or not on both", expected=f"one of {', '.join(sort_metrics(known))}" if known else None)
    return Comparison(a=settings[0]["policy"]["name"], b=settings[1]["policy"]["name"], rows=tuple(rows), notes=tuple(notes))


def render_comparison(comparison: Comparison) -> str:
    """A table a benchmark, as text."""
    return "\n".join(_lines(comparison))


def _match_benchmarks(side_a: Mapping[str, Any], side_b: Mapping[str, Any]) -> dict[str, str]:
    """A's name -> B's name, in A's order."""
    found = {name: name for name in side_a if name in side_b}
    for name, facts in side_a.items():
        same = [other for other, its in side_b.items() if other not in found.values() and its["data_sha256"] == facts["data_sha256"]]
        if name not in found and same:
            found[name] = same[0]
    return {name: found[name] for name in side_a if name in found}


def _compare_benchmark(name: str, rows_a: Sequence[ScoreRow], rows_b: Sequence[ScoreRow], *, metrics: Sequence[str], seed: int) -> list[ComparedRow]:
    found = []
    for questions, part_a, part_b in _divide(rows_a, rows_b):
        both = _name_metrics(part_a) & _name_metrics(part_b)
        for metric in sort_metrics(both if not metrics else both & set(metrics)):
            comparison = compare_scores(part_a, part_b, metric, seed=seed)
            if comparison is not None:
                found.append(ComparedRow(benchmark=name, questions=questions, comparison=comparison))
    return found


def _name_metrics(rows: Sequence[ScoreRow]) -> set[str]:
    return {metric for row in rows for metric in row.scores}


def _divide(rows_a: Sequence[ScoreRow], rows_b: Sequence[ScoreRow]) -> Iterator[tuple[str, list[ScoreRow], list[ScoreRow]]]:
    """(which questions, those of A, those of B), as far as both sides share a question."""

    def pick(questions: str) -> tuple[list[ScoreRow], list[ScoreRow]]:
        left, right = ([row for row in rows if _is_of(row, questions)] for rows in (rows_a, rows_b))
        return left, right

    categories = sorted({row.category for row in (*rows_a, *rows_b) if row.kind != AnswerKind.UNANSWERABLE})
    for questions in (ALL, *(categories if len(categories) > 1 else ()), UNANSWERABLE):
        left, right = pick(questions)
        if {row.task_id for row in left} & {row.task_id for row in right}:
            yield questions, left, right


def _is_of(row: ScoreRow, questions: str) -> bool:
    if questions == UNANSWERABLE:
        return row.kind == AnswerKind.UNANSWERABLE
    return row.kind != AnswerKind.UNANSWERABLE and questions in (ALL, row.category)


def _find_differences(rows_a: Sequence[ScoreRow], rows_b: Sequence[ScoreRow]) -> Iterator[str]:
    tasks = [{row.task_id for row in rows} for rows in (rows_a, rows_b)]
    for side, own, other in (("A", *tasks), ("B", *reversed(tasks))):
        if own - other:
            yield f"{len(own - other)} questions are in {side} alone, such as {min(own - other)}"
    judges = [", ".join(sorted({row.judge for row in rows} - {""})) or "nobody" for rows in (rows_a, rows_b)]
    if judges[0] == judges[1] and judges[0] != "nobody":
        yield f"judged by {judges[0]} on both sides"
    elif judges[0] != judges[1]:
        yield f"judged by {judges[0]} in A and by {judges[1]} in B: the scores `judge` do not compare"


def _lines(comparison: Comparison) -> Iterator[str]:
    yield f"A: {comparison.a}"
    yield f"B: {comparison.b}"
    yield "difference = B - A, with its 95% interval over groups (conversations or users); p by flipping the signs of groups' differences"
    for note in comparison.notes:
        yield f"note: {note}"
    for benchmark in dict.fromkeys(row.benchmark for row in comparison.rows):
        yield ""
        yield benchmark
        yield from _table([_cells(row) for row in comparison.rows if row.benchmark == benchmark])


def _cells(row: ComparedRow) -> tuple[str, ...]:
    one = row.comparison
    ends = "[one group]" if one.difference.low is None else f"[{one.difference.low:+.3f}, {one.difference.high:+.3f}]"
    left_out = str(one.left_out) if one.left_out else ""
    test = f"{one.mcnemar.only_a}:{one.mcnemar.only_b}, p {one.mcnemar.p_value:.2g}" if one.mcnemar is not None else ""
    means = (f"{one.mean_a:.3f}", f"{one.mean_b:.3f}", f"{one.difference.mean:+.3f} {ends}", f"{one.p_value:.2g}")
    return (row.questions, one.metric, *means, str(one.num_tasks), str(one.num_groups), test, left_out)


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    head = ("questions", "metric", "A", "B", "difference", "p", "n pairs", "groups", "A:B alone right (McNemar)", "without a value")
    widths = [max(len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    for row in (head, *rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
