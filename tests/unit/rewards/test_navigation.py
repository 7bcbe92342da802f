"""The reward rubric, hand-worked."""

from __future__ import annotations

import pytest

from napmem_rl.rewards.navigation import compute_reward, is_appropriate_use, is_well_formed
from napmem_rl.schema import Level, Status, Task, ToolCall, ToolResult, Trajectory, Turn


def as_result(is_success: bool = True) -> ToolResult:
    return ToolResult(call=ToolCall(name="search_records", arguments={"query": "x"}), text="…", is_success=is_success, level=Level.RECORD)


def as_trajectory(results: list[bool], *, needs_memory: bool = True, status: Status = Status.COMPLETED) -> Trajectory:
    task = Task(task_id="t1", bank_id="b1", question="Where?", category="fact", needs_memory=needs_memory)
    turns = tuple(Turn(text="call", tool_results=(as_result(is_success),)) for is_success in results)
    return Trajectory(task=task, turns=turns, final_answer="Oslo" if status is Status.COMPLETED else None, status=status)


@pytest.mark.parametrize(
    ("f", "c", "u", "reward"),
    [(1, 1, 1, 1.0), (1, 1, 0, 0.0), (1, 0, 1, -0.5), (1, 0, 0, -1.0), (0, 0, 0, -1.0), (0, 0, 1, -1.0), (0, 1, 0, -1.0), (0, 1, 1, -1.0)],
)
def test_the_reward_table_of_section_3_4(f: int, c: int, u: int, reward: float) -> None:
    assert compute_reward(bool(f), bool(c), bool(u)) == reward


def test_a_memory_question_needs_one_successful_call() -> None:
    assert is_appropriate_use(as_trajectory([False, True]))
    assert not is_appropriate_use(as_trajectory([False, False]))
    assert not is_appropriate_use(as_trajectory([]))


def test_a_control_question_allows_no_call_not_even_a_failed_one() -> None:
    assert is_appropriate_use(as_trajectory([], needs_memory=False))
    assert not is_appropriate_use(as_trajectory([False], needs_memory=False))
    assert not is_appropriate_use(as_trajectory([True], needs_memory=False))


def test_four_tool_steps_are_within_the_budget_and_asking_for_a_fifth_is_not() -> None:
    assert is_appropriate_use(as_trajectory([True] * 4))
    assert not is_appropriate_use(as_trajectory([True] * 4, status=Status.OVER_BUDGET))


@pytest.mark.parametrize("status", list(Status))
def test_only_a_completed_episode_is_well_formed(status: Status) -> None:
    assert is_well_formed(as_trajectory([True], status=status)) is (status is Status.COMPLETED)
