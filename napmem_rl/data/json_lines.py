"""Fields of users' own JSON lines. Each function raises DataError with a message for the end of a sentence that names file and line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from napmem_rl.errors import DataError
from napmem_rl.memory.pyramid import is_time
from napmem_rl.tools.spec import shorten

ON_BAD_LINE = ("error", "skip")
SHOWN = 5  # bad lines in an error
_BOM = b"\xef\xbb\xbf"
_OTHER_BOMS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


def iterate_lines(file: Path, what: str) -> Iterator[tuple[str, bytes, bool]]:
    """("file, line N", the line, whether a byte order mark was taken off it) of every line that is not blank.

    Args:
        file: the file.
        what: how an error names it, e.g. ``"messages chats.jsonl"``.

    Raises:
        DataError: another encoding than UTF-8, by its first bytes.
    """
    with file.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            had_mark = number == 1 and line.startswith(_BOM)
            if number == 1:
                encoding = _OTHER_BOMS.get(line[:2])
                if encoding is not None:
                    raise DataError.of(what, f"is {encoding}", expected="UTF-8", fix=f"Convert it: iconv -f {encoding} -t UTF-8.")
                line = line[len(_BOM) :] if had_mark else line
            if line.strip():
                yield f"{file}, line {number}", line, had_mark


def refuse_bad_lines(what: str, bad_lines: list[str], on_bad_line: str) -> None:
    """Raise DataError that tells the first bad lines, unless they are to be skipped."""
    if bad_lines and on_bad_line == "error":
        more = f" (and {len(bad_lines) - SHOWN} more)" if len(bad_lines) > SHOWN else ""
        fix = "Put them right, or leave them out with --on-bad-line skip."
        raise DataError.of(what, f"{len(bad_lines)} bad lines: {'; '.join(bad_lines[:SHOWN])}{more}", fix=fix)


def parse_object(line: bytes) -> Mapping[str, Any]:
    """The object of one line."""
    try:
        value = json.loads(line.decode("utf-8"))
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise DataError(f"is not UTF-8 (byte {error.object[error.start]:#04x} at position {error.start})") from error
    except UnicodeEncodeError as error:
        raise DataError("holds half of a surrogate pair, which is not valid Unicode") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise DataError(f"is a JSON {type(value).__name__}, expected one object a line")
    return value


def read_id(value: Mapping[str, Any], name: str) -> str:
    """An id; whole numbers are ids too."""
    found = value.get(name)
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    text = read_text(value, name)
    if not text.strip():
        raise DataError(f"{name} is blank")
    return text


def read_text(value: Mapping[str, Any], name: str) -> str:
    """A field that is a text."""
    if name not in value:
        raise DataError(f"{name} is missing")
    if not isinstance(value[name], str):
        raise DataError(f"{name} is {shorten(repr(value[name]))}, expected a text")
    return value[name]


def read_time(text: str) -> tuple[str, bool]:
    """A time as banks hold it: without a zone (UTC where one was given) and without fractions of a second; and whether it had to be converted."""
    time = text
    if not is_time(text):
        try:
            moment = datetime.fromisoformat(text.strip())
            moment = moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo is not None else moment
        except (ValueError, OverflowError) as error:
            raise DataError(f"time is {shorten(repr(text))}, expected ISO 8601 such as 2024-03-05T13:56:00") from error
        time = moment.isoformat(timespec="seconds")
    try:
        datetime.fromisoformat(time)
    except ValueError as error:
        raise DataError(f"time {text!r} is no moment of the calendar") from error
    return time, time != text
