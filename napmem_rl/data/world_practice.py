"""Reading practice for a randomly initialised policy: short texts that teach copying and reading before any tool is used.

A text shows lines as a search would bring them, similar ones together, and asks about them; or it repeats a random word sequence. Without it, a model of a
million parameters does not learn within minutes to carry a word from a result into its answer. A pretrained model needs none of it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from napmem_rl.data.worlds import SyntheticQuestion, SyntheticUser


@dataclass(frozen=True, slots=True)
class PracticeText:
    """A tool result and question–answer pairs about it; `result` is empty where the questions need none."""

    result: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ReadableUser:
    """A user's history as tools show it: for each level message id -> the line that rests on it, in time order, and the profile's text."""

    user: SyntheticUser
    messages: Mapping[str, str]
    records: Mapping[str, str]
    profile: str


def build_practice(reader: ReadableUser, rng: random.Random, *, num_lines: int = 4, num_pairs: int = 4) -> PracticeText:
    """Draw one text: a seventh about the profile, a tenth of sums and opposites, the rest about lines that a search might bring."""
    draw = rng.random()
    questions = list(reader.user.questions)
    rng.shuffle(questions)
    if draw < 0.1:
        return PracticeText("", _pairs([q for q in questions if q.task.category == "control"][:num_pairs]))
    if draw < 0.25:
        return PracticeText(reader.profile, _pairs([q for q in questions if q.task.category == "preference"][:num_pairs]))
    level = rng.choice((reader.messages, reader.records))
    anchor = next(q for q in questions if q.task.needs_memory and _is_answered(q, level))
    shown = _search(anchor, level, rng, num_lines)
    others = (q for q in questions if q.task.needs_memory and _is_answered(q, shown) and not _shows_old_value(q, shown))
    asked = list({q.task.question: q for q in (anchor, *others)}.values())[:num_pairs]
    rng.shuffle(asked)
    return PracticeText("\n".join(shown.values()), _pairs(asked))


def _is_answered(question: SyntheticQuestion, lines: Mapping[str, str]) -> bool:
    """Whether the lines hold all evidence of the question, and the answer."""
    evidence = question.key.evidence_ids
    return all(i in lines for i in evidence) and question.key.references[0] in lines[evidence[-1]]


def _shows_old_value(question: SyntheticQuestion, lines: Mapping[str, str]) -> bool:
    """Whether a value that once held is in sight. Such lines are asked about nowhere here: which value holds is left to be learnt by reward."""
    return any(_states(line, value) for value in question.stale for line in lines.values())


def _states(line: str, value: str) -> bool:
    return f" {value}." in line


def _search(anchor: SyntheticQuestion, level: Mapping[str, str], rng: random.Random, num_lines: int) -> dict[str, str]:
    """The anchor's evidence and the lines most like what one would search for, in time order; without lines that show an old value of it."""
    wanted = set(anchor.keywords.split())
    evidence = set(anchor.key.evidence_ids)

    def rank(message_id: str) -> tuple[bool, int, float]:
        return (message_id in evidence, len(wanted & set(level[message_id].replace(".", "").split())), rng.random())

    fresh = [i for i, line in level.items() if not any(_states(line, value) for value in anchor.stale)]
    best = set(sorted(fresh, key=rank, reverse=True)[:num_lines])
    return {message_id: line for message_id, line in level.items() if message_id in best}


def _pairs(questions: Sequence[SyntheticQuestion]) -> tuple[tuple[str, str], ...]:
    return tuple((q.task.question, q.key.references[0]) for q in questions)
