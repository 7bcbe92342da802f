"""Users' messages in plain files: one JSON object a line (JSONL, UTF-8), the fields of `schema.Message` and whose memory it is.

::

    {"user_id": "ana", "message_id": "msg:1", "session_id": "s1", "role": "user", "speaker": "Ana", "text": "I moved to Oslo.", "time": "2024-03-05T13:56:00"}

- `message_id`, `session_id`, `role` (user or assistant), `text` and `time` (ISO 8601) are required; `speaker` is "User" or "Assistant" without its own, and
  `caption` describes an image.
- `bank_id` or `user_id` says whose memory it is; without either it is that of the file's name, so that a directory of files can hold a user each.

What is not so is a bad line, told with file and line number. Some things have one clear meaning and are put right, and counted: see `RepairKind`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from napmem_rl.data.json_lines import ON_BAD_LINE, SHOWN, iterate_lines, parse_object, read_id, read_text, read_time, refuse_bad_lines
from napmem_rl.errors import DataError
from napmem_rl.schema import Message
from napmem_rl.tools.spec import shorten

_FIELDS = ("bank_id", "user_id", "message_id", "session_id", "role", "speaker", "text", "time", "caption")
_SPEAKERS = {"user": "User", "assistant": "Assistant"}
_MESSAGE_ID = re.compile(r"msg:[^\s\[\]]+")


class RepairKind(StrEnum):
    """What was put right or left out."""

    BYTE_ORDER_MARK = "byte_order_mark"  # at a file's start: left out
    ID_PREFIXED = "id_prefixed"  # "12" became "msg:12"
    TIME_CONVERTED = "time_converted"  # with a zone: to UTC; with a blank or fractions of a second: to the form that banks hold
    UNKNOWN_FIELD = "unknown_field"  # not kept
    SAME_LINE_AGAIN = "same_line_again"  # the same message once more: left out
    BAD_LINE = "bad_line"  # left out, only where that was asked for

    @property
    def outcome(self) -> str:
        """What became of such lines, in words."""
        return _OUTCOMES[self]


_OUTCOMES = {
    RepairKind.BYTE_ORDER_MARK: "the mark is left out",
    RepairKind.ID_PREFIXED: "'msg:' stands before the id",
    RepairKind.TIME_CONVERTED: "the time in the form that banks hold",
    RepairKind.UNKNOWN_FIELD: "the field is not kept",
    RepairKind.SAME_LINE_AGAIN: "left out",
    RepairKind.BAD_LINE: "left out",
}


@dataclass(slots=True)
class MessagesFile:
    """What was read: messages by bank id in the order of the lines, repairs by kind, and the lines that were left out, in words."""

    banks: dict[str, list[Message]] = field(default_factory=dict)
    repairs: Counter[str] = field(default_factory=Counter)
    bad_lines: list[str] = field(default_factory=list)

    def describe(self) -> list[str]:
        """What was read, put right and left out, in a few lines for people."""
        lines = [f"{sum(map(len, self.banks.values())):,} messages of {len(self.banks):,} users"]
        repairs = ", ".join(f"{number} {kind.replace('_', ' ')}" for kind, number in sorted(self.repairs.items()))
        lines += [f"put right or left out: {repairs}"] if repairs else []
        more = len(self.bad_lines) - SHOWN
        return lines + [f"left out: {line}" for line in self.bad_lines[:SHOWN]] + ([f"… and {more} more lines"] if more > 0 else [])


def load_messages(path: Path, *, on_bad_line: str = "error") -> MessagesFile:
    """Read a file, or all files ``*.jsonl`` of a directory, in the order of their names.

    Args:
        path: file or directory.
        on_bad_line: "error": any bad line is an error; "skip": it is left out and counted.

    Raises:
        DataError: nothing there, no messages, another encoding than UTF-8, or bad lines; the first ones are told with file and line.
    """
    if on_bad_line not in ON_BAD_LINE:
        raise DataError.of("on_bad_line", "is unknown", got=on_bad_line, expected=" or ".join(ON_BAD_LINE))
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise DataError.of(f"messages {path}", "no such file" if files else "the directory holds no file *.jsonl")
    loaded = MessagesFile()
    known: dict[tuple[str, str], Message] = {}
    for file in files:
        for where, line, had_mark in iterate_lines(file, f"messages {file}"):
            loaded.repairs.update({RepairKind.BYTE_ORDER_MARK: 1} if had_mark else {})
            problem = _take_line(line, file.stem, loaded, known)
            if problem is not None:
                loaded.bad_lines.append(f"{where}: {problem}")
    _refuse_bad_lines(path, loaded, on_bad_line)
    return loaded


def _refuse_bad_lines(path: Path, loaded: MessagesFile, on_bad_line: str) -> None:
    if loaded.bad_lines:
        loaded.repairs[RepairKind.BAD_LINE] = len(loaded.bad_lines)
    refuse_bad_lines(f"messages {path}", loaded.bad_lines, on_bad_line)
    if not loaded.banks:
        raise DataError.of(f"messages {path}", "hold no messages", expected="one JSON object a line")


def _take_line(line: bytes, default_bank: str, loaded: MessagesFile, known: dict[tuple[str, str], Message]) -> str | None:
    """Add a line's message to its bank; what is wrong with the line, or None."""
    repairs: Counter[str] = Counter()
    try:
        bank_id, message = _read_line(line, default_bank, repairs)
    except DataError as error:
        return error.message
    earlier = known.get((bank_id, message.message_id))
    if earlier is not None and earlier != message:
        return f"message_id {message.message_id} of {bank_id} stands earlier with other content"
    loaded.repairs.update(repairs if earlier is None else {RepairKind.SAME_LINE_AGAIN: 1})
    if earlier is None:
        known[bank_id, message.message_id] = message
        loaded.banks.setdefault(bank_id, []).append(message)
    return None


def _read_line(line: bytes, default_bank: str, repairs: Counter[str]) -> tuple[str, Message]:
    """(bank id, message). Raises DataError, whose message is for the end of a sentence that names the line."""
    value = parse_object(line)
    if set(value) - set(_FIELDS):
        repairs[RepairKind.UNKNOWN_FIELD] += 1
    message_id = read_id(value, "message_id")
    if not message_id.startswith("msg:"):
        message_id = f"msg:{message_id}"
        repairs[RepairKind.ID_PREFIXED] += 1
    if not _MESSAGE_ID.fullmatch(message_id):
        raise DataError(f"message_id {shorten(message_id)!r} holds blanks or square brackets")
    role = read_text(value, "role")
    if role not in _SPEAKERS:
        raise DataError(f"role is {shorten(repr(role))}, expected user or assistant")
    time, is_converted = read_time(read_text(value, "time"))
    repairs.update({RepairKind.TIME_CONVERTED: 1} if is_converted else {})
    message = Message(
        message_id=message_id,
        session_id=read_id(value, "session_id"),
        role=role,
        speaker=_SPEAKERS[role] if value.get("speaker") is None else read_text(value, "speaker"),
        text=read_text(value, "text"),
        time=time,
        caption=None if value.get("caption") is None else read_text(value, "caption"),
    )
    return _read_bank_id(value, default_bank), message


def _read_bank_id(value: Mapping[str, Any], default: str) -> str:
    given = {read_id(value, name) for name in ("bank_id", "user_id") if value.get(name) is not None}
    if len(given) > 1:
        raise DataError("bank_id and user_id differ")
    return given.pop() if given else default
