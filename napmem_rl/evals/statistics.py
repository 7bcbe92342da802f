"""What can be said beyond the questions that were asked: intervals, and whether two policies differ.

Answers about one conversation share its text and are not independent; conversations are. So everything here resamples groups (`ScoreRow.group_id`), McNemar's
test excepted, and with two conversations it says next to nothing, however many questions they hold: that is the honest figure.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from napmem_rl.errors import DataError
from napmem_rl.evals.metrics import Interval, bootstrap_interval
from napmem_rl.evals.result_rows import ScoreRow

_EXACT_GROUPS = 14  # all 2^G signs are tried up to here
_NUM_FLIPS = 20_000


@dataclass(frozen=True, kw_only=True, slots=True)
class McNemar:
    """McNemar's exact test of a metric of zeros and ones: only the tasks on which the two differ count.

    It takes the tasks for independent, which those of one conversation are not: read it beside the test over groups.
    """

    only_a: int  # right in A alone
    only_b: int
    p_value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedComparison:
    """Two policies on the same tasks, by one metric.

    `difference` is B - A over `num_tasks` tasks with its interval over groups. `p_value`: how often a difference at least as large comes about where the sign
    of each group's difference is a coin's throw. `left_out`: tasks of both that lack the metric on either side; `only_a`, `only_b`: tasks of one side alone.
    """

    metric: str
    mean_a: float
    mean_b: float
    difference: Interval
    p_value: float
    num_tasks: int
    num_groups: int
    left_out: int
    only_a: int
    only_b: int
    mcnemar: McNemar | None  # None where the metric is not of zeros and ones, or tasks were repeated


def score_interval(rows: Iterable[ScoreRow], metric: str, *, seed: int = 0) -> Interval | None:
    """Mean of a metric over the rows that have it, with its 95% interval over groups; None where no row has it.

    Example: 1, 0 in one group and 1 in another give mean 2/3, num_values 3, num_users 2.
    """
    values: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if metric in row.scores:
            values[row.group_id].append(row.scores[metric])
    return bootstrap_interval(values, seed=seed) if values else None


def compare_scores(rows_a: Iterable[ScoreRow], rows_b: Iterable[ScoreRow], metric: str, *, seed: int = 0) -> PairedComparison | None:
    """Compare two evaluations task by task; repeats of a task are averaged first. None where no task has the metric on both sides.

    Raises:
        DataError: the two share no task, or a task is of another group on either side, so that they were not made of the same data.
    """
    side_a, side_b = _collect(rows_a, metric), _collect(rows_b, metric)
    shared = sorted(side_a.keys() & side_b.keys())
    if not shared:
        raise DataError.of("comparison", "the two evaluations share no task", fix="Compare evaluations of the same benchmark and split.")
    for task_id in shared:
        if side_a[task_id].group_id != side_b[task_id].group_id:
            groups = (side_a[task_id].group_id, side_b[task_id].group_id)
            raise DataError.of(f"comparison, task {task_id}", "is of another group on either side", got=groups, fix="Compare evaluations of the same data.")
    both = [task_id for task_id in shared if side_a[task_id].values and side_b[task_id].values]
    if not both:
        return None
    pairs = [(side_a[task_id], side_b[task_id]) for task_id in both]
    differences: dict[str, list[float]] = defaultdict(list)
    for first, second in pairs:
        differences[first.group_id].append(second.mean - first.mean)
    return PairedComparison(
        metric=metric,
        mean_a=float(np.mean([first.mean for first, _ in pairs])),
        mean_b=float(np.mean([second.mean for _, second in pairs])),
        difference=bootstrap_interval(differences, seed=seed),
        p_value=flip_signs(differences, seed=seed),
        num_tasks=len(both),
        num_groups=len(differences),
        left_out=len(shared) - len(both),
        only_a=len(side_a) - len(shared),
        only_b=len(side_b) - len(shared),
        mcnemar=_build_mcnemar(pairs),
    )


def flip_signs(differences: Mapping[str, Sequence[float]], *, seed: int = 0) -> float:
    """Two-sided p-value of a permutation test: under "no difference", each group's summed difference is as likely as its negative.

    Every combination of signs is tried up to 14 groups; beyond that 20,000 are drawn, the observed one counted among them (Phipson and Smyth 2010). The
    smallest value that G groups can give is 2 / 2^G.

    Example: groups of sums 3, 1 → of the four signed sums 4, 2, -2, -4 two are as far from 0 as 4: p = 0.5
    """
    sums = np.array([math.fsum(differences[group]) for group in sorted(differences)])
    num_groups = len(sums)
    observed = abs(sums.sum()) * (1 - 1e-12) - 1e-12  # sums of floats in another order must not fall short
    if num_groups <= _EXACT_GROUPS:
        bits = (np.arange(2**num_groups)[:, None] >> np.arange(num_groups)) & 1
        return float(np.mean(np.abs((1 - 2 * bits) @ sums) >= observed))
    signs = np.random.default_rng(seed).integers(0, 2, size=(_NUM_FLIPS, num_groups)) * 2 - 1
    hits = int(np.sum(np.abs(signs @ sums) >= observed))
    return (hits + 1) / (_NUM_FLIPS + 1)


def compute_mcnemar(only_a: int, only_b: int) -> McNemar:
    """The exact, two-sided binomial test of `only_a` against `only_b` successes (McNemar 1947).

    Example: 1 against 5 → 2 x (1 + 6) / 64 = 0.21875
    """
    total = only_a + only_b
    tail = sum(math.comb(total, k) for k in range(min(only_a, only_b) + 1))
    return McNemar(only_a=only_a, only_b=only_b, p_value=min(1.0, 2 * tail / 2**total))


@dataclass(slots=True)
class _TaskValues:
    group_id: str
    values: list[float]

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))


def _collect(rows: Iterable[ScoreRow], metric: str) -> dict[str, _TaskValues]:
    """The values of a metric by task; a task without any has an empty list."""
    tasks: dict[str, _TaskValues] = {}
    for row in rows:
        known = tasks.setdefault(row.task_id, _TaskValues(row.group_id, []))
        if metric in row.scores:
            known.values.append(row.scores[metric])
    return tasks


def _build_mcnemar(pairs: Sequence[tuple[_TaskValues, _TaskValues]]) -> McNemar | None:
    values = [(first.values, second.values) for first, second in pairs]
    if any(len(first) != 1 or len(second) != 1 or {*first, *second} - {0.0, 1.0} for first, second in values):
        return None
    only_a = sum(first[0] > second[0] for first, second in values)
    only_b = sum(second[0] > first[0] for first, second in values)
    return compute_mcnemar(only_a, only_b)
