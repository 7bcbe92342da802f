"""One row of verl's dataset → one scored episode as a token list. Knows neither Ray actors nor the TransferQueue, so that tests run it with stand-ins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from napmem_rl.backend.bank_cache import BankCache
from napmem_rl.backend.reward_workers import WORKER_DIED
from napmem_rl.backend.settings import JobSettings
from napmem_rl.backend.systems import Played, find_system
from napmem_rl.backend.token_generate import TokenGenerate, TokenServer, compute_request_seed
from napmem_rl.backend.trajectory_log import TrajectoryLog
from napmem_rl.data.rows import row_to_key, row_to_task
from napmem_rl.evals.metrics import Facts
from napmem_rl.llm.sample import TokenSample, build_sample
from napmem_rl.llm.token_context import encode_plain
from napmem_rl.schema import AnswerKey, ScoredTrajectory, Task


class Rewards(Protocol):
    """Whoever scores an episode; see `RewardPool`."""

    async def score(self, played: Played, key: AnswerKey) -> tuple[ScoredTrajectory, Facts]:
        """The scored trajectory and its facts."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class RowRequest:
    """One session of one prompt: the dataset's row, verl's sampling parameters, the trainer's step, the sample's number within its group, and how often the
    task was handed out in this step before."""

    row: Mapping[str, Any]
    sampling: Mapping[str, Any]
    step: int
    sample_index: int
    is_validation: bool
    repeat: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of a session. `sample` is None where nothing can be trained on; `cause` and `detail` then say why."""

    scored: ScoredTrajectory
    sample: TokenSample | None
    cause: str = ""
    detail: str = ""
    facts: Facts = field(default_factory=dict)
    min_version: int | None = None
    max_version: int | None = None
    generate_s: float = 0.0
    tool_s: float = 0.0
    score_s: float = 0.0


class EpisodeRunner:
    """Runs episodes of one worker process, those of the system that the job trains."""

    def __init__(
        self,
        *,
        settings: JobSettings,
        tokenizer: Any,
        end_ids: tuple[int, ...],
        server: TokenServer,
        banks: BankCache,
        rewards: Rewards,
        log: TrajectoryLog | None,
    ) -> None:
        self._settings = settings
        self._tokenizer = tokenizer
        self._end_ids = end_ids
        self._server = server
        self._system = find_system(settings.system)
        self._player = self._system.build_player(settings, banks, self._count_tokens)
        self._rewards = rewards
        self._log = log

    async def run(self, request: RowRequest) -> Outcome:
        """Play the row's episode, have it scored, and assemble its tokens.

        Raises:
            DataError: the row or its bank cannot be used.
            StaleWeightsError: weights changed within the episode of a synchronous job or of a validation.
            BackendError: the token list is broken.
        """
        task, key = row_to_task(request.row), row_to_key(request.row)
        generate = self._build_generate(task, request)
        played = await self._player.play(task, {name: value for name, value in request.row.items() if name != "answer_key"}, generate)
        trajectory = self._system.trajectory_of(played)
        started = time.perf_counter()
        scored, facts = await self._rewards.score(played, key)
        score_s = time.perf_counter() - started
        await self._write_log(scored, request, min_version=generate.min_version, details=self._system.render(played))
        cause, detail = find_abstention(scored)
        return Outcome(
            scored=scored,
            sample=None if cause else build_sample(trajectory),
            cause=cause,
            detail=detail,
            facts=facts,
            min_version=generate.min_version,
            max_version=generate.max_version,
            generate_s=generate.generate_s,
            tool_s=sum(result.latency_s for result in trajectory.tool_results),
            score_s=score_s,
        )

    def _count_tokens(self, text: str) -> int:
        return len(encode_plain(self._tokenizer, text))

    def _build_generate(self, task: Task, request: RowRequest) -> TokenGenerate:
        def seed_of_turn(turn_index: int) -> int:
            step = -1 - request.step if request.is_validation else request.step
            place = {"task_id": task.task_id, "sample_index": request.sample_index, "turn_index": turn_index, "repeat": request.repeat}
            return compute_request_seed(self._settings.seed, step=step, **place)

        return TokenGenerate(
            server=self._server,
            tokenizer=self._tokenizer,
            config=self._settings.agent,
            sampling={**build_sampling(request), "stop_token_ids": list(self._end_ids)},
            seed_of_turn=seed_of_turn,
            expects_one_version=self._settings.is_sync or request.is_validation,
            template_kwargs=self._settings.template_kwargs,
        )

    async def _write_log(self, scored: ScoredTrajectory, request: RowRequest, *, min_version: int | None, details: Mapping[str, Any]) -> None:
        if self._log is None:
            return
        facts = {"step": request.step, "sample_index": request.sample_index, "repeat": request.repeat, "is_validation": request.is_validation}
        drawn = build_sampling(request)
        sampling = {"seed": self._settings.seed, **{name: drawn.get(name) for name in ("temperature", "top_p", "top_k")}}
        facts |= {"data_source": str(request.row.get("data_source", "")), "min_version": min_version, "sampling": sampling, "details": details}
        await asyncio.to_thread(self._log.append, scored, **facts)


def build_sampling(request: RowRequest) -> dict[str, Any]:
    """Sampling parameters of one session: verl's, or in a validation the row's own (`extra_info.temperature`), so that greedy stands beside sampled."""
    sampling = dict(request.sampling)
    own = (request.row.get("extra_info") or {}).get("temperature")
    if request.is_validation and own is not None and own >= 0:
        sampling["temperature"] = float(own)
    return {**sampling, "logprobs": True}


def find_abstention(scored: ScoredTrajectory) -> tuple[str, str]:
    """Why an episode leaves no row, as a short cause and its words; ("", "") where it is fine."""
    trajectory = scored.trajectory
    if trajectory.status.is_ours:
        return str(trajectory.status), trajectory.detail
    if scored.reward is None:
        causes = {WORKER_DIED: "reward_worker", "answer model": "answer_model"}
        return next((cause for words, cause in causes.items() if scored.abstained.startswith(words)), "judge"), scored.abstained
    if not any(turn.response_ids for turn in trajectory.turns):
        return "no_tokens", "the prompt left no room to sample; raise agent.max_context_tokens"
    return "", ""
