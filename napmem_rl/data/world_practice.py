"""Reading practice for a randomly initialised policy: short texts that teach copying and reading before any tool is used.

A text shows the lines that a tool would show and asks several questions about them, or repeats a random word sequence. Without it, a model of a million
parameters does not learn within minutes to carry a word from a result into its answer. A pretrained model needs none of it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from napmem_rl.data.worlds import SyntheticQuestion, SyntheticUser

READABLE_TYPES = ("fact", "changed", "raw_detail", "preference")


@dataclass(frozen=True, slots=True)
class PracticeText:
    """A tool result and question–answer pairs about it; `result` is empty where the questions need none."""

    result: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ReadableUser:
    """A user's history as tools show it: message id -> the lines of all levels that rest on it, and the profile's text."""

    user: SyntheticUser
    lines_of: dict[str, tuple[str, ...]]
    profile: str


def build_practice(reader: ReadableUser, rng: random.Random, *, num_lines: int = 4, num_pairs: int = 4) -> PracticeText:
    """Draw one text: a fifth about the profile, a tenth of sums and opposites, the rest about single lines of records or messages."""
    draw = rng.random()
    questions = list(reader.user.questions)
    rng.shuffle(questions)
    if draw < 0.1:
        return PracticeText("", _pairs([q for q in questions if q.task.category == "control"][:num_pairs]))
    if draw < 0.3:
        return PracticeText(reader.profile, _pairs([q for q in questions if q.task.category == "preference"][:num_pairs]))
    return _read_lines(reader, questions, rng, num_lines, num_pairs)


def _read_lines(reader: ReadableUser, questions: Sequence[SyntheticQuestion], rng: random.Random, num_lines: int, num_pairs: int) -> PracticeText:
    """Lines that each answer one question, in time order; of values that changed only the newest is shown, so nothing about staleness is taught here."""
    shown: dict[str, str] = {}
    asked: dict[str, SyntheticQuestion] = {}
    for question in questions:
        source = question.key.evidence_ids[-1] if question.key.evidence_ids else None
        if source is None or question.task.category not in READABLE_TYPES or len(shown) >= num_lines:
            continue
        lines = [line for line in reader.lines_of.get(source, ()) if question.key.references[0] in line]
        if lines:
            shown[source] = rng.choice(lines)
            asked[question.task.question] = question
    pairs = list(_pairs(list(asked.values())))
    rng.shuffle(pairs)
    ordered = sorted(shown, key=lambda message_id: int(message_id.removeprefix("msg:")))
    return PracticeText("\n".join(shown[message_id] for message_id in ordered), tuple(pairs[:num_pairs]))


def _pairs(questions: Sequence[SyntheticQuestion]) -> tuple[tuple[str, str], ...]:
    return tuple((q.task.question, q.key.references[0]) for q in questions)
