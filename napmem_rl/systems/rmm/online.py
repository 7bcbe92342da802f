"""One user's life with RMM: sessions end and are reflected on, questions come between them, and the reranker learns from each answer.

A run that was stopped goes on where it was: messages that the bank holds are passed over, and the learner's state says how many questions are done. For one
user at a time the end is that of a run without the stop.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.builder import grow_bank
from napmem_rl.memory.sessions import split_sessions
from napmem_rl.memory.writers.base import MemoryWriter
from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.retrieval.rerank_learner import Reranking
from napmem_rl.schema import Message, RerankDecision, Task
from napmem_rl.systems.rmm.retrospective import Answerer, RmmAnswer, answer_question


class ScopeClient(Protocol):
    """The learner of a scope, here or in another process; see `ScopedLearner`."""

    async def draw(self, ids: Sequence[str], query: np.ndarray, memories: np.ndarray, *, prior: np.ndarray | None = None) -> Reranking: ...

    async def rank(self, ids: Sequence[str], query: np.ndarray, memories: np.ndarray, *, prior: np.ndarray | None = None) -> Reranking: ...

    async def learn(self, reranking: Reranking, cited: Sequence[bool], *, bank_id: str | None = None) -> RerankDecision | None: ...

    async def skip(self, bank_id: str) -> None: ...

    async def count_done(self, bank_id: str) -> int: ...

    async def note_bank(self, bank_id: str, version: str) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class UserLife:
    """What one user says and asks. Questions without a moment come after all sessions."""

    bank_id: str
    messages: tuple[Message, ...]
    tasks: tuple[Task, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LifeSettings:
    """How a life is lived through."""

    banks_dir: Path  # topic memories, a directory a bank
    answers_dir: Path  # answers as JSON lines, a file a user
    num_candidates: int  # K
    ranking: str
    is_learning: bool


class _UserLearner:
    """A scope's learner as one user's questions see it: what is learned and what is done are saved together."""

    def __init__(self, scope: ScopeClient, bank_id: str) -> None:
        self._scope, self._bank_id = scope, bank_id
        self.draw, self.rank = scope.draw, scope.rank

    async def learn(self, reranking: Reranking, cited: Sequence[bool]) -> RerankDecision | None:
        return await self._scope.learn(reranking, cited, bank_id=self._bank_id)


async def live_through(
    life: UserLife, settings: LifeSettings, scope: ScopeClient, answerer: Answerer, build_writer: Callable[[], MemoryWriter], encoder: Encoder
) -> int:
    """Everything of a life that is not done yet.

    Returns:
        Questions answered now.

    Raises:
        LLMError: an endpoint failed; what was done before is kept.
        DataError, BankError: something cannot be used.
    """
    path, num_done = settings.banks_dir / life.bank_id, await scope.count_done(life.bank_id)
    tasks = sorted(life.tasks, key=lambda task: (task.asked_at is None, task.asked_at or ""))
    left, num_answered, position = tasks[num_done:], 0, 0
    sessions = split_sessions(life.messages)
    for session in (*sessions, None):
        start = None if session is None else session[0].time
        while position < len(left) and (start is None or (left[position].asked_at or "~") < start):
            bank = MemoryBank.open(path, encoder=encoder, ranking=settings.ranking, verify=False) if path.exists() else None
            await _ask(left[position], bank, settings, scope, answerer)
            position, num_answered = position + 1, num_answered + 1
        if session is not None:
            report = await grow_bank(path, life.bank_id, session, writer=build_writer(), encoder=encoder)
            await scope.note_bank(life.bank_id, str(report.version))
    return num_answered


async def _ask(task: Task, bank: MemoryBank | None, settings: LifeSettings, scope: ScopeClient, answerer: Answerer) -> None:
    """One question; its line is written after what it taught is saved."""
    if bank is None:  # asked before anything was said
        await scope.skip(task.bank_id)
        return
    learner, options = _UserLearner(scope, task.bank_id), {"num_candidates": settings.num_candidates, "is_learning": settings.is_learning}
    found = await answer_question(task, bank, learner, answerer, **options)
    if not settings.is_learning or not found.candidate_ids:
        await scope.skip(task.bank_id)
    settings.answers_dir.mkdir(parents=True, exist_ok=True)
    with (settings.answers_dir / f"{task.bank_id}.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(_as_row(found), ensure_ascii=True) + "\n")


def _as_row(found: RmmAnswer) -> dict[str, Any]:
    return dataclasses.asdict(found)
