from collections import Counter

import pytest

from napmem_rl.backend import metric_names as names
from napmem_rl.backend.group_facts import RowFacts, compute_group_facts
from napmem_rl.errors import BackendError


def row(key: str, reward: float, task: str = "t1", **facts: float) -> RowFacts:
    return RowFacts(key=key, task_id=task, reward=reward, facts={"category": "fact", "reward": reward, **facts})


def test_a_group_left_with_one_row_is_dropped_and_counted():
    rows = [row("a_0_0", 1.0), row("a_1_0", 0.0), row("b_2_0", 0.5, task="t2")]
    facts = compute_group_facts(rows, Counter({"judge": 3}), num_groups=3, min_rows=2)
    assert facts.kept_keys == ("a_0_0", "a_1_0")
    assert facts.dropped_keys == ("b_2_0",)
    metrics = facts.as_metrics()
    assert metrics[names.KEPT_GROUPS] == 1
    assert metrics[names.DROPPED_GROUPS] == 2  # b, and a third prompt without any row
    assert metrics[names.DROPPED_ROWS] == 1
    assert metrics[names.ABSTAINED] == 3
    assert metrics[names.ABSTAINED_BECAUSE.format(cause="judge")] == 3


def test_several_contexts_of_one_sample_do_not_make_a_group():
    rows = [row("a_0_0", 1.0), row("a_0_1", 1.0)]
    assert compute_group_facts(rows, Counter(), num_groups=1, min_rows=2).kept_keys == ()


def test_equal_rewards_are_counted_as_zero_variance():
    rows = [row("a_0_0", -1.0), row("a_1_0", -1.0), row("b_0_0", 1.0, task="t2"), row("b_1_0", -1.0, task="t2")]
    metrics = compute_group_facts(rows, Counter(), num_groups=2, min_rows=2).as_metrics()
    assert metrics[names.ZERO_VARIANCE_GROUPS] == 1
    assert metrics[names.ZERO_VARIANCE_FRACTION] == 0.5


def test_rows_come_sorted_by_task_and_sample_whatever_their_order_of_arrival():
    rows = [row("x_1_0", 0.0, task="b"), row("y_10_0", 0.0, task="a"), row("x_0_0", 1.0, task="b"), row("y_2_0", 1.0, task="a")]
    expected = ("y_2_0", "y_10_0", "x_0_0", "x_1_0")
    assert compute_group_facts(rows, Counter(), num_groups=2, min_rows=2).kept_keys == expected
    assert compute_group_facts(rows[::-1], Counter(), num_groups=2, min_rows=2).kept_keys == expected


def test_facts_of_kept_rows_alone_reach_the_metrics():
    rows = [row("a_0_0", 1.0, correctness=1.0), row("a_1_0", -1.0, correctness=0.0), row("b_0_0", -1.0, task="t2", correctness=0.0)]
    metrics = compute_group_facts(rows, Counter(), num_groups=2, min_rows=2).as_metrics()
    assert metrics["napmem/correctness"] == 0.5
    assert metrics["napmem/reward"] == 0.0


def test_two_tasks_under_one_group_id_are_an_error():
    with pytest.raises(BackendError, match="several tasks"):
        compute_group_facts([row("a_0_0", 0.0), row("a_1_0", 0.0, task="t2")], Counter(), num_groups=1, min_rows=2)
