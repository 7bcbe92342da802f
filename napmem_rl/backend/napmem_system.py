"""NapMem as a system of `backend/systems.py`: the policy walks a bank with tools, and is paid by the rubric of section 3.4."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from napmem_rl.backend.bank_cache import BankCache
from napmem_rl.backend.settings import JobSettings
from napmem_rl.config.sections import AgentConfig, AnswererConfig, JudgeConfig, MemChainConfig
from napmem_rl.evals.metrics import Facts, Metric, trajectory_facts
from napmem_rl.llm.base import Generate
from napmem_rl.llm.served import ServedEndpoint
from napmem_rl.rewards.judge import build_judge, check_judge
from napmem_rl.schema import AnswerKey, ScoredTrajectory, Task, Trajectory
from napmem_rl.systems.napmem.episode import run_episode
from napmem_rl.systems.napmem.reward import score_trajectory
from napmem_rl.tools.memory_tools import MemoryToolbox, ToolLimits


class NapMemPlayer:
    """A `Player`: the task's bank behind the memory tools."""

    def __init__(self, settings: JobSettings, banks: BankCache, count_tokens: Callable[[str], int]) -> None:
        self._settings, self._banks, self._count_tokens = settings, banks, count_tokens

    async def play(self, task: Task, row: Mapping[str, Any], generate: Generate) -> Trajectory:
        """See `Player`."""
        agent, bank = self._settings.agent, await self._banks.get(task.bank_id)
        limits = ToolLimits(top_k=self._settings.memory.top_k, max_result_tokens=agent.max_result_tokens, max_episode_tokens=agent.max_episode_tool_tokens)
        toolbox = MemoryToolbox(bank, asked_at=task.asked_at, limits=limits, count_tokens=self._count_tokens)
        return await run_episode(task, generate, toolbox, agent)


class NapMemScorer:
    """A `Scorer`: format, judge, memory use."""

    def __init__(self, judge: JudgeConfig, agent: AgentConfig, served: ServedEndpoint | None = None) -> None:
        self._judge, self._agent = build_judge(judge, served), agent
        self.name = self._judge.name

    async def score(self, played: Trajectory, key: AnswerKey) -> tuple[ScoredTrajectory, Facts]:
        """See `score_trajectory` and `trajectory_facts`."""
        scored = await score_trajectory(played, key, self._judge, self._agent)
        return scored, trajectory_facts(scored, key)

    async def check_models(self) -> None:
        """See `Scorer`."""
        await check_judge(self._judge)


class NapMemSystem:
    """A `System` whose episodes are trajectories and nothing else."""

    logged_in_validation = (Metric.CORRECTNESS, Metric.APPROPRIATE_USE, Metric.FORMAT, Metric.CALLS_PER_QUESTION, Metric.MULTI_LEVEL_RATE)

    def build_player(self, settings: JobSettings, banks: BankCache, count_tokens: Callable[[str], int]) -> NapMemPlayer:
        """See `System`."""
        return NapMemPlayer(settings, banks, count_tokens)

    def build_scorer(
        self, judge: JudgeConfig, agent: AgentConfig, memchain: MemChainConfig, answerer: AnswererConfig, served: ServedEndpoint | None = None
    ) -> NapMemScorer:
        """See `System`; the sections of MemChain are not read."""
        return NapMemScorer(judge, agent, served)

    def trajectory_of(self, played: Trajectory) -> Trajectory:
        """Itself."""
        return played

    def with_trajectory(self, played: Trajectory, trajectory: Trajectory) -> Trajectory:
        """The other one."""
        return trajectory

    def state_facts(self, scored: ScoredTrajectory, key: AnswerKey) -> Facts:
        """See `trajectory_facts`."""
        return trajectory_facts(scored, key)

    def render(self, played: Trajectory) -> dict[str, Any]:
        """Nothing: the trajectory says it all."""
        return {}
