"""What a policy answers where a memory is not there: the same task, policy and seed over a bank without some items (`BankWithout`)."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from napmem_rl.errors import JudgeError
from napmem_rl.evals.policy import Attempt, Policy
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_without import BankWithout, Hidden, find_hidden
from napmem_rl.rewards.judge import Judge
from napmem_rl.rewards.verdict import Verdict
from napmem_rl.schema import AnswerKey, Task, ToolResult

MAX_SHOWN_ITEMS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """An attempt with its verdict; `problem` says why there is none."""

    attempt: Attempt
    verdict: Verdict | None
    problem: str = ""

    @property
    def answer(self) -> str | None:
        """The final answer."""
        return self.attempt.trajectory.final_answer

    @property
    def is_correct(self) -> bool | None:
        """What the judge says; None where it was not asked or gave no verdict."""
        return None if self.verdict is None else self.verdict.is_correct

    def read_ids(self) -> frozenset[str]:
        """Ids of everything that the policy was shown, and of the messages that it rests on."""
        shown = {item_id for result in self.attempt.trajectory.tool_results for item_id in result.item_ids}
        return frozenset(shown | set(self.attempt.context_ids))


@dataclass(frozen=True, kw_only=True, slots=True)
class Counterfactual:
    """One task with the whole bank and without some items."""

    task: Task
    key: AnswerKey
    hidden: Hidden
    recorded_answer: str | None
    before: Answered
    after: Answered
    notes: tuple[str, ...] = ()  # what may make the answers others than recorded, beside the memory

    @property
    def is_changed(self) -> bool:
        """Whether the answer or its verdict is another."""
        return (self.before.answer, self.before.is_correct) != (self.after.answer, self.after.is_correct)

    @property
    def was_read(self) -> tuple[str, ...]:
        """Which of the items left out the policy had read."""
        read = self.before.read_ids()
        return tuple(item_id for item_id in (*self.hidden.dropped, *self.hidden.dependents) if item_id in read)


class Asker:
    """Asks one task again and again; what is asked twice of the whole bank is asked once."""

    def __init__(
        self,
        build_policy: Callable[[frozenset[str]], Policy],
        judge: Judge,
        *,
        task: Task,
        key: AnswerKey,
        bank: MemoryBank,
        seed: int,
        notes: tuple[str, ...] = (),
    ) -> None:
        """Args:
            build_policy: the policy where these items are left out; the oracle's evidence is without them.
            judge: decides before and after.
            task, key, bank, seed: what is asked.
            notes: see `Counterfactual`.
        """
        self._build_policy, self._judge = build_policy, judge
        self._task, self._key, self._bank, self._seed, self._notes = task, key, bank, seed, notes
        self._before: Answered | None = None

    async def ask_whole(self) -> Answered:
        """The answer over the whole bank."""
        if self._before is None:
            self._before = await self._ask(self._bank, frozenset())
        return self._before

    async def ask_without(self, names: Sequence[str], *, with_dependents: bool, recorded_answer: str | None) -> Counterfactual:
        """The answers with and without items, named by id or file name.

        Raises:
            BankError: an item that the bank does not hold.
        """
        hidden = find_hidden(self._bank, names, with_dependents=with_dependents)
        before = await self.ask_whole()
        after = await self._ask(BankWithout(self._bank, hidden), hidden.ids)
        asked = {"task": self._task, "key": self._key, "recorded_answer": recorded_answer, "notes": self._notes}
        return Counterfactual(hidden=hidden, before=before, after=after, **asked)

    async def _ask(self, bank: Any, hidden: frozenset[str]) -> Answered:
        attempt = await self._build_policy(hidden).answer(self._task, bank, seed=self._seed)
        answer = attempt.trajectory.final_answer
        if answer is None:
            return Answered(attempt=attempt, verdict=None, problem=f"no answer: {attempt.trajectory.status} ({attempt.trajectory.detail})")
        try:
            return Answered(attempt=attempt, verdict=await self._judge.judge(self._task, self._key, answer))
        except JudgeError as error:
            return Answered(attempt=attempt, verdict=None, problem=f"no verdict: {error}")


def list_memories(answered: Answered) -> tuple[str, ...]:
    """The memories that were in context, in the order in which they were shown: what tools showed, or what a passive policy read."""
    shown = [item_id for result in answered.attempt.trajectory.tool_results for item_id in result.item_ids]
    return tuple(dict.fromkeys(shown or answered.attempt.context_ids))


def find_call_changes(before: Attempt, after: Attempt) -> list[str]:
    """The calls that differ, with what they found: "- " only before, "+ " only after, in order."""
    then, now = ([describe_call(result) for result in one.trajectory.tool_results] for one in (before, after))
    return [line for line in difflib.ndiff(then, now) if line[:2] in ("- ", "+ ")]


def describe_call(result: ToolResult) -> str:
    """E.g. ``search_records(query='home') → rec:1, rec:4``."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in result.call.arguments.items())
    found = ", ".join(result.item_ids[:MAX_SHOWN_ITEMS]) + (" …" if len(result.item_ids) > MAX_SHOWN_ITEMS else "")
    return f"{result.call.name}({arguments}) → {found or result.failure or 'nothing'}"


def describe(found: Counterfactual) -> list[str]:
    """A counterfactual in words, a few lines."""
    hidden, evidence = found.hidden, found.key.evidence_ids
    lines = [f"question  {found.task.question}", f"left out  {', '.join(hidden.dropped)}"]
    if hidden.dependents:
        lines.append(f"          with what rests on it: {', '.join(hidden.dependents)}")
    if hidden.edited:
        lines.append(f"          and, of files that stay, what rested on it: {', '.join(hidden.edited)}")
    lines += [f"recorded  {_quote(found.recorded_answer)}", f"before    {_describe_answer(found.before)}", f"after     {_describe_answer(found.after)}"]
    if found.before.answer != found.recorded_answer:
        lines.append("          asked again over the whole bank, the policy answers otherwise than recorded: compare before and after alone")
    lines.append(f"read      {', '.join(found.was_read) or 'nothing of what is left out'}")
    if evidence:
        counts = [sum(message_id in one.attempt.context_ids for message_id in evidence) for one in (found.before, found.after)]
        lines.append(f"evidence  in context: {counts[0]} of {len(evidence)} gold messages before, {counts[1]} after")
    changes = find_call_changes(found.before.attempt, found.after.attempt)
    lines += ["calls     that changed:", *(f"  {line}" for line in changes)] if changes else ["calls     the same"]
    lines.append(f"result    the answer {'changes' if found.is_changed else 'stays'}: {_conclude(found)}")
    return [*lines, *(f"note      {note}" for note in found.notes)]


def _conclude(found: Counterfactual) -> str:
    if found.is_changed:
        return "it rested on what is left out" if found.was_read else "although the policy had read nothing of what is left out"
    return "the policy had read it and does not need it" if found.was_read else "the policy had not read it"


def _describe_answer(answered: Answered) -> str:
    verdict = answered.problem if answered.verdict is None else f"{'correct' if answered.verdict.is_correct else 'incorrect'} ({answered.verdict.reason})"
    return verdict if answered.answer is None else f"{_quote(answered.answer)}: {verdict}"


def _quote(answer: str | None) -> str:
    return "no answer" if answer is None else f"“{answer}”"


def as_json(found: Counterfactual) -> dict[str, Any]:
    """A counterfactual as plain data."""
    evidence = found.key.evidence_ids
    sides = {
        name: {
            "answer": one.answer,
            "status": str(one.attempt.trajectory.status),
            "is_correct": one.is_correct,
            "reason": one.problem if one.verdict is None else one.verdict.reason,
            "calls": [describe_call(result) for result in one.attempt.trajectory.tool_results],
            "context_ids": list(one.attempt.context_ids),
            "evidence_in_context": [message_id for message_id in evidence if message_id in one.attempt.context_ids],
        }
        for name, one in (("before", found.before), ("after", found.after))
    }
    hidden = {"dropped": list(found.hidden.dropped), "dependents": list(found.hidden.dependents), "edited_files": list(found.hidden.edited)}
    head = {"task_id": found.task.task_id, "question": found.task.question, **hidden, "recorded_answer": found.recorded_answer}
    return {**head, **sides, "evidence": list(evidence), "was_read": list(found.was_read), "is_changed": found.is_changed, "notes": list(found.notes)}


def describe_each(found: Sequence[Counterfactual]) -> list[str]:
    """A line for each memory that was left out alone: whether the answer changes, and to what."""
    if not found:
        return ["no memory was in context"]
    width = max(len(one.hidden.dropped[0]) for one in found)
    lines = [f"{one.hidden.dropped[0]:<{width}}  {'changes' if one.is_changed else 'stays  '}  {_describe_answer(one.after)}" for one in found]
    num_changes = sum(one.is_changed for one in found)
    return [f"before: {_describe_answer(found[0].before)}", *lines, f"{num_changes} of {len(found)} memories change the answer"]
