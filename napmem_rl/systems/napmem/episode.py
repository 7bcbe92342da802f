"""One NapMem episode: the policy calls memory tools, reads results, answers (arXiv 2607.05794, sections 3.3 and 4.1).

The policy comes in as `generate` and the tools as `toolbox`, so that training, evaluation and tests run this same loop.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence, Set
from typing import Any, Protocol

from napmem_rl.config.sections import AgentConfig
from napmem_rl.errors import BackendError, DataError, LLMError, StaleWeightsError, ToolError
from napmem_rl.llm.base import AssistantTurn, Generate
from napmem_rl.schema import PromptFacts, Status, Task, ToolCall, ToolResult, Trajectory, Turn
from napmem_rl.systems.napmem.prompts import PROMPT_VERSION, build_messages
from napmem_rl.tools.function_calls import render_function_calls
from napmem_rl.tools.spec import MEMORY_TOOLS, ToolSpec


class Toolbox(Protocol):
    """The memory tools over one user's bank."""

    @property
    def file_names(self) -> Sequence[str]:
        """The files that `read_file` can show."""
        ...

    async def call(self, call: ToolCall) -> ToolResult:
        """Run one call; a readable failure is a result. Raises ToolError where the fault is ours."""
        ...


async def run_episode(
    task: Task, generate: Generate, toolbox: Toolbox, config: AgentConfig, *, tools: Sequence[ToolSpec] = MEMORY_TOOLS, functions: Sequence[ToolSpec] = ()
) -> Trajectory:
    """Let the policy answer one task.

    At most `config.max_tool_steps` turns with calls, then the answer. How it can end:

    - completed: a turn without calls that holds exactly one final answer;
    - over_budget: a well-formed turn with calls where only an answer was left; its calls are not run;
    - truncated: the engine cut a turn at a length limit, or had no room for one;
    - error_parse: a turn that does not parse (malformed call, unknown tool, ill-typed argument, no answer), or with more than `max_calls_per_turn` calls;
    - error_tool, error_llm: ToolError; LLMError or BackendError. Ours, never trained on.

    Calls of one turn run in order. An unknown id or an empty result is a readable result and the episode goes on.

    Args:
        task: the question.
        generate: the policy.
        toolbox: of the task's own bank.
        config: limits.
        tools: the memory tools on offer; `toolbox` must know all of them.
        functions: what the task itself offers, for control tasks that ask for function calls. They are never run: a well-formed turn that calls them, and no
            memory tool, completes the episode with the calls as its answer (`render_function_calls`).

    Raises:
        DataError: a function with the name of a memory tool, or a task that cannot be asked.
        StaleWeightsError: a broken promise of the trainer, which touches every episode and must not pass as one lost trajectory.
    """
    messages = build_messages(
        task,
        file_names=toolbox.file_names,
        max_tool_steps=config.max_tool_steps,
        max_calls_per_turn=config.max_calls_per_turn,
        has_system_prompt=config.system_prompt,
        tools=tools,
        functions=functions,
    )
    offered, own = (*tools, *functions), _check_names(task, tools, functions)
    prompt = PromptFacts(version=PROMPT_VERSION, file_names=tuple(toolbox.file_names), tool_names=tuple(tool.name for tool in offered))
    end = functools.partial(_end, task, prompt)
    turns: list[Turn] = []
    while True:
        try:
            reply = await generate(messages, offered)
        except StaleWeightsError:
            raise
        except (LLMError, BackendError) as error:
            return end(turns, Status.ERROR_LLM, f"{type(error).__name__}: {error}")
        stop = _find_stop(reply, num_tool_steps=len(turns), config=config, functions=own)
        if stop is not None:
            status, detail = stop
            turns.append(_build_turn(reply, error=detail if status is Status.ERROR_PARSE else None))
            answer = render_function_calls(reply.parsed.calls) if reply.parsed.answer is None else reply.parsed.answer
            return end(turns, status, detail, answer)
        results, failure = await _run_calls(reply.parsed.calls, toolbox)
        turns.append(_build_turn(reply, results))
        if failure is not None:
            return end(turns, Status.ERROR_TOOL, failure)
        messages = messages + _render_exchange(reply, results, turn_index=len(turns) - 1)


def _check_names(task: Task, tools: Sequence[ToolSpec], functions: Sequence[ToolSpec]) -> frozenset[str]:
    """The names of a task's own functions."""
    own = frozenset(function.name for function in functions)
    clash = own & {tool.name for tool in tools}
    if clash:
        raise DataError.of(f"task {task.task_id}", "has a function with the name of a memory tool", got=sorted(clash), fix="Rename it in the task's file.")
    return own


def _find_stop(reply: AssistantTurn, *, num_tool_steps: int, config: AgentConfig, functions: Set[str]) -> tuple[Status, str] | None:
    """Why the episode ends with this turn, or None where its calls are to be run."""
    parsed = reply.parsed
    if reply.is_truncated:
        return Status.TRUNCATED, "the turn was cut at the length limit" if reply.text else "no room was left for a turn"
    if parsed.error is not None:
        return Status.ERROR_PARSE, parsed.error
    if parsed.answer is not None:
        return Status.COMPLETED, ""
    named = {call.name for call in parsed.calls}
    if named & functions:
        return (Status.ERROR_PARSE, "calls of memory tools and of the task's functions in one turn") if named - functions else (Status.COMPLETED, "")
    if len(parsed.calls) > config.max_calls_per_turn:
        return Status.ERROR_PARSE, f"{len(parsed.calls)} tool calls in one turn; at most {config.max_calls_per_turn} are allowed"
    if num_tool_steps >= config.max_tool_steps:
        return Status.OVER_BUDGET, f"asked for tool step {num_tool_steps + 1}; at most {config.max_tool_steps} are allowed"
    return None


async def _run_calls(calls: Sequence[ToolCall], toolbox: Toolbox) -> tuple[tuple[ToolResult, ...], str | None]:
    """The results in order, and what broke, if anything did; calls after it are not run."""
    results: list[ToolResult] = []
    for call in calls:
        try:
            results.append(await toolbox.call(call))
        except ToolError as error:
            return tuple(results), f"{call.name}: {error}"
    return tuple(results), None


def _render_exchange(reply: AssistantTurn, results: Sequence[ToolResult], *, turn_index: int) -> list[dict[str, Any]]:
    """A turn with calls and their results, as messages."""
    assistant: Mapping[str, Any] = reply.message if reply.message is not None else {"role": "assistant", "content": reply.text}
    call_ids = reply.tool_call_ids or tuple(f"call_{turn_index}_{i}" for i in range(len(results)))
    tools = [{"role": "tool", "content": result.text, "tool_call_id": call_id} for call_id, result in zip(call_ids, results, strict=True)]
    return [dict(assistant), *tools]


def _build_turn(reply: AssistantTurn, results: tuple[ToolResult, ...] = (), error: str | None = None) -> Turn:
    return Turn(
        text=reply.text,
        tool_results=results,
        prompt_ids=tuple(reply.prompt_ids),
        response_ids=tuple(reply.response_ids),
        rollout_logprobs=tuple(reply.logprobs),
        policy_version=reply.policy_version,
        error=error,
    )


def _end(task: Task, prompt: PromptFacts, turns: Sequence[Turn], status: Status, detail: str, answer: str | None = None) -> Trajectory:
    final_answer = answer if status is Status.COMPLETED else None
    return Trajectory(task=task, turns=tuple(turns), final_answer=final_answer, status=status, detail=detail, prompt=prompt)
