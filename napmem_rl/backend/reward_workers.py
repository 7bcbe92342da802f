"""Reward workers: Ray actors that hold the judge and score episodes against answer keys, the only processes of a job that compare the two."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import ray

from napmem_rl.backend.death_watch import means_death
from napmem_rl.backend.settings import JobSettings
from napmem_rl.backend.stacks import arm_stacks
from napmem_rl.backend.systems import SYSTEMS, Played, System, find_system
from napmem_rl.config.sections import AgentConfig, AnswererConfig, JudgeConfig, MemChainConfig
from napmem_rl.evals.metrics import Facts
from napmem_rl.llm.served import ServedEndpoint
from napmem_rl.schema import AnswerKey, ScoredTrajectory, Trajectory

MAX_RESTARTS = 3  # of one worker that died
WORKER_DIED = "reward_worker died"  # how an abstention for lack of a worker begins
MAX_ATTEMPTS = 3  # workers that one trajectory is offered to before it is abstained from
RETRY_WAIT_S = 5.0  # before another attempt: while an actor restarts, Ray refuses its calls at once


class RewardWorker:
    """The actor's body: one system's scorer with its judge, many episodes at a time."""

    def __init__(
        self,
        judge: JudgeConfig,
        agent: AgentConfig,
        *,
        system: str = "napmem",
        memchain: MemChainConfig | None = None,
        answerer: AnswererConfig | None = None,
        served: ServedEndpoint | None = None,
    ) -> None:
        arm_stacks()
        self._served = served
        self._scorer = find_system(system).build_scorer(judge, agent, memchain or MemChainConfig(), answerer or AnswererConfig(), served)

    async def score(self, played: Played, key: AnswerKey) -> tuple[ScoredTrajectory, Facts]:
        """Reward one episode, or abstain, and state its facts (see `Scorer`)."""
        return await self._scorer.score(played, key)

    async def ready(self) -> str:
        """The judge's name, once the worker can score. A model that is served beside training is asked here for the first time.

        Raises:
            ConfigError: it cannot be used as judge or answer model.
        """
        if self._served is not None:
            await self._scorer.check_models()
        return self._scorer.name


def start_reward_workers(settings: JobSettings, *, node_ids: Sequence[str]) -> list[Any]:
    """Start `reward.num_workers` actors, spread over the nodes.

    Returns:
        handles; the actors die with the last handle to them.
    """
    remote = ray.remote(RewardWorker)
    sections = {"system": settings.system, "memchain": settings.memchain, "answerer": settings.answerer, "served": settings.served}
    workers = []
    for index in range(settings.reward.num_workers):
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node_id=node_ids[index % len(node_ids)], soft=True)
        options = {"num_cpus": 0, "max_concurrency": settings.reward.max_concurrency, "max_restarts": MAX_RESTARTS, "scheduling_strategy": strategy}
        workers.append(remote.options(**options).remote(settings.judge, settings.agent, **sections))
    return workers


class RewardPool:
    """Sends episodes to reward workers in turn, and to another worker when one dies."""

    def __init__(self, workers: Sequence[Any], *, first: int = 0, system: System = SYSTEMS["napmem"]) -> None:
        """Args:
            workers: actor handles, at least one.
            first: where to begin, different for each client, so that workers are loaded evenly.
            system: whose episodes these are.
        """
        self._system = system
        self._next = itertools.cycle([*workers[first % len(workers) :], *workers[: first % len(workers)]])

    async def score(self, played: Played, key: AnswerKey) -> tuple[ScoredTrajectory, Facts]:
        """Score one episode and state its facts. One whose workers die `MAX_ATTEMPTS` times is abstained from, with the reason.

        The result carries the trajectory as given, token ids included; those do not travel to the worker.
        """
        trajectory = self._system.trajectory_of(played)
        bare = self._system.with_trajectory(played, drop_tokens(trajectory))
        problem = ""
        for attempt in range(MAX_ATTEMPTS):
            if attempt:
                await asyncio.sleep(RETRY_WAIT_S)
            try:
                scored, facts = await next(self._next).score.remote(bare, key)
            except ray.exceptions.RayError as error:
                if not (means_death(error) or isinstance(error, ray.exceptions.ActorUnavailableError)):
                    raise  # the worker lives and failed: a defect
                problem = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
                continue
            return dataclasses.replace(scored, trajectory=trajectory), facts
        scored = ScoredTrajectory(trajectory=trajectory, reward=None, abstained=f"{WORKER_DIED}: {MAX_ATTEMPTS} times ({problem})")
        return scored, self._system.state_facts(scored, key)


def drop_tokens(trajectory: Trajectory) -> Trajectory:
    """The trajectory without token ids: what a reward needs, a fraction of the bytes (each turn's prompt repeats all before it)."""
    turns = tuple(dataclasses.replace(turn, prompt_ids=(), response_ids=(), rollout_logprobs=()) for turn in trajectory.turns)
    return dataclasses.replace(trajectory, turns=turns)
