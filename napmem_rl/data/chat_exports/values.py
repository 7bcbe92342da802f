"""Parts of foreign JSON, which may be missing or of any type, and text that banks can hold."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

_SURROGATE = re.compile(r"[\ud800-\udfff]")
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?")
_OLDEST, _NEWEST = datetime(1995, 1, 1, tzinfo=UTC).timestamp(), datetime(2100, 1, 1, tzinfo=UTC).timestamp()


def as_object(value: Any) -> Mapping[str, Any]:
    """The value where it is an object; else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> Sequence[Any]:
    """The value where it is a list; else an empty one."""
    return value if isinstance(value, list) else ()


def as_text(value: Any) -> str:
    """The value where it is a text; else an empty one."""
    return value if isinstance(value, str) else ""


def as_id(value: Any) -> str | None:
    """An id; whole numbers are ids too. None for anything else, and for blanks."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) and value.strip() else None


def clean_text(text: str) -> tuple[str, bool]:
    """A text that can be written, and whether broken characters were replaced: halves of surrogate pairs are joined, or become U+FFFD."""
    if text.isascii() or not _SURROGATE.search(text):
        return text, False
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return joined, "\ufffd" in joined


def read_moment(value: Any) -> tuple[str | None, bool]:
    """A time as banks hold it, UTC to the second; and whether there was something that is no time.

    Takes seconds, milliseconds or microseconds since 1970 as a number or a text, and ISO 8601, which is UTC where it names no zone.

    Example: ``read_moment(1714000010.5)`` and ``read_moment("2024-04-25T01:06:50.5+02:00")`` are ``("2024-04-24T23:06:50", False)``.
    """
    if value is None or value == "":
        return None, False
    seconds = _read_seconds(value)
    if seconds is None or not math.isfinite(seconds):
        return None, True
    for unit in (1.0, 1e3, 1e6, 1e9):
        if _OLDEST <= seconds / unit < _NEWEST:
            return datetime.fromtimestamp(seconds / unit, UTC).strftime("%Y-%m-%dT%H:%M:%S"), False
    return None, True


def _read_seconds(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    try:
        return float(value)
    except OverflowError:
        return None
