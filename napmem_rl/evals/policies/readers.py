"""Who answers out of passages that somebody else chose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from napmem_rl.config.sections import AgentConfig
from napmem_rl.errors import BackendError, LLMError, PolicyOutputError
from napmem_rl.evals.policies.contexts import Passage, fit_passages, order_for_reading
from napmem_rl.evals.policies.metering import MeteredGenerate
from napmem_rl.evals.policies.model import Episode, PolicyModel
from napmem_rl.evals.policies.prompts import PROMPT_VERSION, build_reading_messages, read_answer, render_passage
from napmem_rl.llm.base import AssistantTurn
from napmem_rl.schema import Status, Task, Turn
from napmem_rl.tools.parse import split_thinking

_TEMPLATE_TOKENS = 48  # a chat template's own, rather too many


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What came of reading. `shown` are the passages that were read, most important first; `answer` is there where the status is completed."""

    shown: tuple[Passage, ...]
    answer: str | None
    status: Status = Status.COMPLETED
    detail: str = ""
    turn: Turn | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Reader(Protocol):
    """Answers a task from passages, and leaves out what does not fit."""

    name: str
    facts: Mapping[str, Any]

    async def read(self, task: Task, passages: Sequence[Passage], *, has_memory: bool, seed: int) -> Reading:
        """One answer; `passages` come most important first. A failure of the model is a reading of status error_llm."""
        ...

    async def close(self) -> None:
        """Free the model."""
        ...


class ModelReader:
    """A language model that is asked once (see `prompts`)."""

    def __init__(self, model: PolicyModel, *, max_context_tokens: int, max_answer_tokens: int) -> None:
        """Args:
            model: who reads.
            max_context_tokens: of the prompt.
            max_answer_tokens: of the answer.
        """
        self._model = model
        self._max_context_tokens = max_context_tokens
        self._limits = AgentConfig(max_turn_tokens=max_answer_tokens, max_context_tokens=max_context_tokens + max_answer_tokens)
        self.name = model.name
        self.facts = {
            **model.facts,
            "prompt": PROMPT_VERSION,
            "max_context_tokens": max_context_tokens,
            "max_answer_tokens": max_answer_tokens,
        }

    async def read(self, task: Task, passages: Sequence[Passage], *, has_memory: bool, seed: int) -> Reading:
        """See `Reader`. A reply that was cut at `max_answer_tokens` is an answer as far as it goes, and `detail` says so."""
        shown, left_out = self._fit(task, passages, has_memory)
        messages = build_reading_messages(task, order_for_reading(shown), has_memory=has_memory)
        generate = MeteredGenerate(self._model.build_generate(Episode(task_id=task.task_id, seed=seed, limits=self._limits)))
        try:
            turn = await generate(messages, ())
        except (LLMError, BackendError) as error:
            return Reading(shown=shown, answer=None, status=Status.ERROR_LLM, detail=f"{type(error).__name__}: {error}")
        answer, status, problem = _read_turn(turn, task)
        return Reading(
            shown=shown,
            answer=answer,
            status=status,
            detail="; ".join(part for part in (left_out, problem) if part),
            turn=_as_turn(turn, problem if status is Status.ERROR_PARSE else None),
            prompt_tokens=generate.prompt_tokens,
            completion_tokens=generate.completion_tokens,
        )

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()

    def _fit(self, task: Task, passages: Sequence[Passage], has_memory: bool) -> tuple[tuple[Passage, ...], str]:
        empty = build_reading_messages(task, (), has_memory=has_memory)
        fixed = sum(self._model.count_tokens(message["content"]) for message in empty) + _TEMPLATE_TOKENS
        room = self._max_context_tokens - fixed
        return fit_passages(passages, limit=max(room, 0), count_tokens=lambda passage: self._model.count_tokens(f"{render_passage(passage)}\n"))


def _read_turn(turn: AssistantTurn, task: Task) -> tuple[str | None, Status, str]:
    """(answer, status, what is to be said of it)."""
    if turn.is_truncated and not turn.text:
        return None, Status.TRUNCATED, "no room was left for an answer"
    try:
        _, text = split_thinking(turn.text)
    except PolicyOutputError as error:
        return (None, Status.TRUNCATED, "cut within its thinking") if turn.is_truncated else (None, Status.ERROR_PARSE, error.message)
    answer = read_answer(text, task)
    if not answer:
        return (None, Status.TRUNCATED, "cut before the answer") if turn.is_truncated else (None, Status.ERROR_PARSE, "an empty reply")
    return answer, Status.COMPLETED, "answer cut at the length limit" if turn.is_truncated else ""


def _as_turn(turn: AssistantTurn, error: str | None) -> Turn:
    return Turn(
        text=turn.text,
        prompt_ids=tuple(turn.prompt_ids),
        response_ids=tuple(turn.response_ids),
        rollout_logprobs=tuple(turn.logprobs),
        policy_version=turn.policy_version,
        error=error,
    )
