"""Rows on disk: questions with their keys as parquet, in the columns that verl's dataset reads.

======================  =========================================================================================================
column                  what
======================  =========================================================================================================
``data_source``         name of the set; verl groups validation metrics by it
``prompt``              ``[{role: "user", content: question}]``; verl wants one, the episode builds the real prompt itself
``task``                the `Task` as a JSON string
``answer_key``          the `AnswerKey` as a JSON string
``agent_name``          the agent loop that runs the row: one of `AGENT_NAMES`
``reward_model``        ``{style, ground_truth}``; verl wants it, the reward comes from ``answer_key``
``extra_info``          ``{index}``, the row's number in the file
======================  =========================================================================================================

Nested values travel as JSON text because lists in parquet come back as numpy arrays. verl's ``RLHFDataset`` hands every column on, so the agent loop
gets ``task`` and ``answer_key`` as the strings written here.
"""

from __future__ import annotations

import dataclasses
import json
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from napmem_rl.atomic import open_replacement
from napmem_rl.errors import DataError
from napmem_rl.memory.pyramid import is_time
from napmem_rl.schema import AnswerKey, AnswerKind, Task, as_json

AGENT_NAME = "napmem"
AGENT_NAMES = (AGENT_NAME, "memchain")  # rows that this project's agent loop runs; which system plays them is the recipe's to say
COLUMNS = ("data_source", "prompt", "task", "answer_key", "agent_name", "reward_model", "extra_info")
_STRING_LISTS = {"options", "references", "evidence_ids"}
_OPTIONAL_STRINGS = {"asked_at"}
_NON_EMPTY = {"task_id", "bank_id", "question"}


def save_rows(
    path: Path | str,
    items: Sequence[tuple[Task, AnswerKey]],
    *,
    data_source: str,
    agent_name: str = AGENT_NAME,
    columns: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Write questions with their keys to one parquet file, atomically.

    Args:
        path: the file, e.g. ``data/train.parquet``.
        items: pairs of task and key, in the order in which they are to stand.
        data_source: name of the set, e.g. ``"locomo"``.
        agent_name: one of `AGENT_NAMES`.
        columns: further columns of texts, one each row.

    Raises:
        DataError: no pairs, or a pair that `load_rows` would refuse (no answer, empty question, repeated task id, ...).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    check_pairs(str(path), items)
    rows = [_build_row(index, task, key, data_source) | {"agent_name": agent_name} for index, (task, key) in enumerate(items)]
    rows = [row | {name: values[index] for name, values in (columns or {}).items()} for index, row in enumerate(rows)]
    table = pa.Table.from_pylist(rows)
    with open_replacement(path) as file:
        pq.write_table(table, file)


def load_rows(path: Path | str) -> list[tuple[Task, AnswerKey]]:
    """Read the pairs of one parquet file, each row checked.

    Raises:
        DataError: file missing or not parquet, no rows, a missing column, bad JSON, a row without answer or question, a repeated task id. The message
            names the file and the row.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    if not path.is_file():
        raise DataError.of(f"rows {path}", "the file does not exist", fix="Write it with launch/prepare_data.py, or correct data.dir.")
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError.of(f"rows {path}", f"not a readable parquet file ({error})") from error
    missing = [name for name in ("task", "answer_key") if name not in table.column_names]
    if missing:
        raise DataError.of(f"rows {path}, row 0", f"missing column {missing[0]!r}", got=table.column_names, expected=f"the columns {', '.join(COLUMNS)}")
    items = []
    for index, row in enumerate(table.select(["task", "answer_key"]).to_pylist()):
        what = _row_name(str(path), index)
        items.append((row_to_task(row, what=what), row_to_key(row, what=what)))
    check_pairs(str(path), items)
    return items


def row_to_task(row: Mapping[str, Any], *, what: str = "row") -> Task:
    """The `Task` of one row, as stored or as verl hands it to an agent loop.

    Args:
        row: mapping with the column ``task``.
        what: how errors name the row.

    Raises:
        DataError: the column is missing, is not JSON, or does not fit the type.
    """
    return Task(**_read_fields(row, "task", Task, what))


def row_to_key(row: Mapping[str, Any], *, what: str = "row") -> AnswerKey:
    """The `AnswerKey` of one row; the same rules as `row_to_task`, and a key without answer is refused."""
    key = AnswerKey(**_read_fields(row, "answer_key", AnswerKey, what))
    _check_references(key, what)
    return key


def check_pairs(where: str, items: Sequence[tuple[Task, AnswerKey]]) -> None:
    """Refuse pairs that nothing could be learnt or measured from.

    Raises:
        DataError: no pairs; an empty question or answer; a key of another task; a letter that is no option; an `asked_at` that is no moment; a
            repeated task id.
    """
    if not items:
        raise DataError.of(f"rows {where}", "there are no rows", expected="at least one question")
    seen: dict[str, int] = {}
    for index, (task, key) in enumerate(items):
        what = f"{_row_name(where, index)}, task {task.task_id}"
        _check_references(key, what)
        for name in sorted(_NON_EMPTY):
            if not getattr(task, name).strip():
                raise DataError.of(what, f"{name} is empty", expected="a non-empty string")
        if task.asked_at is not None and not is_time(task.asked_at):  # times compare as texts: another form would hide or show the wrong memories
            raise DataError.of(what, "asked_at is not a moment", got=task.asked_at, expected="ISO 8601 without a zone, such as 2024-03-05T13:56:00, or null")
        if key.task_id != task.task_id:
            raise DataError.of(what, "the answer key belongs to another task", got=key.task_id, expected=task.task_id)
        letters = string.ascii_uppercase[: len(task.options)]
        if task.options and (len(key.references) != 1 or key.references[0] not in tuple(letters)):
            raise DataError.of(what, "the answer is not one of the options", got=key.references, expected=f"one letter of {letters}")
        if task.task_id in seen:
            raise DataError.of(what, f"task id stands in row {seen[task.task_id]} too", got=task.task_id, expected="unique ids")
        seen[task.task_id] = index


def _row_name(where: str, index: int) -> str:
    return f"rows {where}, row {index} (counting from 0)"


def _build_row(index: int, task: Task, key: AnswerKey, data_source: str) -> dict[str, Any]:
    return {
        "data_source": data_source,
        "prompt": [{"role": "user", "content": task.question}],
        "task": json.dumps(as_json(task), ensure_ascii=False),
        "answer_key": json.dumps(as_json(key), ensure_ascii=False),
        "agent_name": AGENT_NAME,
        "reward_model": {"style": "rule", "ground_truth": ""},
        "extra_info": {"index": index},
    }


def _check_references(key: AnswerKey, what: str) -> None:
    if not key.references or not all(reference.strip() for reference in key.references):
        raise DataError.of(what, "has no answer", got=key.references, expected="at least one non-empty reference", fix="Add the answer or drop the row.")


def _read_fields(row: Mapping[str, Any], column: str, cls: type, what: str) -> dict[str, Any]:
    """Parse one JSON column into the keyword arguments of `cls`, every value checked against its type."""
    if column not in row:
        raise DataError.of(what, f"missing column {column!r}", got=sorted(row), expected=f"the columns {', '.join(COLUMNS)}")
    try:
        values = json.loads(row[column])
    except (TypeError, ValueError) as error:
        raise DataError.of(f"{what}, column {column!r}", f"not JSON text ({error})", got=row[column], expected="a JSON object") from error
    if not isinstance(values, dict):
        raise DataError.of(f"{what}, column {column!r}", "not a JSON object", got=values, expected="a JSON object")
    fields = {field.name: field for field in dataclasses.fields(cls)}
    unknown = sorted(set(values) - set(fields))
    required = {name for name, field in fields.items() if field.default is dataclasses.MISSING}
    if unknown or required - set(values):
        problem = f"unknown key {unknown[0]!r}" if unknown else f"missing key {sorted(required - set(values))[0]!r}"
        raise DataError.of(f"{what}, column {column!r}", problem, expected=f"the keys of {cls.__name__}: {', '.join(fields)}")
    return {name: _check_value(f"{what}, column {column!r}, key {name!r}", name, value) for name, value in values.items()}


def _check_value(what: str, name: str, value: Any) -> Any:
    if name == "kind":
        if value not in tuple(AnswerKind):
            raise DataError.of(what, "is unknown", got=value, expected=", ".join(AnswerKind))
        return AnswerKind(value)
    if name in _STRING_LISTS:
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise DataError.of(what, "wrong type", got=value, expected="a list of strings")
        return tuple(value)
    is_fine = isinstance(value, bool) if name == "needs_memory" else isinstance(value, str) or (value is None and name in _OPTIONAL_STRINGS)
    if not is_fine:
        raise DataError.of(what, "wrong type", got=value, expected="true or false" if name == "needs_memory" else "a string")
    return value
