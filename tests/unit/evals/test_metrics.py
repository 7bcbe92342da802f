"""Metrics, hand-worked."""

from __future__ import annotations

import numpy as np
import pytest

from napmem_rl.errors import DataError
from napmem_rl.evals.metrics import Facts, Metric, aggregate, aggregate_by_category, bootstrap_interval, group_by_user, paired_gain, trajectory_facts
from napmem_rl.schema import AnswerKey, Level, ScoredTrajectory, Status, Task, ToolCall, ToolResult, Trajectory, Turn


def as_result(level: Level = Level.RECORD, message_ids: tuple[str, ...] = (), *, is_success: bool = True, is_truncated: bool = False) -> ToolResult:
    call = ToolCall(name="search_records", arguments={"query": "x"})
    return ToolResult(call=call, text="…", is_success=is_success, level=level, message_ids=message_ids, is_truncated=is_truncated)


def as_facts(
    *turns: list[ToolResult],
    reward: float | None = 1.0,
    gold: tuple[str, ...] = (),
    needs_memory: bool = True,
    category: str = "fact",
    status: Status = Status.COMPLETED,
    answer: str = "Oslo",
    options: tuple[str, ...] = (),
    last_text: str = "x",
) -> Facts:
    task = Task(task_id="t1", bank_id="b1", question="Where?", category=category, needs_memory=needs_memory, options=options)
    said = (*(Turn(text="call", tool_results=tuple(results)) for results in turns), Turn(text=last_text))
    trajectory = Trajectory(task=task, turns=said, final_answer=answer if status is Status.COMPLETED else None, status=status)
    terms = {} if status.is_ours else {"format": 1.0, "appropriate_use": 1.0, **({"correct": float(reward > 0)} if reward is not None else {})}
    scored = ScoredTrajectory(trajectory=trajectory, reward=reward, abstained=None if reward is not None else "judge: down", terms=terms)
    return trajectory_facts(scored, AnswerKey(task_id="t1", references=("Oslo",), evidence_ids=gold))


def test_use_of_memory_is_counted_over_turns_and_levels() -> None:
    facts = as_facts([as_result(Level.RECORD), as_result(Level.RAW)], [as_result(Level.RAW, is_success=False, is_truncated=True)])
    assert (facts[Metric.CALLS_PER_QUESTION], facts[Metric.TOOL_STEPS], facts[Metric.MULTI_LEVEL_RATE]) == (3.0, 2.0, 1.0)
    total = aggregate([facts, as_facts()])
    assert (total["calls_per_question"], total["tool_steps"], total["multi_level_rate"]) == (1.5, 1.0, 0.5)
    assert (total["calls_per_question/raw"], total["calls_per_question/record"], total["calls_per_question/track"]) == (1.0, 0.5, 0.0)
    assert total["call_success_rate"] == pytest.approx(2 / 3) and total["cut_result_rate"] == pytest.approx(1 / 3)


def test_a_level_counts_as_read_only_where_a_call_succeeded() -> None:
    assert as_facts([as_result(Level.RECORD), as_result(Level.RAW, is_success=False)])[Metric.MULTI_LEVEL_RATE] == 0.0


def test_evidence_hits_are_pooled_over_uses_with_known_gold() -> None:
    first = as_facts(
        [as_result(message_ids=("msg:1", "msg:2"))], [as_result(message_ids=("msg:9",))], [as_result(message_ids=("msg:2", "msg:1"))], gold=("msg:1", "msg:2")
    )
    second = as_facts([as_result(message_ids=("msg:5",))], gold=("msg:4",))
    unknown = as_facts([as_result(message_ids=("msg:1",))])
    # 2 of 3 uses hit in the first, 0 of 1 in the second; the third has no gold: 2 of 4, not the mean of 2/3 and 0
    assert aggregate([first, second, unknown])[Metric.EVIDENCE_HITS_PER_100_USES] == 50.0


def test_what_cannot_be_computed_is_absent_and_not_zero() -> None:
    no_gold, no_use = aggregate([as_facts([as_result()])]), aggregate([as_facts(gold=("msg:1",))])
    assert Metric.EVIDENCE_HITS_PER_100_USES not in no_gold and Metric.EVIDENCE_HITS_PER_100_USES not in no_use
    assert Metric.CALL_SUCCESS_RATE not in no_use and Metric.UNNECESSARY_CALL_RATE not in no_use
    assert Metric.TOKEN_F1 not in aggregate([as_facts(options=("a", "b"), answer="A")])


def test_unnecessary_calls_are_a_share_of_control_questions_alone() -> None:
    rows = [as_facts([as_result()]), as_facts([as_result(is_success=False)], needs_memory=False), as_facts(needs_memory=False), as_facts(needs_memory=False)]
    assert aggregate(rows)[Metric.UNNECESSARY_CALL_RATE] == pytest.approx(1 / 3)


def test_an_abstained_judge_leaves_the_behaviour_and_our_own_failure_leaves_nothing() -> None:
    judged, unjudged = as_facts([as_result()], reward=-0.5), as_facts([as_result()], [as_result()], reward=None)
    ours = as_facts([as_result()] * 9, reward=None, status=Status.ERROR_TOOL)
    total = aggregate([judged, unjudged, ours])
    assert (total["reward"], total["correctness"], total["num_questions"], total["num_abstained"]) == (-0.5, 0.0, 3.0, 2.0)
    assert (total["calls_per_question"], total["status/error_tool"]) == (1.5, pytest.approx(1 / 3))
    alone = aggregate([ours])
    assert Metric.REWARD not in alone and Metric.CALLS_PER_QUESTION not in alone and alone["num_abstained"] == 1.0


def test_truncation_is_counted_by_its_cause() -> None:
    total = aggregate([as_facts(reward=-1.0, status=Status.TRUNCATED), as_facts(reward=-1.0, status=Status.TRUNCATED, last_text=""), as_facts(), as_facts()])
    assert (total["truncated/turn"], total["truncated/context"], total["status/truncated"], total["status/completed"]) == (0.25, 0.25, 0.5, 0.5)


def test_categories_are_aggregated_each_on_its_own_and_no_trajectory_is_an_error() -> None:
    groups = aggregate_by_category([as_facts(reward=1.0, category="b"), as_facts(reward=0.0, category="a"), as_facts(reward=-1.0, category="b")])
    assert list(groups) == ["a", "b"] and (groups["a"]["reward"], groups["b"]["reward"]) == (0.0, 0.0)
    with pytest.raises(DataError, match="holds no trajectory"):
        aggregate([])


def test_the_key_of_another_task_is_refused() -> None:
    task = Task(task_id="t1", bank_id="b1", question="Where?", category="fact", needs_memory=True)
    scored = ScoredTrajectory(trajectory=Trajectory(task=task, turns=(), final_answer="Oslo", status=Status.COMPLETED), reward=1.0)
    with pytest.raises(DataError, match="answer key of another task"):
        trajectory_facts(scored, AnswerKey(task_id="t2", references=("Oslo",)))


def test_the_interval_resamples_users_and_not_questions() -> None:
    # two users, all ones and all zeros: a resample is all ones or all zeros with a chance of 1/4 each, so the interval spans 0 to 1 whatever the questions
    interval = bootstrap_interval({"ana": [1.0] * 500, "bo": [0.0] * 500})
    assert (interval.mean, interval.low, interval.high, interval.num_users, interval.num_values) == (0.5, 0.0, 1.0, 2, 1000)


def test_the_mean_weighs_questions_and_equal_users_give_a_point() -> None:
    assert bootstrap_interval({"ana": [1.0, 1.0, 1.0], "bo": [0.0]}).mean == 0.75
    same = bootstrap_interval({"ana": [0.0, 1.0], "bo": [1.0, 0.0], "cy": [0.5]})
    assert (same.low, same.high) == (0.5, 0.5)


def test_the_interval_is_that_of_a_plain_bootstrap() -> None:
    rng = np.random.default_rng(3)
    users = {f"u{i:02d}": rng.normal(i % 3, 1.0, size=1 + i % 4).tolist() for i in range(20)}
    interval = bootstrap_interval(users, num_resamples=20_000)
    columns = list(users.values())
    means = [np.mean(np.concatenate([columns[i] for i in rng.integers(0, 20, 20)])) for _ in range(4000)]
    assert np.percentile(means, (2.5, 97.5)) == pytest.approx((interval.low, interval.high), abs=0.05)


def test_the_interval_does_not_depend_on_the_order_of_users_and_repeats_with_its_seed() -> None:
    users = {"a": [0.1, 0.9], "b": [0.4], "c": [1.0, 0.0, 0.3]}
    assert bootstrap_interval(users) == bootstrap_interval(dict(reversed(users.items())))
    assert bootstrap_interval(users, seed=1) == bootstrap_interval(users, seed=1)


def test_one_user_has_no_interval_and_unusable_values_are_refused() -> None:
    assert (bootstrap_interval({"a": [1.0, 0.0]}).low, bootstrap_interval({"a": [1.0, 0.0]}).high) == (None, None)
    for values in ({}, {"a": []}, {"a": [float("nan")]}):
        with pytest.raises(DataError):
            bootstrap_interval(values)


def as_row(task_id: str, bank_id: str, **metrics: float) -> Facts:
    return {"task_id": task_id, "bank_id": bank_id, **metrics}


def test_gains_are_paired_by_task_and_averaged_over_repeats() -> None:
    before = [as_row("t1", "a", correctness=0.0), as_row("t2", "a", correctness=1.0), as_row("t3", "b", correctness=0.0)]
    after = [as_row("t3", "b", correctness=1.0), as_row("t1", "a", correctness=1.0), as_row("t1", "a", correctness=0.0), as_row("t2", "a", correctness=1.0)]
    gain = paired_gain(before, after, Metric.CORRECTNESS)
    # t1 +0.5, t2 0, t3 +1: mean 0.5; user a alone 0.25, user b alone 1
    assert (gain.mean, gain.low, gain.high, gain.num_users, gain.num_values) == (0.5, 0.25, 1.0, 2, 3)


def test_a_pair_without_the_metric_on_one_side_is_left_out() -> None:
    before = [as_row("t1", "a", correctness=0.0), as_row("t2", "b", correctness=0.0)]
    after = [as_row("t1", "a", correctness=1.0), as_row("t2", "b")]
    assert paired_gain(before, after, "correctness").num_values == 1


def test_different_tasks_or_users_cannot_be_paired() -> None:
    for after in ([as_row("t2", "a", correctness=1.0)], [as_row("t1", "b", correctness=1.0)], []):
        with pytest.raises(DataError, match="different tasks"):
            paired_gain([as_row("t1", "a", correctness=0.0)], after, "correctness")


def test_values_are_grouped_by_user_and_absent_ones_left_out() -> None:
    rows = [as_row("t1", "a", reward=1.0), as_row("t2", "a", reward=0.0), as_row("t3", "b"), as_row("t4", "c", reward=0.5)]
    assert group_by_user(rows, Metric.REWARD) == {"a": [1.0, 0.0], "c": [0.5]}
