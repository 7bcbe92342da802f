"""A trajectory written as JSON and read back is the trajectory that was."""

from __future__ import annotations

import json

import pytest

from napmem_rl.errors import DataError
from napmem_rl.evals.trajectory_rows import read_trajectory, render_trajectory
from napmem_rl.schema import Level, Status, Task, ToolCall, ToolFailure, ToolResult, Trajectory, Turn

TASK = Task(task_id="t", bank_id="b", question="Where?", category="fact", needs_memory=True, asked_at="2024-01-01T00:00:00", options=("x", "y"))


def build_trajectory() -> Trajectory:
    found = ToolResult(
        call=ToolCall(name="search_records", arguments={"query": "home"}),
        text="nothing",
        is_success=False,
        level=Level.RECORD,
        latency_s=0.25,
        failure=ToolFailure.NOTHING_FOUND,
    )
    first = Turn(text="call", tool_results=(found,), prompt_ids=(1, 2, 3), response_ids=(4, 5))
    last = Turn(text="<answer>A</answer>", prompt_ids=(1, 2, 3, 4, 5, 6), response_ids=(7,))
    return Trajectory(task=TASK, turns=(first, last), final_answer="A", status=Status.COMPLETED)


def test_a_trajectory_survives_json_with_its_token_ids() -> None:
    row = json.loads(json.dumps(render_trajectory(build_trajectory(), with_token_ids=True)))
    assert read_trajectory(row) == build_trajectory()


def test_each_token_is_written_once() -> None:
    turns = render_trajectory(build_trajectory(), with_token_ids=True)["turns"]
    assert [turn["new_prompt_ids"] for turn in turns] == [[1, 2, 3], [6]]
    assert [turn["response_ids"] for turn in turns] == [[4, 5], [7]]


def test_without_token_ids_the_words_remain() -> None:
    read = read_trajectory(render_trajectory(build_trajectory()))
    assert read.turns[0].prompt_ids == () and read.turns[0].tool_results == build_trajectory().turns[0].tool_results


def test_a_row_without_a_field_is_named() -> None:
    row = render_trajectory(build_trajectory())
    del row["status"]
    with pytest.raises(DataError, match=r"row 7.*status"):
        read_trajectory(row, what="answers.jsonl, row 7")
