"""What holds of a user by rules: preferences, instructions and lasting facts, the newest kept first, under a length budget."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from napmem_rl.memory.writers.base import ProfileDraft
from napmem_rl.memory.writers.rules_topics import quote
from napmem_rl.memory.writers.sentences import ADVERBS, has_second_person, has_time, is_past, split_sentences
from napmem_rl.schema import Record, RecordType

MAX_PROFILE_CHARS = 1500
MAX_CANDIDATES = 500  # of each heading; older statements are not looked at
_HEADINGS = {RecordType.PREFERENCE: "Preferences", RecordType.INSTRUCTION: "Instructions", RecordType.FACT: "Facts"}
_SINGLE_VALUED = frozenset("is am prefers lives works called named favorite favourite owns drives".split())
_LIKES = "prefers?|likes?|loves?|enjoys?|hates?|dislikes?|adores?|loathes?"
_DOES = (
    "lives?|works? (?:as|at|for)|(?:has|have) (?:a|an)|(?:has|have) \\w+ (?:kids|children|dogs|cats)|owns?|stud(?:y|ies)|speaks?|teach(?:es)?|eats?|drinks?"
    "|drives?|plays?"
)


@dataclass(frozen=True, slots=True)
class _Standing:
    """A sentence of a record that the profile may hold."""

    record_id: str
    time: str
    type: RecordType
    text: str
    words: tuple[str, ...]

    @property
    def line(self) -> str:
        return f"- {quote(self.text)} [{self.record_id}]"


class StandingFacts:
    """Lasting statements about the user, kept up one record at a time; what a later one restates is dropped."""

    def __init__(self) -> None:
        self._standing: dict[RecordType, dict[int, _Standing]] = {kind: {} for kind in _HEADINGS}
        self._groups: dict[tuple[int, tuple[str, ...]], dict[int, _Standing]] = {}
        self._count = 0

    def add(self, record: Record, names: Collection[str]) -> bool:
        """Take in what the next record says of the user, who goes by these names; whether there was anything."""
        found = list(_find_lasting(record, names))
        for standing in found:
            group = self._groups.setdefault((len(standing.words), standing.words[:2]), {})
            for number in [number for number, older in group.items() if _is_restated(older.words, standing.words)]:
                del self._standing[group.pop(number).type][number]
            self._count += 1
            group[self._count] = self._standing[standing.type][self._count] = standing
            if len(group) > MAX_CANDIDATES:
                oldest = next(iter(group))
                del self._standing[group.pop(oldest).type][oldest]
        return bool(found)

    def write(self, max_chars: int) -> ProfileDraft:
        """The profile: under each heading, oldest first, the newest statements for which there is room."""
        room = max_chars
        sections: list[str] = []
        for kind, heading in _HEADINGS.items():
            chosen: list[str] = []
            room -= len(f"## {heading}\n\n\n")
            for _, standing in zip(range(MAX_CANDIDATES), reversed(self._standing[kind].values()), strict=False):
                if len(standing.line) + 1 <= room:
                    chosen.append(standing.line)
                    room -= len(standing.line) + 1
            if chosen:
                sections.append("\n".join([f"## {heading}\n", *reversed(chosen)]))
        return ProfileDraft(text="\n\n".join(sections))


def _find_lasting(record: Record, names: Iterable[str]) -> Iterator[_Standing]:
    """The sentences of a record, in the third person, that hold of the user for long."""
    for sentence in split_sentences(record.text):
        kind = next((kind for name in names if (kind := _classify_lasting(sentence, record.type, name))), None)
        if kind is not None:
            yield _Standing(record.record_id, record.time, kind, sentence, tuple(re.findall(r"[\w']+", sentence.lower())))


def _classify_lasting(sentence: str, record_type: RecordType, name: str) -> RecordType | None:
    """Where a sentence stands in the profile, or None. An instruction is a record of its own, whatever it says."""
    if record_type is RecordType.INSTRUCTION:
        return record_type
    if f"{name} asked: " in sentence or has_second_person(sentence) or is_past(sentence.removeprefix(f"{name}: ")):
        return None
    if _compile_preference(name).search(sentence):
        return RecordType.PREFERENCE
    return RecordType.FACT if not has_time(sentence) and _compile_lasting(name).search(sentence) else None


@lru_cache(maxsize=64)
def _compile_preference(name: str) -> re.Pattern[str]:
    """What a user likes: "Ana loves chess.", "Ana's favourite color is red.", "Ana: We enjoy hiking."."""
    who = rf"{re.escape(name)}(?:: we)?"
    adverbs = rf"(?: (?:{ADVERBS}|\w+ly|doesn't|don't|does not|do not))*"
    return re.compile(
        rf"\b{who}{adverbs} (?:{_LIKES})\b|\b{re.escape(name)}\b.*\b(?:favou?rites?|fan of|can't stand|cannot stand|would rather)\b", re.IGNORECASE
    )


@lru_cache(maxsize=64)
def _compile_lasting(name: str) -> re.Pattern[str]:
    """What a user is or has: "Ana's sister is Mia.", "Ana is a nurse.", "Ana lives in Oslo."."""
    own = re.escape(name)
    adverbs = r"(?: also| now| still| currently| doesn't| don't| never| always| usually)*"
    return re.compile(
        rf"\b{own}'s (?:\w+ ){{1,3}}(?:is|are) \w|\b{own}'s \w+'s name\b"
        rf"|\b{own} is (?:a|an|from|allergic|married|single|divorced|vegan|vegetarian|retired|\d+)\b"
        rf"|\b{own}(?:: we)?{adverbs} (?:{_DOES})\b|\b{own} was born\b",
        re.IGNORECASE,
    )


def _is_restated(words: tuple[str, ...], newer: tuple[str, ...]) -> bool:
    """True for equal words, or for one that differs in a statement with a single value ("prefers the music jazz", then "prefers the music rock")."""
    different = [position for position, (word, other) in enumerate(zip(words, newer, strict=True)) if word != other]
    return not different or (len(different) == 1 and bool(_SINGLE_VALUED.intersection(words[: different[0]])))
