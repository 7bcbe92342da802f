"""Policies that look things up themselves: NapMem's episode over all tools or a part of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from napmem_rl.config.sections import AgentConfig
from napmem_rl.evals.policies.metering import MeteredGenerate
from napmem_rl.evals.policies.model import Episode, PolicyModel
from napmem_rl.evals.policy import Attempt
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.schema import Task
from napmem_rl.systems.napmem.episode import run_episode
from napmem_rl.tools.memory_tools import READ_FILE, MemoryToolbox, ToolLimits
from napmem_rl.tools.spec import MEMORY_TOOLS, ToolSpec

RECORD_TOOLS = ("search_records", "get_records")


def choose_tools(access: str, *, upper_levels: bool) -> tuple[ToolSpec, ...]:
    """The tools that an access offers: those over records alone, or all, or all but `read_file` where the upper levels are left out."""
    if access == "records":
        return tuple(tool for tool in MEMORY_TOOLS if tool.name in RECORD_TOOLS)
    return tuple(tool for tool in MEMORY_TOOLS if upper_levels or tool.name != READ_FILE)


class Navigator:
    """Accesses navigate and records. A `Policy`."""

    def __init__(
        self,
        model: PolicyModel,
        *,
        agent: AgentConfig,
        top_k: int,
        tools: Sequence[ToolSpec],
        functions: Mapping[str, tuple[ToolSpec, ...]] | None,
        name: str,
        facts: Mapping[str, Any],
    ) -> None:
        """Args:
            model: who acts.
            agent: limits of an episode.
            top_k: items that a search returns.
            tools: memory tools on offer.
            functions: task id -> functions of the task itself; None where no task has any.
            name, facts: see `Policy`.
        """
        self._model, self._agent, self._tools, self._functions = model, agent, tuple(tools), dict(functions or {})
        self._limits = ToolLimits(top_k=top_k, max_result_tokens=agent.max_result_tokens, max_episode_tokens=agent.max_episode_tool_tokens)
        self.name, self.facts = name, dict(facts)

    async def answer(self, task: Task, bank: MemoryBank, *, seed: int) -> Attempt:
        """See `Policy`."""
        started = time.perf_counter()
        toolbox = MemoryToolbox(bank, asked_at=task.asked_at, limits=self._limits, count_tokens=self._model.count_tokens, tools=self._tools)
        generate = MeteredGenerate(self._model.build_generate(Episode(task_id=task.task_id, seed=seed, limits=self._agent)))
        trajectory = await run_episode(task, generate, toolbox, self._agent, tools=self._tools, functions=self._functions.get(task.task_id, ()))
        is_metered = bool(trajectory.turns)
        return Attempt(
            trajectory=trajectory,
            context_ids=tuple(dict.fromkeys(message_id for result in trajectory.tool_results for message_id in result.message_ids)),
            prompt_tokens=generate.prompt_tokens if is_metered else None,
            completion_tokens=generate.completion_tokens if is_metered else None,
            latency_s=time.perf_counter() - started,
            retrieval_s=sum(result.latency_s for result in trajectory.tool_results),
        )

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()
