"""One question to a memory, and an answer that shows what it rests on. Who answers is a policy of an evaluation, run as there.

A reader without a model always finds something. So of its answers it is told which words of the question stand in nothing that it read, and where those are
half of them or more, the answer counts as an abstention: the nearest thing, and not the thing.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from napmem_rl.evals.policy import Attempt, Policy
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.retrieval.bm25 import tokenize_words
from napmem_rl.retrieval.query import tokenize_query
from napmem_rl.rewards.abstention import is_abstention
from napmem_rl.rewards.text_match import normalise
from napmem_rl.schema import Message, Record, Task, ToolResult, Track

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """One memory that the policy was shown. `holds_answer`: the words of the answer stand in it; that is no proof, but where to look first."""

    id: str
    level: str  # message, record, topic or profile
    time: str
    who: str  # speaker of a message, type of a record, title of a topic
    text: str
    source_ids: tuple[str, ...]  # messages that it rests on, none for a message
    holds_answer: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One look into memory by a policy that looks things up itself."""

    tool: str
    arguments: dict[str, Any]
    item_ids: tuple[str, ...]
    failure: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """What came of a question. `answer` is None where there is none: `status` and `detail` say why."""

    question: str
    answer: str | None
    is_abstention: bool  # the answer says that memory does not hold it; without a model: too much of the question stands nowhere
    status: str
    detail: str
    evidence: tuple[Evidence, ...]  # what holds the answer's words first, then as the policy read it
    steps: tuple[Step, ...]
    unread_words: tuple[str, ...]  # of the question, that stand in nothing that was read; only without a model, else empty
    policy: str
    bank_id: str
    version: str
    prompt_tokens: int | None
    completion_tokens: int | None
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


async def ask(policy: Policy, bank: MemoryBank, question: str, *, asked_at: str | None = None, context: str = "", seed: int = 0) -> Reply:
    """Ask once.

    Args:
        policy: who answers.
        bank: the memory.
        question: in plain words.
        asked_at: ISO 8601; nothing later is shown. None shows everything.
        context: what stands before the question in the prompt, such as the conversation so far; only a policy that looks things up itself can use it.
        seed: of the sampling, where there is any.

    Raises:
        DataError: the question cannot be asked.
    """
    text = f"{context}\n\n{question}" if context else question
    task = Task(task_id=f"ask-{uuid.uuid4().hex[:8]}", bank_id=bank.bank_id, question=text, category="asked", needs_memory=True, asked_at=asked_at)
    attempt = await policy.answer(task, bank, seed=seed)
    trajectory, evidence = attempt.trajectory, collect_evidence(attempt, bank)
    has_model = policy.facts.get("engine") != "extractive"
    unread = () if has_model else find_unread_words(question, evidence)
    is_unknown = not has_model and 2 * len(unread) >= len(set(tokenize_query(question)))
    return Reply(
        question=question,
        answer=trajectory.final_answer,
        is_abstention=trajectory.final_answer is not None and (is_unknown or is_abstention(trajectory.final_answer)),
        status=str(trajectory.status),
        detail=trajectory.detail,
        evidence=evidence,
        unread_words=unread,
        steps=tuple(_build_step(result) for result in trajectory.tool_results),
        policy=policy.name,
        bank_id=bank.bank_id,
        version=bank.version,
        prompt_tokens=attempt.prompt_tokens,
        completion_tokens=attempt.completion_tokens,
        seconds=round(attempt.latency_s, 3),
    )


def collect_evidence(attempt: Attempt, bank: MemoryBank) -> tuple[Evidence, ...]:
    """The memories that an attempt was shown, each once; those that hold the answer's words first."""
    results = attempt.trajectory.tool_results
    shown = [item_id for result in results for item_id in result.item_ids] if results else list(attempt.context_ids)
    answer = normalise(attempt.trajectory.final_answer or "")
    found = [_describe(bank, item_id, answer) for item_id in dict.fromkeys(shown)]
    return tuple(sorted((one for one in found if one is not None), key=lambda one: not one.holds_answer))


def find_unread_words(question: str, evidence: Sequence[Evidence]) -> tuple[str, ...]:
    """The telling words of a question that stand in none of the texts, in any of their forms that stemming knows.

    Example: "What is Mia's favourite opera?" over "Mia is a nurse." gives ("favourite", "opera").
    """
    read = {stem for one in evidence for stem in tokenize_words(f"{one.who} {one.text}")}
    asked = set(tokenize_query(question))
    words = {word: set(tokenize_words(word)) for word in _WORD.findall(question.lower())}
    return tuple(word for word, stems in words.items() if stems and stems <= asked and not stems & read)


def _describe(bank: MemoryBank, item_id: str, answer: str) -> Evidence | None:
    match item := bank.item(item_id):
        case None:
            return None
        case Message():
            level, who, text, sources = "message", item.speaker, f"{item.text} [image: {item.caption}]" if item.caption else item.text, ()
        case Record():
            level, who, text, sources = "record", str(item.type), item.text, item.source_ids
        case Track():
            level, who, text, sources = "topic", item.title, f"{item.summary}\n{item.narrative}", bank.provenance(item_id)
        case _:
            level, who, text, sources = "profile", "profile", item.text, bank.provenance(item_id)
    holds = bool(answer) and f" {answer} " in f" {normalise(text)} "
    return Evidence(id=item_id, level=level, time=item.time, who=who, text=text, source_ids=tuple(sources), holds_answer=holds)


def _build_step(result: ToolResult) -> Step:
    failure = None if result.failure is None else str(result.failure)
    return Step(tool=result.call.name, arguments=dict(result.call.arguments), item_ids=result.item_ids, failure=failure)
