"""The frozen answer model of an evaluation: those of training, and an extractive reader that needs no model."""

from __future__ import annotations

import re
from collections.abc import Sequence

from napmem_rl.config.sections import AnswererConfig
from napmem_rl.evals.policies.contexts import Passage
from napmem_rl.evals.policies.extractive import VERSION, extract_answer
from napmem_rl.schema import Task
from napmem_rl.systems.memchain.answer_models import PROMPT_VERSION, build_answer_model
from napmem_rl.systems.memchain.reward import AnswerModel

_KEPT = re.compile(r"(\d{4}-\d\d-\d\d) (?:([^:\n]{1,60}): )?(.+)", re.DOTALL)  # `candidates.render_memory`


class ExtractiveAnswerer:
    """Points at the words of the evidence that look most like the answer (`extractive.py`): an instrument, not a model. Its K answers are one."""

    name = "extractive"

    async def answer(self, question: str, evidence: Sequence[str], *, num_answers: int) -> Sequence[str]:
        """See `AnswerModel`. Options stand in the question as they do for a model, so that of a multiple choice it gives the words, not the letter."""
        task = Task(task_id="", bank_id="", question=question, category="", needs_memory=True)
        return [extract_answer(task, [_read_statement(statement, place) for place, statement in enumerate(evidence)])] * num_answers


def _read_statement(statement: str, place: int) -> Passage:
    """A statement as a passage; day and speaker before it, as a kept record has them, are taken for those of the passage."""
    known = _KEPT.match(statement)
    return Passage(text=known[3], time=f"{known[1]}T00:00:00", speaker=known[2] or "", place=place) if known else Passage(text=statement, time="", place=place)


def build_answerer(config: AnswererConfig) -> AnswerModel:
    """The answer model of an evaluation. Raises ConfigError where it cannot be asked."""
    return ExtractiveAnswerer() if config.kind == "extractive" else build_answer_model(config)


def describe_answerer(config: AnswererConfig) -> dict[str, object]:
    """What results are stamped with."""
    if config.kind != "openai":
        return {"answerer": config.kind, "answerer_prompt": VERSION if config.kind == "extractive" else None}
    return {"answerer": config.model, "answerer_temperature": config.temperature, "answerer_max_tokens": config.max_tokens, "answerer_prompt": PROMPT_VERSION}
