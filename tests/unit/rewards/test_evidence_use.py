"""Search results that a policy used later: opened by id, or cited."""

from __future__ import annotations

from napmem_rl.rewards.evidence_use import SearchUse, find_search_uses
from napmem_rl.schema import Level, Status, Task, ToolCall, ToolResult, Trajectory, Turn

TASK = Task(task_id="t1", bank_id="ana", question="Where?", category="fact", needs_memory=True)


def make_turn(text: str, name: str = "", shown: tuple[str, ...] = (), **arguments: object) -> Turn:
    results = ()
    if name:
        results = (ToolResult(call=ToolCall(name=name, arguments=arguments), text="", is_success=True, level=Level.RECORD, item_ids=shown),)
    return Turn(text=text, tool_results=results)


def test_what_is_opened_or_cited_later_was_of_use_and_the_rest_was_not() -> None:
    turns = (
        make_turn('{"name": "search_records", "arguments": {"query": "move"}}', "search_records", ("rec:1", "rec:12", "rec:3"), query="move"),
        make_turn('{"name": "get_records", "arguments": {"ids": ["rec:12"]}}', "get_records", ("rec:12",), ids=["rec:12"]),
        make_turn("<answer>Oslo, see [rec:3].</answer>"),
    )
    trajectory = Trajectory(task=TASK, turns=turns, final_answer="Oslo", status=Status.COMPLETED)
    assert find_search_uses(trajectory) == [SearchUse(query="move", item_ids=("rec:1", "rec:12", "rec:3"), used=(False, True, True))]


def test_an_id_that_was_named_before_the_search_is_no_use_of_it() -> None:
    turns = (make_turn("I recall rec:1."), make_turn("search", "search_records", ("rec:1",), query="x"), make_turn("done"))
    trajectory = Trajectory(task=TASK, turns=turns, final_answer="x", status=Status.COMPLETED)
    assert [use.used for use in find_search_uses(trajectory)] == [(False,)]


def test_a_failure_of_ours_teaches_nothing() -> None:
    turns = (make_turn("search", "search_records", ("rec:1",), query="x"), make_turn("rec:1"))
    assert find_search_uses(Trajectory(task=TASK, turns=turns, final_answer=None, status=Status.ERROR_LLM)) == []
