"""A reader without a model: it points at the words of a passage that look most like the answer.

Not a system to compare with, but an instrument: it is deterministic, costs nothing and cannot know an answer that it was not shown, so that better evidence
gives better scores and nothing else does. How it picks:

1. The sentence with the most of the question's words, rarer words counting more; words elsewhere in the same passage, or in the passage said just before, count
   less, and so does a sentence that itself asks. A speaker whom the question names is preferred.
2. Of that sentence, by the kind of question: a date for "when" (relative ones are reckoned from the passage's own), a number for "how many",
   "Yes" for a question of yes or no, otherwise the part between commas and conjunctions with the most words that the question did not have.
3. An option of a multiple choice by the words it shares with the passages. Where there is nothing to read, or nothing in common, "not mentioned".
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Any

from napmem_rl.evals.policies.contexts import Passage, fit_passages
from napmem_rl.evals.policies.endpoint import count_tokens_roughly
from napmem_rl.evals.policies.prompts import NOT_MENTIONED, render_passage
from napmem_rl.evals.policies.readers import Reading
from napmem_rl.llm.options_text import letter_options
from napmem_rl.memory.writers.sentences import is_question, split_sentences
from napmem_rl.retrieval.bm25 import tokenize_words
from napmem_rl.retrieval.query import tokenize_query
from napmem_rl.schema import Task, Turn

VERSION = "extractive-1"
MAX_WORDS = 8  # of an answer that is a part of a sentence
_NEARBY, _ASKS, _SPEAKER = 0.4, 0.4, 0.25  # what words outside the sentence, a sentence that asks, and the named speaker count

_WHEN = re.compile(r"\bwhen\b|\b(?:what|which)\s+(?:date|day|month|year)\b|\bhow long ago\b", re.IGNORECASE)
_HOW_MANY = re.compile(r"\bhow (?:many|much|old|long|often)\b", re.IGNORECASE)
_YES_NO = re.compile(r"(?:do|does|did|is|are|was|were|has|have|had|can|could|would|will|should)\b", re.IGNORECASE)
_NUMBER_WORD = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|once|twice|dozen|couple|several|few"
_NUMBER = re.compile(rf"\b(?:\d[\d,.]*|{_NUMBER_WORD})\b(?:\s+(?:years?|months?|weeks?|days?|hours?|minutes?|times?|dollars|miles|percent))?", re.IGNORECASE)
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_WRITTEN_DATE = re.compile(rf"\b(?:{_DAY}\s+(?:of\s+)?)?(?:{_MONTHS})\b(?:\s+{_DAY}\b)?(?:,?\s+\d{{4}})?|\b(?:19|20)\d\d\b")
_AGO = re.compile(r"\b(\d+|a|an|one|two|three|four|five|six|seven|eight|nine|ten|few|couple of)\s+(day|week|month|year)s?\s+ago\b", re.IGNORECASE)
_COUNTS = {word: number for number, word in enumerate("zero one two three four five six seven eight nine ten".split())} | {"a": 1, "an": 1}
_UNSAID = {"few": 3, "couple of": 2}
_RELATIVE = re.compile(rf"\b(?:(today|tonight|yesterday|tomorrow)|(last|this|next)\s+(night|week|weekend|month|year|{'|'.join(_DAYS)}))\b", re.IGNORECASE)
_PARTS = re.compile(r"\s*(?:[,;:()!?…]|\s[-–—]+\s|\.(?:\s|$)|\b(?:and|but|because|so|since|while|which|although|when|if|though)\b)\s*")  # noqa: RUF001
_EDGE = frozenset(
    "a an the i i'm i've i'd i'll we we're we've you he she it it's its they them this that these those there here my our your his her their me us him to of in"
    " on at for with by from as is are was were be been being am do does did have has had will would can could should just really also so very too and or but"
    " not got get about into up out some".split()
)


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    passage: Passage
    score: float


class ExtractiveReader:
    """See the module. A `Reader`."""

    name = "extractive"

    def __init__(self, *, max_context_tokens: int) -> None:
        """`max_context_tokens`: of the passages, guessed from bytes."""
        self._limit = max_context_tokens
        self.facts: Mapping[str, Any] = {"prompt": VERSION, "max_context_tokens": max_context_tokens, "token_counts": "guessed"}

    async def read(self, task: Task, passages: Sequence[Passage], *, has_memory: bool, seed: int) -> Reading:
        """See `Reader`; `seed` changes nothing."""
        shown, left_out = fit_passages(passages, limit=self._limit, count_tokens=lambda passage: count_tokens_roughly(render_passage(passage)))
        answer = extract_answer(task, shown)
        return Reading(shown=shown, answer=answer, detail=left_out, turn=Turn(text=answer))

    async def close(self) -> None:
        """Nothing to free."""


def extract_answer(task: Task, passages: Sequence[Passage]) -> str:
    """The words of the passages that look most like the answer; "not mentioned" where none do."""
    asked = set(tokenize_query(task.question))
    if task.options:
        return _choose_option(task, passages, asked)
    best = _find_sentence(task.question, asked, passages)
    if best is None:
        return NOT_MENTIONED
    if _WHEN.search(task.question):
        return find_date(best.text, best.passage.time)
    number = _NUMBER.search(best.text) if _HOW_MANY.search(task.question) else None
    if number is not None:
        return number[0]
    if _YES_NO.match(task.question):
        return "Yes"
    return _find_part(best.text, asked)


def find_date(sentence: str, said_at: str) -> str:
    """When a sentence says that something was, as "7 May 2023" or "May 2023"; without a word of it, the day on which it was said.

    Args:
        sentence: e.g. "We went hiking last Saturday."
        said_at: ISO 8601; "" gives the sentence's own date or "not mentioned".
    """
    written = _WRITTEN_DATE.search(sentence)
    if written is not None and (written[0] != "May" or re.search(r"\b(?:in|last|this|of|since|until)\s+May\b", sentence)):
        has_year = re.search(r"\d{4}", written[0])
        return written[0] if has_year or not said_at else f"{written[0]} {said_at[:4]}"
    if not said_at:
        return NOT_MENTIONED
    day = datetime.fromisoformat(said_at).date()
    ago, relative = _AGO.search(sentence), _RELATIVE.search(sentence)
    if ago is not None:
        return _go_back(day, ago[1].lower(), ago[2].lower())
    return _resolve(day, relative) if relative is not None else _render_day(day)


def _find_sentence(question: str, asked: set[str], passages: Sequence[Passage]) -> _Sentence | None:
    """The sentence that fits best; equal ones put the passage that came first before others. None where no word is shared."""
    stems = [_find_stems(passage.text) for passage in passages]
    counts = Counter(word for words in stems for word in words)
    weights = {word: math.log(1 + (1 + len(passages)) / (1 + counts[word])) for word in asked}
    total = sum(weights.values()) or 1.0
    names = {word.lower() for word in re.findall(r"\w+", question)}
    by_place = {passage.place: index for index, passage in enumerate(passages)}
    best: _Sentence | None = None
    for index, passage in enumerate(passages):
        before = by_place.get(passage.place - 1)
        around = stems[index] | (stems[before] if before is not None else frozenset())
        speaker = passage.speaker.split()[0].lower() if passage.speaker.split() else ""
        bonus = _SPEAKER * total if speaker in names else 0.0
        for text in _split(passage.text):
            own = _find_stems(text) & asked
            shared = sum(weights[word] for word in own) + _NEARBY * sum(weights[word] for word in (around & asked) - own)
            score = (shared + bonus) * (_ASKS if is_question(text) else 1.0) if shared > 0 else 0.0
            if score > (best.score if best else 0.0):
                best = _Sentence(text, passage, score)
    return best


@lru_cache(maxsize=100_000)
def _find_stems(text: str) -> frozenset[str]:
    """A bank's passages are read again at each of its questions."""
    return frozenset(tokenize_words(text))


@lru_cache(maxsize=50_000)
def _split(text: str) -> tuple[str, ...]:
    return tuple(split_sentences(text))


def _find_part(sentence: str, asked: set[str]) -> str:
    """The part of a sentence with the most words that the question did not have, without what only connects at its ends."""
    parts = [part for part in _PARTS.split(sentence) if part and part.strip()]
    best = max(parts, key=lambda part: len(set(tokenize_words(part)) - asked), default=sentence)
    words = best.split()
    while words and _is_edge(words[0], asked):
        words.pop(0)
    words = words[-MAX_WORDS:] if len(words) > MAX_WORDS else words
    while words and words[-1].lower().strip(".,!?'\"") in _EDGE:
        words.pop()
    return " ".join(words).strip(".,!?'\" ") or best.strip()


def _is_edge(word: str, asked: set[str]) -> bool:
    plain = word.lower().strip(".,!?'\"")
    return plain in _EDGE or bool(set(tokenize_words(plain)) & asked)


def _choose_option(task: Task, passages: Sequence[Passage], asked: set[str]) -> str:
    """The letter of the option that shares most with one passage, where the passage shares something with the question or the option does."""
    options = letter_options(task)
    stems = [_find_stems(passage.text) for passage in passages]
    counts = Counter(word for words in stems for word in words)

    def score(option: str) -> float:
        words = set(tokenize_words(option))
        weights = {word: math.log(1 + (1 + len(stems)) / (1 + counts[word])) for word in words | asked}
        return max((sum(weights[word] for word in words & own) * (1 + 0.5 * len(asked & own)) / (len(words) or 1) ** 0.5 for own in stems), default=0.0)

    scores = [score(option) for _, option in options]
    return options[scores.index(max(scores))][0] if max(scores) > 0 else NOT_MENTIONED


def _resolve(day: date, match: re.Match[str]) -> str:
    """A relative day or span counted from `day`."""
    near, which, unit = (group.lower() if group else "" for group in match.groups())
    if near:
        return _render_day(day + timedelta(days={"yesterday": -1, "tomorrow": 1}.get(near, 0)))
    step = {"last": -1, "this": 0, "next": 1}[which]
    if unit in _DAYS:
        off = (_DAYS.index(unit) - day.weekday()) % 7
        return _render_day(day + timedelta(days=(off or 7) - 7 if step < 0 else off))
    if unit == "night":
        return _render_day(day + timedelta(days=step))
    if unit == "year":
        return str(day.year + step)
    if unit == "month":
        return _render_month(day, step)
    span = {"week": "week", "weekend": "weekend"}[unit]
    return f"the {span} {'of' if not step else 'before' if step < 0 else 'after'} {_render_day(day)}"


def _go_back(day: date, count: str, unit: str) -> str:
    number = min(int(count), 1200) if count.isdigit() else (_COUNTS | _UNSAID)[" ".join(count.split())]
    if unit == "year":
        return str(day.year - number)
    if unit == "month":
        return _render_month(day, -number)
    return _render_day(day - timedelta(days=number * (7 if unit == "week" else 1)))


def _render_month(day: date, step: int) -> str:
    year, month = divmod(day.year * 12 + day.month - 1 + step, 12)
    return date(max(year, 1), month + 1, 1).strftime("%B %Y")


def _render_day(day: date) -> str:
    return f"{day.day} {day:%B %Y}"
