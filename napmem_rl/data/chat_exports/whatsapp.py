"""A chat that was exported from WhatsApp as text: one message a line, more lines where it has breaks.

The file is read twice: once to learn in which order its dates are and who takes part, then message by message. It names no time zone and no user.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from zoneinfo import ZoneInfo

from napmem_rl.data.chat_exports.conversation import Conversation, Said
from napmem_rl.data.chat_exports.files import ExportFile
from napmem_rl.data.chat_exports.json_stream import Utf8Stream
from napmem_rl.data.chat_exports.tally import LeftOut, Note, Tally
from napmem_rl.data.chat_exports.whatsapp_lines import MARKS, DateOrders, FirstLine, WallClock, read_first_line
from napmem_rl.data.chat_exports.whatsapp_text import ChatWords
from napmem_rl.errors import DataError

FORMAT = "whatsapp"
_NUM_NAMES = 20  # shown at the most
_NUM_LOOKED_AT = 1 << 14  # bytes, to tell a chat from another text
_PIECE = 2000  # messages that are given on together, at least, and the silence after which that may be
_PIECE_GAP_S = 24 * 3600
_MAX_PIECE = 20000
_MAX_NAME = 80
_TITLE = re.compile(r"(?:WhatsApp[- ]?(?:Chat|Unterhaltung|Conversa)?)\s*(?:with|mit|con|avec|com|met|-|–)\s+(.+?)(?:\s*\(\d+\))?", re.IGNORECASE)
_NAME = re.compile(r"([^\n]{1,100}?):(?=\s|$)")
_TRIM = re.compile(f"[{MARKS}\\x00-\\x1f\\x7f-\\x9f]")
_QUOTES = '"“”„«»'


@dataclass(slots=True)
class Survey:
    """What a first reading of a chat finds."""

    orders: DateOrders = field(default_factory=DateOrders)
    names: Counter[str] = field(default_factory=Counter)  # of who takes part, by number of messages


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatSettings:
    """How a chat is read."""

    order: str
    user: str | None  # None: it cannot be told, and everybody's words count as the user's
    clock_zone: ZoneInfo | None
    words: ChatWords
    names: frozenset[str]  # of who takes part


def is_chat(file: ExportFile) -> bool:
    """Whether a file's first lines look like an exported chat."""
    with file.read() as stream:
        head = Utf8Stream(stream).read(_NUM_LOOKED_AT).decode("utf-8", "replace")
    return any(read_first_line(line) is not None for line in head.splitlines())


def survey_chat(file: ExportFile, words: ChatWords) -> Survey:
    """Read a chat for its order of dates and its names.

    A name that only ever "says" what the messenger says itself is the chat's own, and none of them.
    """
    survey = Survey()
    own: Counter[str] = Counter()
    for number, first, _ in _iterate_lines(file):
        if first is None:
            continue
        survey.orders.add(first, number)
        name, text = split_name(first.rest, words)
        if name is not None:
            (own if words.read(text).is_system else survey.names)[name] += 1
    return survey


def choose_order(file: ExportFile, survey: Survey, asked: str | None) -> str:
    """The order of a chat's dates.

    Raises:
        DataError: the file allows two and none was asked for, or it does not allow the one that was asked for.
    """
    if not any(survey.orders.num_valid.values()):
        problem = f"none of its {survey.orders.num_dates:,} dates is a day of the years 2009 to 2099"
        fix = "Export it again with the phone set to the Gregorian calendar."
        raise DataError.of(file.name, problem, expected="dates of the Gregorian or of Thailand's calendar", fix=fix)
    fitting = survey.orders.decide()
    if asked is not None and asked not in fitting and survey.orders.num_valid[asked] < max(survey.orders.num_valid.values()):
        line = survey.orders.first_invalid.get(asked, 1)
        raise DataError.of(file.name, f"line {line} has a date that is not in the order {asked}", got=asked, expected=f"--date-order {' or '.join(fitting)}")
    if asked is not None:
        return asked
    if len(fitting) > 1:
        problem = f"all its {survey.orders.num_dates:,} dates can be read in two ways, so that 3/4 may be in March or in April"
        raise DataError.of(file.name, problem, expected="one order of day and month", fix="Say which: --date-order dmy (day first) or --date-order mdy.")
    return fitting[0]


def choose_user(files: Sequence[tuple[ExportFile, Survey]], asked: str | None, known: str | None) -> str | None:
    """Whose memory the chats are; None where it cannot be told.

    Args:
        files: chats with what a survey found.
        asked: the name that was asked for.
        known: the name that the bank's user had in an earlier import.

    Raises:
        DataError: nobody has the name that was asked for; the names are listed.
    """
    totals: Counter[str] = Counter()
    for _, survey in files:
        totals.update(survey.names)
    listed = ", ".join(f"{name} ({number:,})" for name, number in totals.most_common(20)) + (" …" if len(totals) > 20 else "")
    what = files[0][0].name if len(files) == 1 else f"{len(files)} chats"
    if asked is not None:
        same = [name for name in totals if name.casefold() == asked.casefold()]
        if asked in totals or same or not totals:
            return asked if asked in totals or not same else same[0]
        raise DataError.of(what, f"nobody in it is called {asked}", expected=f"one of: {listed}", fix="Give one of these names with --user.")
    if known is not None and known in totals:
        return known
    candidates = set.intersection(*(_find_candidates(file, survey) for file, survey in files))
    return candidates.pop() if len(candidates) == 1 else None


def _find_candidates(file: ExportFile, survey: Survey) -> set[str]:
    """Who may be the user: "You", or anybody but whom the file's name names."""
    if "You" in survey.names:
        return {"You"}
    title = _TITLE.fullmatch(file.title.strip())
    other = title[1].strip() if title is not None else ""
    return {name for name in survey.names if name.casefold() != other.casefold()}


def read_chat(file: ExportFile, settings: ChatSettings, tally: Tally) -> Iterator[Conversation]:
    """The chat in pieces, each a run of days; every message is counted.

    A line before the first message is counted as one that is none.
    """
    title = _TITLE.fullmatch(file.title.strip())
    reader = _ChatReader(settings, tally, (title[1] if title is not None else "").casefold())
    tally.num_conversations += 1
    if settings.user is None:
        names = ", ".join(sorted(settings.names)[:_NUM_NAMES]) or "nobody"
        tally.note(Note.USER_UNKNOWN, f"{file.name}: any of {names}; --user NAME, into a new bank, says which")
    for number, first, line in _iterate_lines(file, on_replaced=lambda count: tally.note(Note.BROKEN_CHARACTERS, f"{file.name}: {count:,} bytes")):
        wall = None if first is None else first.moment(settings.order)
        if first is None or wall is None:
            reader.go_on(line, f"{file.name}, line {number}")
            continue
        reader.end_message()
        if reader.is_piece_full(wall):
            yield reader.take()
        reader.begin(first, wall, f"{file.name}, line {number}")
    reader.end_message()
    yield reader.take()


class _ChatReader:
    """Puts messages together out of lines."""

    def __init__(self, settings: ChatSettings, tally: Tally, title: str) -> None:
        self._settings, self._tally, self._title = settings, tally, title
        self._clock = WallClock(zone=settings.clock_zone)
        self._said: list[Said] = []
        self._open: tuple[FirstLine, datetime, str] | None = None
        self._lines: list[str] = []
        self._times: Counter[tuple[str, ...]] = Counter()
        self._last: datetime | None = None

    def begin(self, first: FirstLine, wall: datetime, where: str) -> None:
        """A message's first line."""
        self._tally.read_message()
        self._open, self._lines = (first, wall, where), [first.rest]
        self._last = wall

    def go_on(self, line: str, where: str) -> None:
        """Another line of it."""
        if self._open is not None:
            self._lines.append(line)
        elif line.strip():
            self._tally.read_message()
            self._tally.leave_out(LeftOut.NOT_A_MESSAGE, where)

    def is_piece_full(self, wall: datetime) -> bool:
        """Whether what was read so far can be given on before a message of this time."""
        is_gap = self._last is not None and (wall - self._last).total_seconds() > _PIECE_GAP_S
        return (is_gap and len(self._said) >= _PIECE) or len(self._said) >= _MAX_PIECE

    def take(self) -> Conversation:
        """What was read since the last time."""
        said, self._said = tuple(self._said), []
        self._times.clear()
        return Conversation(key=None, identity=(FORMAT, self._title), said=said, is_chat=True)

    def end_message(self) -> None:
        """Keep the message whose lines are there, or leave it out."""
        if self._open is None:
            return
        (_, wall, where), self._open = self._open, None
        name, text = split_name("\n".join(self._lines).rstrip(), self._settings.words)
        content = self._settings.words.read(text)
        reason = None
        if name is None or name not in self._settings.names or content.is_system:
            reason = LeftOut.SYSTEM_LINE
        elif content.is_deleted or not content.text:
            reason = LeftOut.DELETED if content.is_deleted else LeftOut.EMPTY
        if reason is not None:
            self._tally.leave_out(reason, where)
            return
        self._said.append(self._build(name or "", wall, content.text, content.identity, where))
        for note in content.notes:
            self._tally.note(note, where)

    def _build(self, name: str, wall: datetime, text: str, identity: str, where: str) -> Said:
        time, is_skipped, is_double = self._clock.convert(wall)
        for note in [Note.TIME_NONEXISTENT] * is_skipped + [Note.TIME_AMBIGUOUS] * is_double:
            self._tally.note(note, where)
        what = (wall.isoformat(), name, identity)
        self._times[what] += 1
        whole = (FORMAT, *what, str(self._times[what]))
        return Said(identity=whole, role="user" if self._settings.user in (None, name) else "assistant", speaker=name, text=text, time=time, where=where)


def split_name(rest: str, words: ChatWords) -> tuple[str | None, str]:
    """(who says it, what is said); nobody for what the messenger says itself.

    Example: ``split_name("Ana: I moved: Alfama 3", words)`` is ``("Ana", "I moved: Alfama 3")``, ``split_name("Ana left", words)`` ``(None, "Ana left")``.
    """
    match = _NAME.match(rest)
    if match is None:
        return None, rest
    name = _TRIM.sub("", match[1]).strip().removeprefix("~").strip()
    if not name or len(name) > _MAX_NAME or any(quote in name for quote in _QUOTES) or words.is_system_name(name):
        return None, rest
    return name, rest[match.end() :].removeprefix(" ")


def _iterate_lines(file: ExportFile, on_replaced: Callable[[int], None] | None = None) -> Iterator[tuple[int, FirstLine | None, str]]:
    """(number, the parts of a message's first line or None, the line without its end)."""
    with file.read() as stream:
        text = Utf8Stream(stream)
        for number, line in enumerate(io.TextIOWrapper(io.BufferedReader(text), encoding="utf-8", newline=None), start=1):
            line = line.rstrip("\n")
            yield number, read_first_line(line), line
        if on_replaced is not None and text.num_replaced:
            on_replaced(text.num_replaced)
