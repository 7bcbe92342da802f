"""Navigation, worked out by hand."""

from __future__ import annotations

import pytest

from napmem_rl.data.control_files import AcceptedCall, FunctionKey
from napmem_rl.errors import DataError
from napmem_rl.evals.navigation import find_call_problem, find_first_actions, score_function_calls, summarise_navigation
from napmem_rl.schema import AnswerKey, Level, Status, Task, ToolCall, ToolResult, Trajectory, Turn
from napmem_rl.tools.function_calls import render_function_calls

TOOLS = {Level.RAW: "search_conversation", Level.RECORD: "search_records", Level.TRACK: "read_file", Level.PROFILE: "read_file"}


def result(level: Level, *message_ids: str, is_success: bool = True) -> ToolResult:
    return ToolResult(call=ToolCall(name=TOOLS[level], arguments={}), text="…", is_success=is_success, level=level, message_ids=message_ids)


def episode(*results: ToolResult, needs_memory: bool = True, answer: str | None = "x", status: Status = Status.COMPLETED, task_id: str = "t") -> Trajectory:
    task = Task(task_id=task_id, bank_id="b", question="Q?", category="c", needs_memory=needs_memory)
    turns = tuple(Turn(text="", tool_results=(one,)) for one in results)
    return Trajectory(task=task, turns=turns, final_answer=answer if status is Status.COMPLETED else None, status=status)


KEY = AnswerKey(task_id="t", references=("x",), evidence_ids=("msg:1",))


def test_table_5_counts_calls_levels_and_evidence_over_questions_that_need_memory() -> None:
    pairs = [
        (episode(result(Level.RECORD, "msg:1"), result(Level.RAW, "msg:2"), result(Level.RAW, "msg:1", "msg:3")), KEY),  # 3 calls, two levels, 2 hits
        (episode(result(Level.PROFILE, is_success=False)), KEY),  # 1 call, no level read, no hit
        (episode(status=Status.TRUNCATED), KEY),  # no call
        (episode(result(Level.RECORD), needs_memory=False), AnswerKey(task_id="t", references=("A",))),
        (episode(result(Level.RECORD, "msg:1"), status=Status.ERROR_LLM), KEY),  # ours
    ]
    found = summarise_navigation(pairs)
    assert found["num_episodes"] == 4
    assert found["calls_per_question"] == pytest.approx(4 / 3) and found["multi_level_rate"] == pytest.approx(1 / 3)
    assert found["evidence_hits_per_100_uses"] == pytest.approx(50.0) and found["call_success_rate"] == pytest.approx(3 / 4)
    assert found["first_action"] == pytest.approx({"record": 1 / 3, "raw": 0, "track": 0, "profile": 1 / 3, "no call": 1 / 3})


def test_calls_on_control_questions_are_unnecessary_whether_they_find_something_or_not() -> None:
    key = AnswerKey(task_id="t", references=("A",))
    controls = [episode(*[result(Level.RAW, is_success=False)] * number, needs_memory=False) for number in (0, 0, 1, 3)]
    found = summarise_navigation([(one, key) for one in controls])
    assert (found["num_control_episodes"], found["unnecessary_call_rate"], found["calls_per_control_question"]) == (4, 0.5, 1.0)
    assert found["first_action_control"]["no call"] == 0.5 and "calls_per_question" not in found


def test_what_nothing_can_be_said_of_is_absent() -> None:
    assert summarise_navigation([(episode(status=Status.ERROR_TOOL), KEY)]) == {"num_episodes": 0}
    assert "evidence_hits_per_100_uses" not in summarise_navigation([(episode(result(Level.RAW)), AnswerKey(task_id="t", references=("x",)))])
    with pytest.raises(DataError):
        find_first_actions([])


TABLE = AcceptedCall(name="book_table", arguments={"city": ("Oslo", "Oslo, Norway"), "seats": (4,), "window": (True, "")}, optional=("window",))


@pytest.mark.parametrize(
    ("arguments", "is_right"),
    [
        ({"city": "oslo", "seats": 4}, True),
        ({"city": "Oslo Norway", "seats": 4.0, "window": True}, True),
        ({"city": "Bergen", "seats": 4}, False),
        ({"city": "Oslo", "seats": "4"}, False),
        ({"city": "Oslo", "seats": True}, False),
        ({"city": "Oslo"}, False),
        ({"city": "Oslo", "seats": 4, "colour": "red"}, False),
        ({"city": "Oslo", "seats": 4, "window": False}, False),
        ({"city": None, "seats": 4}, False),
    ],
)
def test_a_call_is_right_with_any_accepted_value_of_each_argument(arguments: dict, is_right: bool) -> None:
    assert (find_call_problem([ToolCall(name="book_table", arguments=arguments)], [TABLE]) == "") == is_right


def test_lists_and_objects_are_compared_item_by_item() -> None:
    accepted = AcceptedCall(name="f", arguments={"days": (["Monday", "Friday"],), "who": ({"name": ["Ana"], "age": [30, ""]},)})
    for days, who, is_right in (
        (["monday", "friday"], {"name": "Ana"}, True),
        (["monday", "friday"], {"name": "Ana", "age": 30}, True),
        (["friday", "monday"], {"name": "Ana"}, False),
        (["monday"], {"name": "Ana"}, False),
        (["monday", "friday"], {"name": "Ana", "age": 31}, False),
        (["monday", "friday"], {"age": 30}, False),
        (["monday", "friday"], {"name": "Ana", "job": "nurse"}, False),
    ):
        assert (find_call_problem([ToolCall(name="f", arguments={"days": days, "who": who})], [accepted]) == "") == is_right


def test_parallel_calls_match_in_any_order_and_each_accepted_call_counts_once() -> None:
    wide = AcceptedCall(name="f", arguments={"x": (1, 2)})
    narrow = AcceptedCall(name="f", arguments={"x": (1,)})
    one, two = ToolCall(name="f", arguments={"x": 1}), ToolCall(name="f", arguments={"x": 2})
    assert find_call_problem([one, two], [wide, narrow]) == "" and find_call_problem([two, one], [narrow, wide]) == ""
    assert find_call_problem([two, two], [wide, narrow]) != "" and "2 calls where 1" in find_call_problem([one, two], [wide])
    assert "calls f where g" in find_call_problem([one], [AcceptedCall(name="g", arguments={})])


def test_an_episode_is_scored_by_its_calls_and_counts_what_it_read_for_nothing() -> None:
    key = FunctionKey(task_id="t", calls=(TABLE,))
    answer = render_function_calls([ToolCall(name="book_table", arguments={"city": "Oslo", "seats": 4})])
    right = score_function_calls(episode(result(Level.RECORD), needs_memory=False, answer=answer), key)
    assert right is not None and (right.is_correct, right.num_memory_calls) == (True, 1)
    in_words = score_function_calls(episode(needs_memory=False, answer="I booked it."), key)
    assert in_words is not None and (in_words.is_correct, in_words.problem) == (False, "answered in words")
    cut = score_function_calls(episode(needs_memory=False, status=Status.TRUNCATED), key)
    assert cut is not None and not cut.is_correct and "truncated" in cut.problem
    assert score_function_calls(episode(status=Status.ERROR_LLM), key) is None
    with pytest.raises(DataError, match="another task"):
        score_function_calls(episode(task_id="other"), key)
