"""The memory systems that a job can train: how each plays an episode and how it scores one. The one place that names them.

What an episode leaves behind (`Played`) is the system's own type: a trajectory, or something that holds one. The engine looks at its trajectory alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from napmem_rl.backend.bank_cache import BankCache
from napmem_rl.backend.memchain_system import MemChainSystem
from napmem_rl.backend.napmem_system import NapMemSystem
from napmem_rl.backend.settings import JobSettings
from napmem_rl.config.sections import AgentConfig, AnswererConfig, JudgeConfig, MemChainConfig
from napmem_rl.errors import ConfigError
from napmem_rl.evals.metrics import Facts
from napmem_rl.llm.base import Generate
from napmem_rl.llm.served import ServedEndpoint
from napmem_rl.schema import AnswerKey, ScoredTrajectory, Task, Trajectory

Played = Any  # of one system: what its player returns and its scorer takes; travels between processes


class Player(Protocol):
    """Plays episodes of one agent-loop worker."""

    async def play(self, task: Task, row: Mapping[str, Any], generate: Generate) -> Played:
        """One episode; `row` is the dataset's, of which the system may read columns of its own but never the answer key. Raises DataError, BankError."""
        ...


class Scorer(Protocol):
    """Rewards episodes of one reward worker."""

    name: str  # of the judge

    async def score(self, played: Played, key: AnswerKey) -> tuple[ScoredTrajectory, Facts]:
        """The episode with its reward, or an abstention, and what is known of it."""
        ...

    async def check_models(self) -> None:
        """Ask each model behind an endpoint for something plain. Raises ConfigError where one cannot be used."""
        ...


class System(Protocol):
    """One memory system."""

    logged_in_validation: tuple[str, ...]  # names of facts that verl averages over a validation, beside the reward

    def build_player(self, settings: JobSettings, banks: BankCache, count_tokens: Callable[[str], int]) -> Player:
        """For one agent-loop worker."""
        ...

    def build_scorer(
        self, judge: JudgeConfig, agent: AgentConfig, memchain: MemChainConfig, answerer: AnswererConfig, served: ServedEndpoint | None = None
    ) -> Scorer:
        """For one reward worker; `served` is the model beside training, where there is one. Raises ConfigError where a model cannot be used."""
        ...

    def trajectory_of(self, played: Played) -> Trajectory:
        """The common form of an episode."""
        ...

    def with_trajectory(self, played: Played, trajectory: Trajectory) -> Played:
        """The same with another trajectory, for instance one without token ids."""
        ...

    def state_facts(self, scored: ScoredTrajectory, key: AnswerKey) -> Facts:
        """What is known of an episode that no worker could score."""
        ...

    def render(self, played: Played) -> dict[str, Any]:
        """What the log of trajectories holds beside the trajectory, JSON-ready."""
        ...


SYSTEMS: Mapping[str, System] = {"napmem": NapMemSystem(), "memchain": MemChainSystem()}


def find_system(name: str) -> System:
    """The system of a recipe's key `system`. Raises ConfigError for an unknown one."""
    if name not in SYSTEMS:
        raise ConfigError.of("key system", "is none of the memory systems", got=name, expected=" or ".join(SYSTEMS))
    return SYSTEMS[name]
