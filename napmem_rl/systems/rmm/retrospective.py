"""Retrospective reflection: one call answers and cites, and the reranker learns which of the shown memories were of use (RMM, arXiv 2503.08026, Algorithm 1).

    M_K <- f_theta(q, B)            the K records of the bank nearest to the question       `find_memories`
    M_M <- g_phi(q, M_K)            M of them, drawn by chance where it learns              `Learner.draw`, `Learner.rank`
    a, R_M <- LLM(q, S, M_M)        the answer; R = +1 for a cited memory, -1 otherwise     `answer_question`
    g_phi <- RL_Update(g_phi, R_M)                                                          `Learner.learn`

Searches look at summaries; the answer is given the raw turns too. Nothing is learned from a question whose endpoint failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from napmem_rl.llm.base import ChatClient
from napmem_rl.memory.bank_view import BankView
from napmem_rl.retrieval.passages import SearchFilter
from napmem_rl.retrieval.rerank_learner import Reranking
from napmem_rl.schema import Level, Message, Record, RerankDecision, Task
from napmem_rl.systems.rmm import prompts
from napmem_rl.systems.rmm.citations import Citations, parse_citations
from napmem_rl.systems.rmm.prospective import show_turn

MAX_TURN_CHARS = 2000  # of one raw turn that an answer gets to see
MAX_ANSWER_TOKENS = 512


class Learner(Protocol):
    """A reranker that learns, here or in another process; see `RerankLearner`."""

    async def draw(self, ids: Sequence[str], query: np.ndarray, memories: np.ndarray, *, prior: np.ndarray | None = None) -> Reranking:
        """M by chance."""
        ...

    async def rank(self, ids: Sequence[str], query: np.ndarray, memories: np.ndarray, *, prior: np.ndarray | None = None) -> Reranking:
        """The best M."""
        ...

    async def learn(self, reranking: Reranking, cited: Sequence[bool]) -> RerankDecision | None:
        """Take in citations; None where they came too late."""
        ...


class Answerer(Protocol):
    """Whoever answers and cites in one call."""

    async def answer(self, task: Task, memories: Sequence[ShownMemory], session: Sequence[Message]) -> str:
        """The text, with citations by number. Raises LLMError."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownMemory:
    """A topic memory as an answer sees it: its record, and the raw turns that this rests on."""

    record: Record
    turns: tuple[Message, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RmmAnswer:
    """One question answered. `decision` is None where nothing was learned: no memory was shown, learning is off, or the citations came too late."""

    task_id: str
    text: str
    citations: Citations
    shown_ids: tuple[str, ...]  # [M] record ids
    candidate_ids: tuple[str, ...]  # [K]
    decision: RerankDecision | None


class ModelAnswerer:
    """An `Answerer` over a chat client; its temperature is the client's (0 in the paper)."""

    def __init__(self, client: ChatClient, *, max_tokens: int = MAX_ANSWER_TOKENS) -> None:
        self._client, self._max_tokens = client, max_tokens

    async def answer(self, task: Task, memories: Sequence[ShownMemory], session: Sequence[Message]) -> str:
        """See `Answerer`."""
        return await self._client.chat(build_answer_messages(task, memories, session), max_tokens=self._max_tokens)


class SimulatedCiter:
    """A simulated `Answerer`: it cites a memory if and only if it rests on gold evidence, each verdict flipped with a probability. It answers nothing."""

    def __init__(self, evidence: dict[str, tuple[str, ...]], *, flip: float, seed: int) -> None:
        """`evidence`: task id -> gold message ids. What is flipped follows from the seed, the task and the memory."""
        self._evidence, self._flip, self._seed = evidence, flip, seed

    async def answer(self, task: Task, memories: Sequence[ShownMemory], session: Sequence[Message]) -> str:
        """See `Answerer`."""
        gold = set(self._evidence.get(task.task_id, ()))
        numbers = []
        for number, memory in enumerate(memories, start=1):
            entropy = [self._seed, *f"{task.task_id} {memory.record.record_id}".encode()]
            is_flipped = np.random.default_rng(entropy).random() < self._flip
            if (not gold.isdisjoint(memory.record.source_ids)) != is_flipped:
                numbers.append(number)
        return f"(simulated) {numbers}"


async def answer_question(
    task: Task, bank: BankView, learner: Learner, answerer: Answerer, *, num_candidates: int, is_learning: bool, session: Sequence[Message] = ()
) -> RmmAnswer:
    """Retrieve, rerank, answer, and learn.

    Args:
        task: the question; tools of the bank show nothing later than `asked_at`.
        bank: with an encoder.
        learner: of the bank's scope.
        answerer: answers and cites.
        num_candidates: K.
        is_learning: False ranks deterministically and leaves the learner as it is.
        session: the conversation so far.

    Raises:
        LLMError: the endpoint failed; nothing was learned.
        DataError: vectors that cannot be used.
    """
    found = await asyncio.to_thread(bank.find_index(Level.RECORD).find_candidates, task.question, k=num_candidates, where=SearchFilter(before=task.asked_at))
    records = [] if found is None else [bank.snapshot.revisions.revision(position).record for position in found.positions]
    if found is None:
        text = await answerer.answer(task, (), session)
        return RmmAnswer(task_id=task.task_id, text=text, citations=parse_citations(text, 0), shown_ids=(), candidate_ids=(), decision=None)
    choose = learner.draw if is_learning else learner.rank
    reranking = await choose([record.record_id for record in records], found.query, found.vectors, prior=found.prior)
    shown = [_show(bank, records[index]) for index in reranking.choice.chosen]
    text = await answerer.answer(task, shown, session)
    citations = parse_citations(text, len(shown))
    decision = await learner.learn(reranking, citations.cited) if is_learning else None
    ids = {"shown_ids": reranking.chosen_ids, "candidate_ids": reranking.candidate_ids}
    return RmmAnswer(task_id=task.task_id, text=text, citations=citations, decision=decision, **ids)


def build_answer_messages(task: Task, memories: Sequence[ShownMemory], session: Sequence[Message]) -> list[dict[str, str]]:
    """What a model is asked: the question, the session so far, and the memories with their raw turns, numbered from 1."""
    data: dict[str, Any] = {"asked_at": task.asked_at, "question": task.question}
    if task.options:
        data["options"] = list(task.options)
    data["session"] = [_cut(show_turn("", message)) for message in session]
    data["memories"] = [
        {"number": number, "summary": memory.record.text, "turns": [_cut(show_turn("", turn)) for turn in memory.turns]}
        for number, memory in enumerate(memories, start=1)
    ]
    return prompts.build_messages(prompts.ANSWER, data)


def _show(bank: BankView, record: Record) -> ShownMemory:
    turns = [message for message_id in record.source_ids if (message := bank.message(message_id)) is not None]
    return ShownMemory(record=record, turns=tuple(sorted(turns, key=lambda turn: turn.time)))


def _cut(turn: dict[str, str]) -> dict[str, str]:
    """A turn without a label, its text cut where it is very long."""
    text = turn["text"]
    return {name: value for name, value in turn.items() if name != "label"} | {"text": text if len(text) <= MAX_TURN_CHARS else text[:MAX_TURN_CHARS] + " …"}
