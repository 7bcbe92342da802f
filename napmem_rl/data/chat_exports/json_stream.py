"""Conversations out of a JSON file, one at a time: a list, an object that holds one, or a line each. In any of the encodings that JSON comes in."""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import IO, Any

import ijson

from napmem_rl.errors import DataError

Open = Callable[[], AbstractContextManager[IO[bytes]]]
MAX_WHOLE = 256 << 20  # bytes of a file that is read as a whole where the streaming parser cannot: NaN, and integers of more than 64 bits
LISTS = ("conversations", "data", "items", "chats", "results", "history")
_KEYED = "{}"  # the shape of an object that holds conversations by their ids
_CHUNK = 1 << 18
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_LINE_FILES = (".jsonl", ".ndjson")
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be"), (codecs.BOM_UTF16_LE, "utf-16-le"))
_BOMS += ((codecs.BOM_UTF16_BE, "utf-16-be"),)


class Utf8Stream(io.RawIOBase):
    """A stream as UTF-8 without a byte order mark, whatever it was; bytes that are none become U+FFFD and are counted."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.num_replaced = 0
        head = stream.read(4)
        bom, self.encoding = next(((bom, name) for bom, name in _BOMS if head.startswith(bom)), (b"", _guess_encoding(head)))
        self._decoder = codecs.getincrementaldecoder(self.encoding)("surrogateescape" if self.encoding == "utf-8" else "replace")
        self._left = bytearray(self._convert(head[len(bom) :], is_last=False))
        self._is_done = False

    def readable(self) -> bool:
        """See `io.IOBase`."""
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes: `size` of them, or as many as are left; all for a negative one."""
        while not self._is_done and (size < 0 or len(self._left) < size):
            chunk = self._stream.read(_CHUNK)
            self._is_done = not chunk
            self._left += self._convert(chunk, is_last=self._is_done)
        size = len(self._left) if size < 0 else size
        given = bytes(self._left[:size])
        del self._left[:size]
        return given

    def readinto(self, buffer: Any) -> int:
        """See `io.RawIOBase`."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _convert(self, chunk: bytes, *, is_last: bool) -> bytes:
        text = self._decoder.decode(chunk, is_last)
        try:
            return text.encode()
        except UnicodeEncodeError:
            self.num_replaced += len(_SURROGATE.findall(text))
            return _SURROGATE.sub("\ufffd", text).encode()


def _guess_encoding(head: bytes) -> str:
    """UTF-16 without a mark is told by the zero bytes of its first characters, which are ASCII in JSON."""
    if len(head) == 4 and head[1] == head[3] == 0 and head[0]:
        return "utf-16-le"
    if len(head) == 4 and head[0] == head[2] == 0 and head[1]:
        return "utf-16-be"
    return "utf-8"


def read_items(open_file: Open, name: str, *, on_replaced: Callable[[int], None] = lambda number: None) -> Iterator[tuple[str, Any]]:
    """(place, value) of each conversation, in the file's order. A value that is not JSON, in a file with one a line, is an `ValueError` object.

    Args:
        open_file: opens the file anew.
        name: of the file, for places and errors.
        on_replaced: takes how many bytes were no characters.

    Raises:
        DataError: the file is cut off or no JSON; the message says where.
    """
    with open_file() as stream:
        text = Utf8Stream(stream)
        head = text.read(_CHUNK)
        shape = "lines" if name.lower().endswith(_LINE_FILES) and not head.lstrip().startswith(b"[") else _find_shape(head)
    if shape == "lines":
        yield from _read_lines(open_file, name, on_replaced)
        return
    num_given = 0
    try:
        for number, value in enumerate(_parse(open_file, shape, on_replaced), start=1):
            yield f"{name}, conversation {number}", value
            num_given = number
    except (ijson.JSONError, UnicodeDecodeError) as error:
        values = _read_whole(open_file, name, shape, num_given, error)
        for number, value in enumerate(values[num_given:], start=num_given + 1):
            yield f"{name}, conversation {number}", value


def _find_shape(head: bytes) -> str:
    """The ijson prefix of the conversations: "item" of a list, "" of an object that is one, "NAME.item" of one that holds a list; or "lines", or `_KEYED`."""
    start = head.lstrip()
    if start[:1] == b"[":
        return "item"
    first, _, rest = start.partition(b"\n")
    if rest.strip():
        try:
            json.loads(first)
        except (ValueError, RecursionError):
            pass
        else:
            return "lines"
    return _find_list(head)


def _find_list(head: bytes) -> str:
    """Which field of an object holds the conversations, as far as its beginning tells; "" where it is a conversation itself."""
    try:
        events = ijson.parse(io.BytesIO(head))
        inner: str | None = None
        key: str | None = None
        for prefix, event, value in events:
            if not prefix and event == "map_key":
                key = value
            elif prefix == key and event == "map_key" and value in ("mapping", "chat_messages") and key != "mapping":
                return _KEYED
            if event == "start_array" and prefix in LISTS:
                inner = prefix
            elif inner is not None and prefix == f"{inner}.item" and event == "map_key":
                if value in ("from", "value", "role", "content"):  # messages of one conversation
                    return ""
                if value in ("mapping", "chat_messages", "messages", "conversations", "title", "uuid"):
                    return f"{inner}.item"
    except ijson.JSONError:
        pass
    return ""


def _parse(open_file: Open, shape: str, on_replaced: Callable[[int], None]) -> Iterator[Any]:
    with open_file() as stream:
        text = Utf8Stream(stream)
        if shape == _KEYED:
            yield from (value for _, value in ijson.kvitems(text, "", use_float=True))
        else:
            yield from ijson.items(text, shape, use_float=True, multiple_values=not shape)
        on_replaced(text.num_replaced)


def _read_whole(open_file: Open, name: str, shape: str, num_given: int, error: Exception) -> list[Any]:
    """All values of a file that the streaming parser refused, where Python's own takes it. The parser's words are not repeated: they quote the file."""
    with open_file() as stream:
        content = Utf8Stream(stream).read(-1) if _measure(open_file) <= MAX_WHOLE else b""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as problem:
        place = f" at byte {problem.pos:,}" if isinstance(problem, json.JSONDecodeError) and content else ""
        is_cut = not content or (isinstance(problem, json.JSONDecodeError) and problem.pos >= len(content.decode().rstrip()) - 1)
        what = "is cut off" if is_cut or "premature" in str(error) or "ncomplete" in str(error) else "is not JSON"
        fix = "Get the export again; nothing was imported. (--partial takes the conversations before that place.)"
        raise DataError.of(name, f"{what}{place}, after {num_given:,} whole conversations", fix=fix) from None
    if shape == _KEYED:
        return list(value.values())
    for part in shape.split("."):
        value = value if part in ("item", "") else value[part]
    return value if shape.endswith("item") else [value]


def _measure(open_file: Open) -> int:
    with open_file() as stream:
        return sum(len(chunk) for chunk in iter(lambda: stream.read(_CHUNK), b""))


def _read_lines(open_file: Open, name: str, on_replaced: Callable[[int], None]) -> Iterator[tuple[str, Any]]:
    with open_file() as stream:
        text = Utf8Stream(stream)
        for number, line in enumerate(io.BufferedReader(text), start=1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                value = ValueError("not JSON")
            yield f"{name}, line {number}", value
        on_replaced(text.num_replaced)
