"""Predictions beside their gold answers, and files of them.

A file is JSON (a list of rows, or an object with the list under ``pairs``) or JSON lines (one row a line)::

    {"category": 4, "gold": "Oslo", "prediction": "In Oslo"}

`gold` is a text, a number (read as its text), or a list of them, any of which is right; `prediction` is a text. `category` is a number or a name and may be
missing where a metric does not ask for it; so may `id`. Other fields are not read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from napmem_rl.errors import DataError

_EXPECTED = "the fields category, gold and prediction"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """One prediction. `id` and `category` are texts; "" is a category that was not given; `place` is where it stands in a file.

    Example: Pair(id="q7", category="4", gold=("Oslo",), prediction="In Oslo")
    """

    id: str
    category: str
    gold: tuple[str, ...]  # any of them is right; empty only where the category needs none (LoCoMo's adversarial questions)
    prediction: str
    place: str = ""

    def describe(self) -> str:
        """How an error names the pair: by its place, else by its id."""
        return self.place or f"pair {self.id}"


def load_pairs(path: Path) -> list[tuple[Pair, dict[str, Any]]]:
    """The pairs of a file in their order, each with the `id` and `category` of its row as they stand there, for who writes them out again.

    A row without an id is named by its number, counting from 0.

    Raises:
        DataError: no such file, another encoding than UTF-8, not JSON, no rows, or a row that is no pair. The message names row and field.
    """
    pairs = [_read_pair(row, index, where) for index, (where, row) in enumerate(_read_rows(path))]
    if not pairs:
        raise DataError.of(f"pairs {path}", "holds no row", expected="at least one pair")
    return pairs


def _read_pair(row: Any, index: int, where: str) -> tuple[Pair, dict[str, Any]]:
    """One row as a pair, with its id and category as they are written. Raises DataError, named by `where`."""
    if not isinstance(row, dict):
        raise DataError.of(where, "is no JSON object", got=row, expected=f"an object with {_EXPECTED}")
    _check_unicode(row, where)
    category = row.get("category")
    if category is not None and (isinstance(category, bool) or not isinstance(category, str | int)):
        raise DataError.of(f"{where}, field 'category'", "is of another type", got=category, expected="a whole number or a text")
    given = row.get("id")
    if given is not None and (isinstance(given, bool) or not isinstance(given, str | int)):
        raise DataError.of(f"{where}, field 'id'", "is of another type", got=given, expected="a whole number or a text")
    for name in ("gold", "prediction"):
        if name not in row:
            raise DataError.of(f"{where}, field {name!r}", "is missing", got=sorted(row), expected=_EXPECTED)
    if not isinstance(row["prediction"], str):
        raise DataError.of(f"{where}, field 'prediction'", "is no text", got=row["prediction"], expected='a text; "" where nothing was answered')
    kept = {"id": index if given is None else given} | ({} if category is None else {"category": category})
    pair = Pair(
        id=str(kept["id"]),
        category="" if category is None else str(category),
        gold=_read_gold(row["gold"], f"{where}, field 'gold'"),
        prediction=row["prediction"],
        place=where,
    )
    return pair, kept


def _read_gold(value: Any, what: str) -> tuple[str, ...]:
    """Accepted answers; an empty or missing text is none, which the metrics that need one refuse."""
    values = value if isinstance(value, list) else [] if value is None or value == "" else [value]
    for entry in values:
        if isinstance(entry, bool) or not isinstance(entry, str | int | float):
            raise DataError.of(what, "is of another type", got=entry, expected="a text, a number, or a list of them")
        if isinstance(entry, str) and not entry.strip():
            raise DataError.of(what, "holds a blank text", got=value, expected="something to compare with")
    return tuple(map(str, values))


def _read_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """(how an error names the row, the row)."""
    what = f"pairs {path}"
    if not path.is_file():
        raise DataError.of(what, "no such file" if not path.exists() else "is not a file")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError.of(what, f"is not UTF-8 (byte {error.object[error.start]:#04x} at position {error.start})") from error
    except OSError as error:
        raise DataError.of(what, f"cannot be read ({error.strerror})") from error
    if not text.strip():
        raise DataError.of(what, "is empty", expected="a JSON file or JSON lines")
    try:
        value = _parse(text)
    except ValueError as error:
        if "\n" not in text.strip():
            raise DataError.of(what, f"is not JSON ({error})", expected="a JSON file or JSON lines") from error
        yield from _read_lines(text, what, error)
        return
    yield from _open_value(value, what)


def _open_value(value: Any, what: str) -> Iterator[tuple[str, Any]]:
    """The rows of one JSON document; an object that is a pair itself is JSON lines of one line."""
    if isinstance(value, Mapping) and "pairs" not in value and "prediction" in value:
        value = [value]
    rows = value.get("pairs") if isinstance(value, Mapping) else value
    if not isinstance(rows, list):
        found = type(value).__name__ if rows is None else rows
        raise DataError.of(what, "holds no list of rows", got=found, expected="a list, or an object with the list `pairs`")
    yield from ((f"{what}, row {index} (counting from 0)", row) for index, row in enumerate(rows))


def _read_lines(text: str, what: str, whole: ValueError) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(text.split("\n"), start=1):  # not splitlines: texts may hold other line separators
        if not line.strip():
            continue
        try:
            row = _parse(line)
        except ValueError as error:
            if number == 1:  # not JSON lines either: one broken document
                raise DataError.of(what, f"is not JSON ({whole})", expected="a JSON file or JSON lines") from error
            raise DataError.of(f"{what}, line {number}", f"is not JSON ({error})") from error
        yield f"{what}, line {number}", row


def _parse(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _check_unicode(row: Mapping[str, Any], where: str) -> None:
    for name, value in row.items():
        try:
            json.dumps([name, value], ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise DataError.of(f"{where}, field {name!r}", "holds half of a surrogate pair, which is not valid Unicode") from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
