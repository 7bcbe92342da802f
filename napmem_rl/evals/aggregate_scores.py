"""From scored answers to the figures of a table: each with the number of answers, its interval over conversations or users, and what is missing and why.

Unanswerable questions are a table of their own: to say "I don't know" to everything must not raise the score of a policy.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from napmem_rl.evals.metrics import Interval
from napmem_rl.evals.result_rows import ScoreRow
from napmem_rl.evals.statistics import score_interval
from napmem_rl.schema import AnswerKind


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricSummary:
    """One metric over some answers. `interval` is None where no answer has the metric; then `absent` says why.

    `audited` is the same without the answers whose reference is known to be wrong; None where no label was given for any of these answers.
    """

    interval: Interval | None  # mean, low, high, num_users (groups), num_values (n)
    absent: Mapping[str, int] = field(default_factory=dict)  # reason -> answers
    audited: Interval | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreSummary:
    """The scores of one policy on one benchmark. Metrics stand in alphabetical order, categories too."""

    num_answers: int  # scored or not, unanswerable ones included
    num_unanswerable: int
    num_labelled: int  # answers with a label of the audit file
    num_known_wrong: int  # of those, answers whose reference is known to be wrong
    overall: Mapping[str, MetricSummary]  # answerable questions: kinds answer and rubric
    by_category: Mapping[str, Mapping[str, MetricSummary]]  # the same by category
    unanswerable: Mapping[str, MetricSummary]
    unanswerable_by_category: Mapping[str, Mapping[str, MetricSummary]]

    def as_json(self) -> dict[str, Any]:
        """Plain data; numbers are not rounded."""
        return asdict(self)


def summarise_scores(rows: Sequence[ScoreRow], *, seed: int = 0) -> ScoreSummary:
    """All figures of one policy on one benchmark. No row at all gives empty tables.

    Args:
        rows: one an answer; several samples of a task are answers of their own.
        seed: of the bootstrap; the same rows and seed give the same intervals.
    """
    unanswerable = [row for row in rows if row.kind == AnswerKind.UNANSWERABLE]
    answerable = [row for row in rows if row.kind != AnswerKind.UNANSWERABLE]
    return ScoreSummary(
        num_answers=len(rows),
        num_unanswerable=len(unanswerable),
        num_labelled=sum(row.audited is not None for row in rows),
        num_known_wrong=sum(row.audited is False for row in rows),
        overall=summarise_metrics(answerable, seed=seed),
        by_category=_by_category(answerable, seed),
        unanswerable=summarise_metrics(unanswerable, seed=seed),
        unanswerable_by_category=_by_category(unanswerable, seed),
    )


def summarise_metrics(rows: Sequence[ScoreRow], *, seed: int = 0) -> dict[str, MetricSummary]:
    """Every metric that a row has, or lacks with a reason."""
    names = sorted({name for row in rows for name in (*row.scores, *row.absent)})
    return {name: _summarise(rows, name, seed) for name in names}


def _summarise(rows: Sequence[ScoreRow], name: str, seed: int) -> MetricSummary:
    absent = Counter(row.absent[name] for row in rows if name in row.absent)
    is_labelled = any(row.audited is not None for row in rows)
    audited = score_interval(_without_known_wrong(rows), name, seed=seed) if is_labelled else None
    return MetricSummary(interval=score_interval(rows, name, seed=seed), absent=dict(sorted(absent.items())), audited=audited)


def _without_known_wrong(rows: Iterable[ScoreRow]) -> list[ScoreRow]:
    return [row for row in rows if row.audited is not False]


def _by_category(rows: Sequence[ScoreRow], seed: int) -> dict[str, dict[str, MetricSummary]]:
    groups: dict[str, list[ScoreRow]] = defaultdict(list)
    for row in rows:
        groups[row.category].append(row)
    return {category: summarise_metrics(groups[category], seed=seed) for category in sorted(groups)}
