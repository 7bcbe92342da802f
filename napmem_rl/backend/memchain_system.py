"""MemChain as a system of `backend/systems.py`: one packet over retrieved candidates, paid by equations 15 and 16 (arXiv 2607.24097)."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from napmem_rl.backend.bank_cache import BankCache
from napmem_rl.backend.settings import JobSettings
from napmem_rl.config.sections import AgentConfig, AnswererConfig, JudgeConfig, MemChainConfig
from napmem_rl.data.packet_rows import CANDIDATES
from napmem_rl.evals.metrics import Facts
from napmem_rl.llm.base import Generate
from napmem_rl.llm.served import ServedEndpoint
from napmem_rl.rewards.judge import build_judge, check_judge
from napmem_rl.schema import AnswerKey, ScoredTrajectory, Task, Trajectory
from napmem_rl.systems.memchain.answer_models import build_answer_model, check_answer_model
from napmem_rl.systems.memchain.candidate_file import find_candidates, load_candidates, parse_candidates
from napmem_rl.systems.memchain.candidates import BankViews, Candidate, CandidateConfig, retrieve_candidates
from napmem_rl.systems.memchain.config import InvalidActions, RewardSettings
from napmem_rl.systems.memchain.episode import PacketEpisode, run_episode, score_episode
from napmem_rl.systems.memchain.facts import HAS_EVIDENCE, PARSED, compute_packet_facts, count_costs, state_identity
from napmem_rl.systems.memchain.packet import FORMS, PacketForm
from napmem_rl.systems.memchain.rendering import render_episode

MAX_HELD = 512  # tasks whose candidates are kept: all samples of a group have the same
MAX_VIEWS = 32  # banks with their searches


def build_form(config: MemChainConfig) -> PacketForm:
    """The parts of a packet that a recipe asks for."""
    return FORMS[config.ablation]


def build_reward_settings(config: MemChainConfig) -> RewardSettings:
    """How a recipe has packets rewarded."""
    return RewardSettings(num_answers=config.num_answers, invalid_actions=InvalidActions(config.invalid_actions))


class CandidateSource:
    """C_q of a task: out of its row, else out of the recipe's file, else retrieved from its bank. For one event loop; never sees an answer key."""

    def __init__(self, config: MemChainConfig, banks: BankCache) -> None:
        """Raises DataError where the recipe's file cannot be used."""
        self._banks = banks
        self._config = CandidateConfig(max_candidates=config.max_candidates)
        self._path = Path(config.candidates) if config.candidates is not None else None
        self._of_file = load_candidates(self._path) if self._path is not None else {}
        self._held: OrderedDict[str, asyncio.Task[tuple[Candidate, ...]]] = OrderedDict()
        self._views: OrderedDict[str, asyncio.Task[BankViews]] = OrderedDict()

    async def find(self, task: Task, row: Mapping[str, Any]) -> tuple[Candidate, ...]:
        """The candidates. Raises DataError or BankError where there are none to be had."""
        if row.get(CANDIDATES):
            found = parse_candidates(row[CANDIDATES], what=f"candidates of row {task.task_id}", asked_at=task.asked_at)
            return found[: self._config.max_candidates]
        if self._path is not None:
            return find_candidates(self._of_file, task, path=self._path)[: self._config.max_candidates]
        return await _share(self._held, task.task_id, lambda: self._retrieve(task), MAX_HELD)

    async def _retrieve(self, task: Task) -> tuple[Candidate, ...]:
        views = await _share(self._views, task.bank_id, lambda: self._open_views(task.bank_id), MAX_VIEWS)
        return await asyncio.to_thread(retrieve_candidates, task, views, self._config)

    async def _open_views(self, bank_id: str) -> BankViews:
        bank = await self._banks.get(bank_id)
        return await asyncio.to_thread(lambda: BankViews(bank, encoder=self._banks.encoder))


async def _share(held: OrderedDict[str, asyncio.Task[Any]], name: str, start: Callable[[], Any], limit: int) -> Any:
    """One result for all who ask by one name; what failed is not kept, and those used longest ago leave first."""
    task = held.get(name)
    if task is None:
        task = held[name] = asyncio.create_task(start())
    held.move_to_end(name)
    while len(held) > limit:
        held.popitem(last=False)
    try:
        return await asyncio.shield(task)
    except BaseException:
        if task.done() and held.get(name) is task:
            del held[name]
        raise


class MemChainPlayer:
    """A `Player`: candidates, then one packet."""

    def __init__(self, settings: JobSettings, banks: BankCache, count_tokens: Callable[[str], int]) -> None:
        self._source, self._form = CandidateSource(settings.memchain, banks), build_form(settings.memchain)
        self._count_tokens = count_tokens

    async def play(self, task: Task, row: Mapping[str, Any], generate: Generate) -> PacketEpisode:
        """See `Player`. Nothing is asked a second time in training (Algorithm 1, line 5 is for evaluation)."""
        started = time.perf_counter()
        candidates = await self._source.find(task, row)
        found = time.perf_counter()
        played = await run_episode(task, generate, candidates, self._form)
        seconds = {"retrieval_s": found - started, "packet_s": time.perf_counter() - found}
        return dataclasses.replace(played, costs=count_costs(played, self._count_tokens, **seconds))


class MemChainScorer:
    """A `Scorer`: the frozen answer model, the judge, and the pure signals. A failure of either is an abstention."""

    def __init__(self, judge: JudgeConfig, memchain: MemChainConfig, answerer: AnswererConfig, served: ServedEndpoint | None = None) -> None:
        self._judge, self._answerer = build_judge(judge, served), build_answer_model(answerer, served)
        self._settings, self._form = build_reward_settings(memchain), build_form(memchain)
        self.name = self._judge.name

    async def score(self, played: PacketEpisode, key: AnswerKey) -> tuple[ScoredTrajectory, Facts]:
        """See `score_episode` and `compute_packet_facts`."""
        started = time.perf_counter()
        scored, _ = await score_episode(played, key, answerer=self._answerer, judge=self._judge, settings=self._settings, form=self._form)
        timed = dataclasses.replace(played, costs=dataclasses.replace(played.costs, answer_s=time.perf_counter() - started))
        return scored, compute_packet_facts(scored, timed, key)

    async def check_models(self) -> None:
        """See `Scorer`."""
        await check_judge(self._judge)
        await check_answer_model(self._answerer)


class MemChainSystem:
    """A `System` whose episodes are packets."""

    logged_in_validation = ("correctness", "stability", "citations", "support", "gate", PARSED, HAS_EVIDENCE)

    def build_player(self, settings: JobSettings, banks: BankCache, count_tokens: Callable[[str], int]) -> MemChainPlayer:
        """See `System`."""
        return MemChainPlayer(settings, banks, count_tokens)

    def build_scorer(
        self, judge: JudgeConfig, agent: AgentConfig, memchain: MemChainConfig, answerer: AnswererConfig, served: ServedEndpoint | None = None
    ) -> MemChainScorer:
        """See `System`."""
        return MemChainScorer(judge, memchain, answerer, served)

    def trajectory_of(self, played: PacketEpisode) -> Trajectory:
        """Its one turn; the final answer is the evidence."""
        return played.trajectory

    def with_trajectory(self, played: PacketEpisode, trajectory: Trajectory) -> PacketEpisode:
        """The same packet with another trajectory."""
        return dataclasses.replace(played, trajectory=trajectory)

    def state_facts(self, scored: ScoredTrajectory, key: AnswerKey) -> Facts:
        """See `state_identity`."""
        return state_identity(scored, key)

    def render(self, played: PacketEpisode) -> dict[str, Any]:
        """See `render_episode`."""
        return render_episode(played)
