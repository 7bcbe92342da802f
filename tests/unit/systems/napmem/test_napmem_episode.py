"""How an episode runs and how it can end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from napmem_rl.config.sections import AgentConfig
from napmem_rl.errors import BackendError, DataError, LLMError, StaleWeightsError, ToolError
from napmem_rl.llm.base import AssistantTurn, ChatReply, RawToolCall
from napmem_rl.llm.openai_client import ChatGenerate
from napmem_rl.llm.sample import build_sample
from napmem_rl.llm.scripted import ScriptedChat, ScriptedGenerate
from napmem_rl.schema import Level, Status, Task, ToolCall, ToolResult, Trajectory
from napmem_rl.systems.napmem.episode import run_episode
from napmem_rl.tools.function_calls import read_function_calls
from napmem_rl.tools.parse import parse_turn
from napmem_rl.tools.spec import MEMORY_TOOLS, ToolSpec

TASK = Task(task_id="t1", bank_id="b1", question="Where does Ana live?", category="fact", needs_memory=True)
CONFIG = AgentConfig(max_tool_steps=4, max_calls_per_turn=2)
ANSWER = "<answer>Oslo</answer>"


def as_call(query: str, name: str = "search_records") -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': {'query': query}})}</tool_call>"


class EchoToolbox:
    """Answers each call with its query; "nothing" finds nothing, "broken" is our fault, "bug" is a programming error."""

    file_names = ("profile.md",)

    def __init__(self) -> None:
        self.queries: list[str] = []

    async def call(self, call: ToolCall) -> ToolResult:
        query = call.arguments["query"]
        self.queries.append(query)
        if query == "broken":
            raise ToolError("index is gone")
        if query == "bug":
            raise KeyError("bug")
        is_success = query != "nothing"
        return ToolResult(call=call, text=f"found {query}" if is_success else "No records found.", is_success=is_success, level=Level.RECORD)


def play(*steps: Any, toolbox: EchoToolbox | None = None, config: AgentConfig = CONFIG) -> tuple[Trajectory, ScriptedGenerate]:
    generate = ScriptedGenerate(steps)
    return asyncio.run(run_episode(TASK, generate, toolbox or EchoToolbox(), config)), generate


def test_four_tool_steps_and_an_answer_are_completed() -> None:
    toolbox = EchoToolbox()
    trajectory, _ = play(*[as_call(f"q{i}") for i in range(4)], ANSWER, toolbox=toolbox)
    assert (trajectory.status, trajectory.final_answer, len(trajectory.turns), trajectory.num_tool_steps) == (Status.COMPLETED, "Oslo", 5, 4)
    assert toolbox.queries == ["q0", "q1", "q2", "q3"]


def test_a_fifth_tool_step_is_over_budget_and_is_not_run() -> None:
    toolbox = EchoToolbox()
    trajectory, _ = play(*[as_call(f"q{i}") for i in range(5)], toolbox=toolbox)
    assert (trajectory.status, trajectory.final_answer, len(trajectory.turns)) == (Status.OVER_BUDGET, None, 5)
    assert trajectory.detail == "asked for tool step 5; at most 4 are allowed"
    assert toolbox.queries == ["q0", "q1", "q2", "q3"] and trajectory.turns[-1].tool_results == ()


def test_a_budget_of_zero_allows_the_answer_alone() -> None:
    assert play(ANSWER, config=AgentConfig(max_tool_steps=0))[0].status is Status.COMPLETED
    assert play(as_call("q"), config=AgentConfig(max_tool_steps=0))[0].status is Status.OVER_BUDGET


def test_calls_of_one_turn_run_in_order_and_count_as_one_step() -> None:
    trajectory, generate = play(as_call("first") + as_call("second"), ANSWER)
    assert [result.text for result in trajectory.turns[0].tool_results] == ["found first", "found second"]
    assert trajectory.num_tool_steps == 1
    assert generate.seen[1][-3:] == [
        {"role": "assistant", "content": as_call("first") + as_call("second")},
        {"role": "tool", "content": "found first", "tool_call_id": "call_0_0"},
        {"role": "tool", "content": "found second", "tool_call_id": "call_0_1"},
    ]


def test_the_history_only_grows() -> None:
    _, generate = play(as_call("a"), as_call("b"), ANSWER)
    assert generate.seen[1][: len(generate.seen[0])] == generate.seen[0]
    assert generate.seen[2][: len(generate.seen[1])] == generate.seen[1]
    assert len({message["tool_call_id"] for message in generate.seen[2] if message["role"] == "tool"}) == 2


def test_too_many_calls_in_one_turn_break_the_format_and_none_runs() -> None:
    toolbox = EchoToolbox()
    trajectory, _ = play(as_call("a") * 3, toolbox=toolbox)
    assert (trajectory.status, trajectory.detail) == (Status.ERROR_PARSE, "3 tool calls in one turn; at most 2 are allowed")
    assert trajectory.turns[0].error == trajectory.detail and toolbox.queries == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<tool_call>{</tool_call>", "valid JSON"),
        (as_call("x", name="delete_bank"), "unknown tool"),
        ('<tool_call>{"name": "search_records", "arguments": {"query": 3}}</tool_call>', "must be of type string"),
        ('<tool_call>{"name": "search_records", "arguments": {}}</tool_call>', "is missing"),
        ("Oslo", "neither a tool call nor an <answer>"),
        (ANSWER + as_call("x"), "after the final answer"),
        (ANSWER + ANSWER, "after the final answer"),
    ],
)
def test_a_turn_that_does_not_parse_ends_the_episode_with_its_problem(text: str, problem: str) -> None:
    trajectory, _ = play(as_call("a"), text)
    assert trajectory.status is Status.ERROR_PARSE and problem in trajectory.detail
    assert trajectory.turns[1].error == trajectory.detail and trajectory.turns[1].text == text


def test_an_empty_result_is_read_and_the_episode_goes_on() -> None:
    trajectory, generate = play(as_call("nothing"), ANSWER)
    assert trajectory.status is Status.COMPLETED and not trajectory.tool_results[0].is_success
    assert generate.seen[1][-1]["content"] == "No records found."


def test_a_turn_cut_at_the_limit_is_truncated_even_if_its_text_parses() -> None:
    cut = AssistantTurn(text=ANSWER, parsed=parse_turn(ANSWER, tool_format="hermes", tools=MEMORY_TOOLS), is_truncated=True)
    trajectory, _ = play(as_call("a"), cut)
    assert (trajectory.status, trajectory.detail, trajectory.final_answer) == (Status.TRUNCATED, "the turn was cut at the length limit", None)
    empty = AssistantTurn(text="", parsed=parse_turn("", tool_format="hermes", tools=MEMORY_TOOLS), is_truncated=True)
    assert play(empty)[0].detail == "no room was left for a turn"


def test_a_broken_tool_is_ours_and_keeps_what_came_before_it() -> None:
    toolbox = EchoToolbox()
    trajectory, _ = play(as_call("a"), as_call("b") + as_call("broken"), toolbox=toolbox)
    assert (trajectory.status, trajectory.detail) == (Status.ERROR_TOOL, "search_records: index is gone")
    assert [result.text for result in trajectory.turns[1].tool_results] == ["found b"]


@pytest.mark.parametrize("error", [LLMError("HTTP 500"), BackendError("server died")])
def test_a_broken_engine_is_ours_and_keeps_the_turns_before_it(error: Exception) -> None:
    trajectory, _ = play(as_call("a"), error)
    assert (trajectory.status, trajectory.detail, len(trajectory.turns)) == (Status.ERROR_LLM, f"{type(error).__name__}: {error}", 1)


@pytest.mark.parametrize("error", [StaleWeightsError("step 3, expected 4"), KeyError("a bug")])
def test_a_broken_promise_and_a_programming_error_are_not_hidden(error: Exception) -> None:
    with pytest.raises(type(error)):
        play(error)
    with pytest.raises(KeyError):
        play(as_call("bug"))


def test_tokens_of_the_engine_pass_through_to_the_sample() -> None:
    call, answer = as_call("a"), ANSWER
    first = AssistantTurn(
        text=call, parsed=parse_turn(call, tool_format="hermes", tools=MEMORY_TOOLS), prompt_ids=(1, 2), response_ids=(3,), logprobs=(-0.5,), policy_version=7
    )
    second = AssistantTurn(
        text=answer,
        parsed=parse_turn(answer, tool_format="hermes", tools=MEMORY_TOOLS),
        prompt_ids=(1, 2, 3, 8),
        response_ids=(4,),
        logprobs=(-0.25,),
        policy_version=7,
    )
    trajectory, _ = play(first, second)
    assert [turn.policy_version for turn in trajectory.turns] == [7, 7]
    assert build_sample(trajectory) == ([1, 2], [3, 8, 4], [1, 0, 1], [-0.5, 0.0, -0.25])


def test_native_tool_calls_go_back_to_the_endpoint_with_its_own_ids() -> None:
    chat = ScriptedChat([ChatReply(text="", tool_calls=(RawToolCall(call_id="abc", name="search_records", arguments='{"query": "Ana"}'),)), ANSWER])
    trajectory = asyncio.run(run_episode(TASK, ChatGenerate(chat), EchoToolbox(), CONFIG))
    assert (trajectory.status, trajectory.tool_results[0].text) == (Status.COMPLETED, "found Ana")
    assistant, tool = chat.requests[1]["messages"][-2:]
    assert assistant["tool_calls"][0]["id"] == tool["tool_call_id"] == "abc" and tool["content"] == "found Ana"


def test_episodes_that_run_side_by_side_share_nothing() -> None:
    async def run_both() -> list[Trajectory]:
        generates = [ScriptedGenerate([as_call(name), f"<answer>{name}</answer>"]) for name in ("a", "b")]
        return await asyncio.gather(*(run_episode(TASK, generate, EchoToolbox(), CONFIG) for generate in generates))

    first, second = asyncio.run(run_both())
    assert (first.final_answer, first.tool_results[0].text, second.final_answer, second.tool_results[0].text) == ("a", "found a", "b", "found b")


BOOK = ToolSpec(
    name="book_table", description="Book a table.", parameters={"type": "object", "properties": {"seats": {"type": "integer"}}, "required": ["seats"]}
)
BOOKING = '<tool_call>{"name": "book_table", "arguments": {"seats": 4}}</tool_call>'


def play_with_function(*steps: str, toolbox: EchoToolbox | None = None) -> Trajectory:
    return asyncio.run(run_episode(TASK, ScriptedGenerate(steps), toolbox or EchoToolbox(), CONFIG, functions=[BOOK]))


def test_a_call_of_the_tasks_own_function_is_the_answer_and_is_not_run() -> None:
    toolbox = EchoToolbox()
    trajectory = play_with_function(as_call("q"), BOOKING, toolbox=toolbox)
    assert trajectory.status is Status.COMPLETED and trajectory.num_tool_steps == 1 and toolbox.queries == ["q"]
    assert read_function_calls(trajectory.final_answer or "") == (ToolCall(name="book_table", arguments={"seats": 4}),)


def test_memory_and_function_calls_do_not_mix_in_one_turn() -> None:
    trajectory = play_with_function(BOOKING + as_call("q"))
    assert trajectory.status is Status.ERROR_PARSE and "in one turn" in trajectory.detail


def test_a_function_call_is_allowed_where_all_tool_steps_are_used_up() -> None:
    assert play_with_function(*[as_call(f"q{i}") for i in range(4)], BOOKING).status is Status.COMPLETED


def test_a_function_named_like_a_memory_tool_is_refused() -> None:
    with pytest.raises(DataError, match="read_file"):
        asyncio.run(run_episode(TASK, ScriptedGenerate([ANSWER]), EchoToolbox(), CONFIG, functions=[MEMORY_TOOLS[-1]]))


def test_a_tool_that_is_not_on_offer_does_not_parse() -> None:
    chat = ScriptedChat([as_call("q", "search_conversation")])
    trajectory = asyncio.run(run_episode(TASK, ChatGenerate(chat), EchoToolbox(), CONFIG, tools=MEMORY_TOOLS[:1]))
    assert trajectory.status is Status.ERROR_PARSE and "search_conversation" in trajectory.detail
