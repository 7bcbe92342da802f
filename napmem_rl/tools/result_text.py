"""How memories become the text of a tool result: one item a line, cut at whole lines where a token limit asks for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from napmem_rl.schema import Message, Profile, Record, Track

_LINE_BREAKS = re.compile(r"[\r\v\f\x1c-\x1e\x85\u2028\u2029]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of a result. `position` orders lines for display; `item_id` is None where the line shows no memory (an unknown id, a heading)."""

    text: str
    position: int = 0
    item_id: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedText:
    """A result's text within its limit, with the lines that are in it in order of display."""

    text: str
    lines: tuple[Line, ...]
    is_truncated: bool


def flatten(text: str) -> str:
    """The text as one line with single spaces. All that `str.splitlines` would split at is whitespace, so no memory can open a line of its own."""
    return " ".join(text.split())


def render_record(record: Record) -> str:
    """E.g. ``rec:7 2024-03-05 fact: Ana moved to Oslo. [msg:12]``."""
    return flatten(f"{record.record_id} {record.time[:10]} {record.type}: {record.text} [{', '.join(record.source_ids)}]")


def render_message(message: Message) -> str:
    """E.g. ``msg:12 2024-03-05 Ana: We moved to Oslo. [image: a red door]``."""
    image = f" [image: {message.caption}]" if message.caption else ""
    return flatten(f"{message.message_id} {message.time[:10]} {message.speaker}: {message.text}{image}")


def render_file(item: Track | Profile, markdown: str) -> list[str]:
    """The lines of a memory file for a model: a heading in place of the front matter, then the body with its evidence links, without empty lines."""
    title = item.title if isinstance(item, Track) else "User profile"
    body = markdown.removeprefix("---\n").partition("\n---\n")[2] if markdown.startswith("---\n") else markdown
    lines = [_LINE_BREAKS.sub(" ", line).rstrip() for line in body.split("\n")]
    shown = [line for line in lines if line]
    return [flatten(f"# {title} (updated {item.time[:10]})"), *shown] if shown else []


def build_cut_notice(num_cut: int, noun: str, cause: str, *, is_first_cut: bool = False) -> str:
    """E.g. ``[2 more items cut: result limit of 512 tokens]``; `is_first_cut` says that the item before the notice is itself incomplete."""
    parts = [f"this {noun} is cut"] if is_first_cut else []
    parts += [f"{num_cut} more {noun}{'' if num_cut == 1 else 's'} cut"] if num_cut else []
    return f"[{', '.join(parts)}: {cause}]"


def fit_lines(lines: Sequence[Line], *, limit: int, count_tokens: Callable[[str], int], noun: str, cause: str) -> FittedText:
    """Keep the first lines that fit, and say how many were left out.

    Args:
        lines: most important first; they are shown by `position`.
        limit: tokens of the whole text, notice included; at least what a notice takes.
        count_tokens: tokens of a text.
        noun: what a line holds, "item" or "line".
        cause: which limit it is, for the notice.
    """
    text = _join(lines)
    if count_tokens(text) <= limit:
        return FittedText(text=text, lines=_in_order(lines), is_truncated=False)
    num_kept = _estimate_kept(lines, limit, count_tokens)
    for kept in range(num_kept, 0, -1):
        text = f"{_join(lines[:kept])}\n{build_cut_notice(len(lines) - kept, noun, cause)}"
        if count_tokens(text) <= limit:
            return FittedText(text=text, lines=_in_order(lines[:kept]), is_truncated=True)
    return _cut_first(lines, limit=limit, count_tokens=count_tokens, noun=noun, cause=cause)


def _estimate_kept(lines: Sequence[Line], limit: int, count_tokens: Callable[[str], int]) -> int:
    """An upper guess of how many lines fit, from their own lengths; the whole text is counted afterwards."""
    total = 0
    for kept, line in enumerate(lines[:-1]):
        total += count_tokens(line.text)
        if total > limit:
            return kept
    return len(lines) - 1


def _cut_first(lines: Sequence[Line], *, limit: int, count_tokens: Callable[[str], int], noun: str, cause: str) -> FittedText:
    """As much as fits of the first line, which alone is too long."""
    notice = build_cut_notice(len(lines) - 1, noun, cause, is_first_cut=True)
    first = lines[0]
    low, high = 0, len(first.text) - 1  # characters kept: `low` fits, more than `high` does not
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens(f"{first.text[:middle].rstrip()} ...\n{notice}") <= limit:
            low = middle
        else:
            high = middle - 1
    shown = first.text[:low]
    space = shown.rfind(" ")
    shown = shown[:space] if space > low // 2 and not first.text[low].isspace() else shown.rstrip()
    if not shown or count_tokens(f"{shown} ...\n{notice}") > limit:
        return FittedText(text=notice, lines=(), is_truncated=True)
    return FittedText(text=f"{shown} ...\n{notice}", lines=(Line(text=shown, position=first.position, item_id=first.item_id),), is_truncated=True)


def _join(lines: Sequence[Line]) -> str:
    return "\n".join(line.text for line in _in_order(lines))


def _in_order(lines: Sequence[Line]) -> tuple[Line, ...]:
    return tuple(sorted(lines, key=lambda line: line.position))
