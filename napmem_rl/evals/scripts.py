"""Fixed scripts of tool calls: the strongest policy that does not look at the question's kind.

A script makes the same calls for every question, and a perfect reader of synthetic worlds answers from the results. What a script reaches is an upper bound
for any policy that never chooses, so a trained policy should be read beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from napmem_rl.config.sections import AgentConfig
from napmem_rl.data.world_reader import read_answer
from napmem_rl.evals.metrics import Facts, Metric, aggregate, trajectory_facts
from napmem_rl.evals.runner import evaluate_policy
from napmem_rl.llm.base import AssistantTurn
from napmem_rl.rewards.judge import LexicalJudge
from napmem_rl.schema import AnswerKey, Task, ToolCall
from napmem_rl.systems.napmem.episode import Toolbox
from napmem_rl.tools.parse import ParsedTurn
from napmem_rl.tools.spec import ToolSpec

Script = tuple[str, ...]  # tool names, one call a turn; searches take the question as their query

SCRIPTS: Mapping[str, Script] = MappingProxyType(
    {
        "no memory": (),
        "records": ("search_records",),
        "conversation": ("search_conversation",),
        "profile": ("read_file",),
        "records + conversation": ("search_records", "search_conversation"),
        "conversation + profile": ("search_conversation", "read_file"),
        "profile + records + conversation": ("read_file", "search_records", "search_conversation"),
    }
)


class ScriptPolicy:
    """A `Generate` that plays a script for one task and then answers with the perfect reader."""

    def __init__(self, script: Script, task: Task) -> None:
        self._script, self._task = script, task

    async def __call__(self, messages: list[dict[str, Any]], tools: Sequence[ToolSpec]) -> AssistantTurn:
        """The script's next call, or the answer once all calls are made."""
        shown = [message["content"] for message in messages if message["role"] == "tool"]
        if len(shown) == len(self._script):
            answer = read_answer(self._task.question, shown)
            return AssistantTurn(text=f"<answer>{answer}</answer>", parsed=_parsed(answer=answer))
        name = self._script[len(shown)]
        arguments = {"file_name": "profile.md"} if name == "read_file" else {"query": self._task.question}
        return AssistantTurn(text=name, parsed=_parsed(calls=(ToolCall(name=name, arguments=arguments),)))


def _parsed(*, calls: tuple[ToolCall, ...] = (), answer: str | None = None) -> ParsedTurn:
    return ParsedTurn(thinking=None, content="", calls=calls, answer=answer, error=None)


def run_script(script: Script, items: Sequence[tuple[Task, AnswerKey]], *, build_toolbox: Callable[[Task], Toolbox], agent: AgentConfig) -> list[Facts]:
    """Facts of one script over the tasks, judged lexically."""
    scored = asyncio.run(
        evaluate_policy(items, build_generate=lambda task: ScriptPolicy(script, task), build_toolbox=build_toolbox, agent=agent, judge=LexicalJudge())
    )
    return [trajectory_facts(one, key) for one, (_, key) in zip(scored, items, strict=True)]


def choose_best_script(items: Sequence[tuple[Task, AnswerKey]], *, build_toolbox: Callable[[Task], Toolbox], agent: AgentConfig) -> str:
    """Name of the script with the highest mean reward; of equals, the first. Choose on tasks that are not evaluated on."""
    rewards = {name: aggregate(run_script(script, items, build_toolbox=build_toolbox, agent=agent))[Metric.REWARD] for name, script in SCRIPTS.items()}
    return max(rewards, key=lambda name: rewards[name])
