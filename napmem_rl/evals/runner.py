"""Run a policy over tasks: the same episodes and the same scoring as in training, without a trainer.

What varies comes in as functions: how the policy generates and how a bank is opened. So a rollout server, a model in this process, an endpoint and a fixed
script are evaluated by one loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from napmem_rl.config.sections import AgentConfig
from napmem_rl.llm.base import Generate
from napmem_rl.rewards.judge import Judge
from napmem_rl.schema import AnswerKey, ScoredTrajectory, Task
from napmem_rl.systems.napmem.episode import Toolbox, run_episode
from napmem_rl.systems.napmem.reward import score_trajectory

MAX_CONCURRENCY = 128


async def evaluate_policy(
    items: Sequence[tuple[Task, AnswerKey]],
    *,
    build_generate: Callable[[Task], Generate],
    build_toolbox: Callable[[Task], Toolbox],
    agent: AgentConfig,
    judge: Judge,
    max_concurrency: int = MAX_CONCURRENCY,
    on_done: Callable[[int], None] | None = None,
) -> list[ScoredTrajectory]:
    """Run and score one episode for each task.

    Args:
        items: tasks with their keys; the policy sees the tasks alone.
        build_generate: a fresh policy context for one episode.
        build_toolbox: a fresh toolbox over the task's own bank.
        on_done: called with the number of finished episodes.

    Returns:
        One ScoredTrajectory a task, in the order of `items`.
    """
    gate = asyncio.Semaphore(max_concurrency)
    finished = 0

    async def run_one(task: Task, key: AnswerKey) -> ScoredTrajectory:
        nonlocal finished
        async with gate:
            trajectory = await run_episode(task, build_generate(task), build_toolbox(task), agent)
            scored = await score_trajectory(trajectory, key, judge, agent)
        finished += 1
        if on_done is not None:
            on_done(finished)
        return scored

    return list(await asyncio.gather(*(run_one(task, key) for task, key in items)))
