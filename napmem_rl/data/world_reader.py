"""A perfect reader of synthetic worlds: what a fixed script of tool calls can reach at best.

It knows every template of `worlds`, so a script's reward by it is an upper bound for any policy that makes the same calls.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from napmem_rl.data.worlds import OPPOSITES, PERSON_ATTRIBUTES, PREFERENCES, UNKNOWN, USER_ATTRIBUTES, Attribute

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_RELATIVE = re.compile(r"User's (\w+)")


def read_answer(question: str, shown: Sequence[str]) -> str:
    """Answer a question of `worlds` from the texts of tool results, or from nothing where it needs no memory.

    Args:
        question: as a task puts it.
        shown: result texts, one memory a line.

    Returns:
        The value of the newest line that states it; "unknown" where no line does.
    """
    control = _compute_control(question)
    if control is not None:
        return control
    lines = [line for text in shown for line in text.splitlines()]
    relative = _RELATIVE.search(question)
    if relative is not None:
        person = _find_newest(rf"(?:My|User's) {relative[1]} is (\w+)", lines)
        if person is None:
            return UNKNOWN
        question = question.replace(relative[0], person)
    pattern = _build_pattern(question)
    return (_find_newest(pattern, lines) if pattern else None) or UNKNOWN


def _compute_control(question: str) -> str | None:
    opposite = re.fullmatch(r"Which word is the opposite of (\w+)\?", question)
    if opposite:
        return OPPOSITES.get(opposite[1])
    total = re.fullmatch(r"Which number is (\d+) plus (\d+)\?", question)
    return str(int(total[1]) + int(total[2])) if total else None


def _build_pattern(question: str) -> str | None:
    """A regex whose only group is the value that the question asks for, over a record's or message's line."""
    for attribute in PERSON_ATTRIBUTES.values():
        asked = re.fullmatch(re.escape(attribute.question).replace(r"\{p\}", r"(\w+)"), question)
        if asked:
            return _statement_pattern(attribute, asked[1])
    for attribute in USER_ATTRIBUTES.values():
        if question == attribute.question:
            return _statement_pattern(attribute, "")
    trip = re.fullmatch(r"Which (hotel|dish) did User (?:stay at|eat) in (\w+)\?", question)
    if trip:
        return rf"In {trip[2]} I (?:stayed at|ate) the {trip[1]} (\w+)"
    preference = re.fullmatch(r"Which (\w+) does User prefer\?", question)
    return rf"prefers? the {preference[1]} (\w+)" if preference and preference[1] in PREFERENCES else None


def _statement_pattern(attribute: Attribute, person: str) -> str:
    text = re.escape(attribute.statement.rstrip(".")).replace(r"\{p\}", person).replace(r"\{v\}", r"(\w+)")
    return re.sub(r"^I\\ ", r"(?:I|User)\\ ", text)


def _find_newest(pattern: str, lines: Sequence[str]) -> str | None:
    """The group of the match on the line with the latest date; the last of equals, and undated lines count as oldest."""
    found = [((date[0] if (date := _DATE.search(line)) else ""), match[1]) for line in lines if (match := re.search(pattern, line))]
    return max(enumerate(found), key=lambda pair: (pair[1][0], pair[0]))[1][1] if found else None
