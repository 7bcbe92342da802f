"""Which of the shown memories an answer cites. Total: any text gives `Citations`, never an exception.

Memories are numbered from 1. Every bracket group counts, wherever it stands: "[1]", "[1, 3]", "[1][3]", "[1-3]", "[1; 3]", "[memory 2]", "[#2]", and the same
in the brackets 【】 and ［］. "[]" and "[none]" say that nothing was used. A group that holds anything else ("[2024-03-05]", "[laughs]") is text. A number that
no memory has is counted, and cites nothing. What stands in a thinking block cites nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from napmem_rl.errors import PolicyOutputError
from napmem_rl.tools.parse import split_thinking

MAX_DIGITS = 6  # of a number; a longer one is text
_GROUP = re.compile(r"[\[【［]([^\[\]【】［］\n]{0,200})[\]】］]")
_ITEM = re.compile(rf"(?:memory|memories|mem|m|id|no\.?|#)?\s*#?\s*([0-9]{{1,{MAX_DIGITS}}})(?:\s*[-–—]\s*([0-9]{{1,{MAX_DIGITS}}}))?", re.IGNORECASE)
_SEPARATOR = re.compile(r"\s*(?:[,;&，、]|\band\b)\s*", re.IGNORECASE)
_NOTHING = frozenset({"", "none", "no", "nothing", "no_cite", "no citation", "n/a"})
_GAP = re.compile(r"[ \t]*(?:[\[【［][^\[\]【】［］\n]{0,200}[\]】］])")


@dataclass(frozen=True, kw_only=True, slots=True)
class Citations:
    """What an answer says and what it rests on.

    Example: parse_citations("In Oslo [1][3].", 3) gives Citations(answer="In Oslo.", cited=(True, False, True), num_groups=2, num_out_of_range=0).
    """

    answer: str  # without thinking and without the groups that cite
    cited: tuple[bool, ...]  # [M]
    num_groups: int  # groups that cite, or say that nothing is cited
    num_out_of_range: int  # numbers that no memory has
    is_thinking_broken: bool = False  # a thinking block that is not closed, or several: the text was read as it stands

    @property
    def is_silent(self) -> bool:
        """Whether the answer says neither what it used nor that it used nothing."""
        return self.num_groups == 0


def parse_citations(text: str, num_shown: int) -> Citations:
    """Read an answer with citations.

    Args:
        text: whatever the model wrote.
        num_shown: how many memories it was shown, M.
    """
    try:
        said, is_broken = split_thinking(text)[1], False
    except PolicyOutputError:
        said, is_broken = text, True
    cited, num_groups, num_wrong = [False] * num_shown, 0, 0
    for match in _GROUP.finditer(said):
        ranges = _read_group(match[1])
        if ranges is None:
            continue
        num_groups += 1
        for first, last in ranges:
            num_wrong += first < 1 or last > num_shown
            for number in range(max(first, 1), min(last, num_shown) + 1):
                cited[number - 1] = True
    answer = _GAP.sub(lambda match: "" if _read_group(match[0].strip()[1:-1]) is not None else match[0], said).strip()
    return Citations(answer=answer, cited=tuple(cited), num_groups=num_groups, num_out_of_range=num_wrong, is_thinking_broken=is_broken)


def _read_group(inside: str) -> list[tuple[int, int]] | None:
    """Ranges [first, last] of a bracket group, none for one that cites nothing; None where it is no citation."""
    inside = inside.strip()
    if inside.lower() in _NOTHING:
        return []
    ranges = []
    for item in _SEPARATOR.split(inside):
        match = _ITEM.fullmatch(item)
        if match is None:
            return None
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        ranges.append((min(first, last), max(first, last)))
    return ranges
