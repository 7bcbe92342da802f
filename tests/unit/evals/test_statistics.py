"""Intervals and tests of an evaluation, worked by hand."""

from __future__ import annotations

import pytest

from napmem_rl.errors import DataError
from napmem_rl.evals.result_rows import ScoreRow
from napmem_rl.evals.statistics import compare_scores, compute_mcnemar, flip_signs, score_interval


def row(task_id: str, group_id: str, value: float | None, *, sample: int = 0, metric: str = "judge") -> ScoreRow:
    return ScoreRow(
        task_id=task_id, sample=sample, group_id=group_id, category="c", kind="answer", final_answer="x", references=("x",), evidence_ids=(),
        scores={} if value is None else {metric: value}, absent={metric: "why"} if value is None else {},
    )  # fmt: skip


def test_an_interval_is_over_groups_and_says_how_much_it_rests_on() -> None:
    rows = [row("1", "g1", 1.0), row("2", "g1", 0.0), row("3", "g2", 1.0), row("4", "g2", None)]
    found = score_interval(rows, "judge")
    assert found is not None and found.mean == pytest.approx(2 / 3) and (found.num_values, found.num_users) == (3, 2)
    assert (found.low, found.high) == (0.5, 1.0), "a resample of two groups is g1 twice (1/2), g2 twice (1) or both (2/3)"
    assert score_interval(rows, "judge") == found
    assert score_interval(rows, "locomo_f1") is None


def test_one_group_has_a_mean_and_no_interval() -> None:
    found = score_interval([row("1", "g", 1.0), row("2", "g", 0.0)], "judge")
    assert found is not None and (found.mean, found.low, found.high) == (0.5, None, None)


@pytest.mark.parametrize(
    ("sums", "expected"),
    [
        ([3.0, 1.0], 0.5),  # 4, 2, -2, -4: two of four are as far out as 4
        ([1.0], 1.0),
        ([0.0, 0.0], 1.0),
        ([1.0, 1.0, 1.0, 1.0], 2 / 16),
        ([0.1] * 7, 2 / 128),  # sums of floats in any order
        ([2.0, -1.0], 1.0),  # 1, 3, -3, -1
    ],
)
def test_the_permutation_test_tries_every_sign(sums: list[float], expected: float) -> None:
    assert flip_signs({f"g{place}": [value] for place, value in enumerate(sums)}) == pytest.approx(expected)


def test_a_group_counts_as_one_however_many_tasks_it_holds() -> None:
    assert flip_signs({"g1": [1.0] * 50, "g2": [1.0] * 50}) == 0.5


def test_many_groups_are_drawn_and_the_smallest_value_is_not_zero() -> None:
    all_up = {f"g{place}": [1.0] for place in range(40)}
    assert flip_signs(all_up) == pytest.approx(1 / 20_001)
    mixed = {f"g{place}": [1.0 if place % 2 else -1.0] for place in range(40)}
    assert flip_signs(mixed) == 1.0
    assert flip_signs(all_up, seed=3) == flip_signs(dict(reversed(all_up.items())), seed=3), "the order of groups does not matter"


@pytest.mark.parametrize(("only_a", "only_b", "expected"), [(0, 0, 1.0), (1, 5, 14 / 64), (5, 1, 14 / 64), (3, 3, 1.0), (0, 6, 2 / 64)])
def test_mcnemars_exact_test(only_a: int, only_b: int, expected: float) -> None:
    assert compute_mcnemar(only_a, only_b).p_value == pytest.approx(expected)


def test_two_evaluations_are_compared_task_by_task() -> None:
    a = [row("1", "g1", 0.0), row("2", "g1", 1.0), row("3", "g2", 0.0), row("4", "g2", None), row("5", "g2", 1.0)]
    b = [row("1", "g1", 1.0), row("2", "g1", 1.0), row("3", "g2", 1.0), row("4", "g2", 1.0), row("6", "g3", 1.0)]
    found = compare_scores(a, b, "judge")
    assert found is not None
    assert (found.mean_a, found.mean_b) == (pytest.approx(1 / 3), 1.0), "over the tasks that both have: 1, 2, 3"
    assert found.difference.mean == pytest.approx(2 / 3) and (found.difference.low, found.difference.high) == (0.5, 1.0)
    assert (found.num_tasks, found.num_groups, found.left_out, found.only_a, found.only_b) == (3, 2, 1, 1, 1)
    assert found.p_value == 0.5
    assert found.mcnemar is not None and (found.mcnemar.only_a, found.mcnemar.only_b, found.mcnemar.p_value) == (0, 2, 0.5)


def test_comparing_the_other_way_round_turns_the_sign_and_nothing_else() -> None:
    a = [row(str(n), f"g{n % 5}", float(n % 3 == 0)) for n in range(30)]
    b = [row(str(n), f"g{n % 5}", float(n % 2 == 0)) for n in range(30)]
    forth, back = compare_scores(a, b, "judge"), compare_scores(b, a, "judge")
    assert forth is not None and back is not None
    assert forth.difference.mean == pytest.approx(-back.difference.mean) and forth.p_value == back.p_value


def test_repeats_of_a_task_are_averaged_and_leave_mcnemar_out() -> None:
    a = [row("1", "g1", 0.0, sample=0), row("1", "g1", 1.0, sample=1), row("2", "g2", 0.0)]
    b = [row("1", "g1", 1.0), row("2", "g2", 0.0)]
    found = compare_scores(a, b, "judge")
    assert found is not None and found.difference.mean == pytest.approx(0.25) and found.mcnemar is None


def test_a_metric_that_is_not_of_zeros_and_ones_has_no_mcnemar() -> None:
    found = compare_scores([row("1", "g", 0.5)], [row("1", "g", 1.0)], "judge")
    assert found is not None and found.mcnemar is None and found.difference.low is None


def test_evaluations_of_other_data_are_not_compared() -> None:
    with pytest.raises(DataError, match="share no task"):
        compare_scores([row("1", "g", 1.0)], [row("2", "g", 1.0)], "judge")
    with pytest.raises(DataError, match="task 1: is of another group on either side"):
        compare_scores([row("1", "g", 1.0)], [row("1", "h", 1.0)], "judge")
    assert compare_scores([row("1", "g", None)], [row("1", "g", 1.0)], "judge") is None
