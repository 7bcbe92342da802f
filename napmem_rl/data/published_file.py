"""Files as data sets are published: JSON lists or JSON lines, plain or gzipped, read one object at a time; CSV; and fields of the type they must have.

A file may be larger than memory: only the object at hand, and a piece of text around it, is held.
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from napmem_rl.errors import DataError

_PIECE = 1 << 20  # characters read at a time
_GZIP_START = b"\x1f\x8b"


def iterate_objects(path: Path, what: str) -> Iterator[dict[str, Any]]:
    """The objects of a JSON list, or of a file of JSON objects one after another (JSON lines), in order; gzipped or not, whatever the name says.

    Args:
        path: the file.
        what: how errors name it, e.g. ``"LongMemEval file oracle.json"``.

    Raises:
        DataError: missing, cut off, not JSON, or something other than objects. The message says after how many objects.
    """
    number = 0
    for number, value in enumerate(_iterate_values(path, what), start=1):
        if not isinstance(value, dict):
            raise DataError.of(f"{what}, item {number - 1} (counting from 0)", "is no JSON object", got=value)
        yield value
    if not number:
        raise DataError.of(what, "holds nothing", expected="a JSON list of objects, or one object a line")


def iterate_table(path: Path, what: str, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    """(number counting from 1, row) of a CSV file with a header line, gzipped or not.

    Args:
        path: the file.
        what: how errors name it.
        columns: those that must be there; others are handed on too.

    Raises:
        DataError: missing, not text, without one of the columns, a row that is cut off, or no rows.
    """
    csv.field_size_limit(sys.maxsize)
    number = 0
    with open_text(path, what) as stream:
        reader = csv.DictReader(stream)
        missing = [name for name in columns if name not in (reader.fieldnames or ())]
        if missing:
            raise DataError.of(what, f"has no column {missing[0]!r}", got=reader.fieldnames, fix="Give the file as it was published.")
        rows = _guard(reader, what)
        for number, row in enumerate(rows, start=1):
            short = [name for name in columns if row.get(name) is None]
            if short:
                raise DataError.of(f"{what}, row {number}", f"ends before column {short[0]!r}", fix="The file may be cut off: get it again.")
            yield number, row
    if not number:
        raise DataError.of(what, "holds no rows")


def open_text(path: Path, what: str) -> IO[str]:
    """A file as UTF-8 text, unzipped where it is gzipped. Raises DataError where it is missing."""
    if not path.is_file():
        raise DataError.of(what, "is not a file" if path.exists() else "the file does not exist", got=str(path))
    with path.open("rb") as stream:
        is_zipped = stream.read(2) == _GZIP_START
    if is_zipped:
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def read_field(raw: Any, name: str, kind: type | tuple[type, ...], what: str, *, set_name: str) -> Any:
    """A field of an object of a file, of the type it must have; a boolean is no number.

    Args:
        raw: the object.
        name: of the field.
        kind: Python type, or several.
        what: how errors name the object.
        set_name: whose format it is, e.g. ``"LongMemEval"``.

    Raises:
        DataError: `raw` is no object, the field is missing, or of another type.
    """
    if not isinstance(raw, Mapping):
        raise DataError.of(what, f"not {set_name}'s format", got=raw, expected="a JSON object")
    if name not in raw:
        fix = "It may be another version of the data set: give the file as it was published."
        raise DataError.of(what, f"not {set_name}'s format: no field {name!r}", got=sorted(raw)[:12], fix=fix)
    value = raw[name]
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        expected = " or ".join(f"a JSON {entry.__name__}" for entry in kinds)
        raise DataError.of(f"{what}, field {name!r}", f"not {set_name}'s format: wrong type", got=value, expected=expected)
    return value


def _guard(reader: Iterator[Any], what: str) -> Iterator[Any]:
    """The same, with what a broken file raises turned into a DataError."""
    try:
        yield from reader
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError.of(what, f"the gzip file is cut off or broken ({error})", fix="Get it again.") from error
    except UnicodeDecodeError as error:
        raise DataError.of(what, f"is not UTF-8 ({error.reason} at byte {error.start} of a piece)") from error
    except csv.Error as error:
        raise DataError.of(what, f"is not CSV ({error})") from error


def _read_pieces(stream: IO[str]) -> Iterator[str]:
    while piece := stream.read(_PIECE):
        yield piece


def _iterate_values(path: Path, what: str) -> Iterator[Any]:
    """The values of a list, or those that stand one after another."""
    decoder = json.JSONDecoder()
    with open_text(path, what) as stream:
        pieces = _guard(_read_pieces(stream), what)
        text = _fill("", pieces)
        is_list = text.startswith("[")
        text, number = text[1:] if is_list else text, 0
        while True:
            text = _fill(text, pieces)
            if is_list and text.startswith("]"):
                _refuse_rest(_fill(text[1:], pieces), what)
                return
            if not text and not is_list:
                return
            if is_list and number and text.startswith(","):
                text = _fill(text[1:], pieces)
            elif is_list and number and text:
                raise DataError.of(f"{what}, item {number} (counting from 0)", "stands after no comma", got=text[:80], fix="Get the file again.")
            value, text = _decode(decoder, text, pieces, f"{what}, item {number} (counting from 0)")
            number += 1
            yield value


def _refuse_rest(text: str, what: str) -> None:
    """A second list would be passed over without a word."""
    if text:
        raise DataError.of(what, "goes on after the end of its list", got=text[:80], fix="Give the file as it was published, one list a file.")


def _fill(text: str, pieces: Iterator[str]) -> str:
    """The text from its first character that is not blank on, with more read until there is one."""
    text = text.lstrip()
    while not text:
        piece = next(pieces, None)
        if piece is None:
            return ""
        text = piece.lstrip()
    return text


def _decode(decoder: json.JSONDecoder, text: str, pieces: Iterator[str], what: str) -> tuple[Any, str]:
    """The value that a text begins with, and the rest; more is read while the value has no end, each time as much again."""
    while True:
        try:
            value, end = decoder.raw_decode(text)
            return value, text[end:]
        except (json.JSONDecodeError, RecursionError) as error:
            more = [piece for _, piece in zip(range(1 + len(text) // _PIECE), pieces, strict=False)]
            if not more:
                fix = "The file may be cut off: get it again."
                raise DataError.of(what, f"is cut off or no JSON ({error})", got=text[:80], fix=fix) from error
            text += "".join(more)
