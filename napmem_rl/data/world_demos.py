"""Demonstrators for synthetic users: scripted policies that cold-start a real one.

A demonstrator sees what a policy sees (the question and the results so far) and, unlike one, the question's plan and key. Its habits are probabilities:
the `SLOPPY` demonstrator often searches in the wrong place, gives up early, calls more than it needs, trusts old values and calls memory for sums; the
`CLEAN` one does none of this. Reinforcement learning starts from the sloppy one, so bad habits are its mode and not just its tail: with a good mode,
sampled reward would rise by sharpening alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from napmem_rl.data.worlds import UNKNOWN, SyntheticQuestion
from napmem_rl.schema import ToolCall, ToolResult


@dataclass(frozen=True, kw_only=True, slots=True)
class Habits:
    """Probabilities in [0, 1] of a demonstrator's choices.

    Attributes:
        plan: while the evidence is missing, make the planned call (else a random one).
        extra: once the evidence is there, call once more all the same.
        newest: where values changed and old ones are in sight, answer the newest.
        give_up: after a call that brought no evidence, answer "unknown" (else go on).
        needless: search the conversation before answering a question that needs no memory.
    """

    plan: float
    extra: float
    newest: float
    give_up: float
    needless: float


SLOPPY = Habits(plan=0.2, extra=0.3, newest=0.25, give_up=0.4, needless=0.75)
CLEAN = Habits(plan=1.0, extra=0.0, newest=1.0, give_up=0.0, needless=0.0)


class Demonstrator:
    """One demonstration of one question: `act` is called with all results so far until it returns an answer."""

    def __init__(self, question: SyntheticQuestion, habits: Habits, rng: random.Random, *, max_tool_steps: int, file_names: Sequence[str]) -> None:
        self._question, self._habits, self._rng, self._max_tool_steps = question, habits, rng, max_tool_steps
        self._file_names = tuple(file_names)
        self._plan_step = 0

    def act(self, results: Sequence[ToolResult]) -> ToolCall | str:
        """The next tool call, or the final answer."""
        if not self._question.task.needs_memory:
            needless = len(results) == 0 and self._rng.random() < self._habits.needless
            return ToolCall(name="search_conversation", arguments={"query": self._question.keywords}) if needless else self._question.key.references[0]
        has_evidence = self._has_evidence(results)
        if len(results) >= self._max_tool_steps or (has_evidence and self._rng.random() >= self._habits.extra):
            return self._answer(results) if has_evidence else UNKNOWN
        if results and not has_evidence and self._rng.random() < self._habits.give_up:
            return UNKNOWN
        if not has_evidence and self._rng.random() < self._habits.plan:
            return self._planned_call(results)
        return self._random_call(results)

    def _has_evidence(self, results: Sequence[ToolResult]) -> bool:
        seen = {message_id for result in results for message_id in result.message_ids}
        shown = " ".join(result.text for result in results)
        return set(self._question.key.evidence_ids) <= seen and self._question.key.references[0] in shown

    def _planned_call(self, results: Sequence[ToolResult]) -> ToolCall:
        plan, evidence = self._question.plan, self._question.key.evidence_ids
        seen = {message_id for result in results for message_id in result.message_ids}
        step = 1 if len(plan) > 1 and evidence[0] in seen else min(self._plan_step, len(plan) - 1)
        self._plan_step = step + 1
        return plan[step]

    def _random_call(self, results: Sequence[ToolResult]) -> ToolCall:
        draw = self._rng.random()
        records = [item for result in results for item in result.item_ids if item.startswith("rec:")]
        messages = [item for result in results for item in result.message_ids]
        if draw < 0.35:
            return ToolCall(name="search_records", arguments={"query": self._question.keywords})
        if draw < 0.65:
            return ToolCall(name="search_conversation", arguments={"query": self._question.keywords})
        if draw < 0.75 and messages:
            return ToolCall(name="get_conversation", arguments={"message_ids": [self._rng.choice(messages)]})
        if draw < 0.85 and records:
            return ToolCall(name="get_records", arguments={"record_ids": [self._rng.choice(records)]})
        return ToolCall(name="read_file", arguments={"file_name": self._rng.choice(("profile.md", *self._named_files()))})

    def _named_files(self) -> list[str]:
        """Files whose name is a word of the question."""
        words = {word.lower().strip("?") for word in self._question.task.question.split()}
        return [name for name in self._file_names if name.removesuffix(".md") in words]

    def _answer(self, results: Sequence[ToolResult]) -> str:
        shown = " ".join(result.text for result in results)
        stale = [value for value in self._question.stale if value in shown]
        if stale and self._rng.random() >= self._habits.newest:
            return self._rng.choice(stale)
        return self._question.key.references[0]
