"""Candidates in a file, so that any retriever can stand before the policy: one JSON object a line (JSON Lines, UTF-8), one line a task.

::

    {"task_id": "conv-1:7", "candidates": [{"id": "msg:12", "text": "We moved to Oslo.", "time": "2024-03-05T13:56:00", "speaker": "Ana"}, …]}

Of a candidate `id` and `text` are required; its other fields are those of `Candidate`. Nothing is repaired: what does not fit is an error with file and line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from napmem_rl.atomic import write_file
from napmem_rl.errors import DataError
from napmem_rl.llm.structured import refuse_repeats
from napmem_rl.schema import Level, Task
from napmem_rl.systems.memchain.candidates import Candidate, check_candidates

_TEXTS = ("id", "text", "time", "speaker", "session_id")
_LISTS = ("views", "source_ids")
_FIELDS = tuple(field.name for field in fields(Candidate))


def save_candidates(path: Path, candidates: Mapping[str, Sequence[Candidate]]) -> None:
    """Write the candidates of tasks, by task id. Raises DataError where they could not be read back."""
    lines = []
    for task_id, items in candidates.items():
        check_candidates(items, what=f"candidates of task {task_id}")
        lines.append(json.dumps({"task_id": task_id, "candidates": [asdict(item) for item in items]}, ensure_ascii=False))
    write_file(path, "".join(f"{line}\n" for line in lines))


def load_candidates(path: Path) -> dict[str, tuple[Candidate, ...]]:
    """Read the candidates of all tasks of a file, by task id.

    Raises:
        DataError: no such file, not UTF-8, or a line that is no JSON object, misses a field, holds an unknown one or one of another type, names a task again,
            or whose candidates cannot be a boundary of citations (see `check_candidates`).
    """
    try:
        content = path.read_bytes().decode()
    except OSError as error:
        raise DataError.of(f"candidates {path}", f"cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise DataError.of(f"candidates {path}", "are not UTF-8", got=str(error)) from error
    found: dict[str, tuple[Candidate, ...]] = {}
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        what = f"candidates {path}, line {number}"
        row = _read_object(line, what)
        _check_fields(row, ("task_id", "candidates"), ("task_id", "candidates"), what)
        task_id, items = row["task_id"], row["candidates"]
        if not isinstance(task_id, str) or not task_id or not isinstance(items, list):
            raise DataError.of(what, "needs a task_id in words and a list of candidates", got=row)
        if task_id in found:
            raise DataError.of(what, "names a task again", got=task_id)
        read = [_read_candidate(item, f"{what}, candidate {index}") for index, item in enumerate(items, start=1)]
        found[task_id] = check_candidates(read, what=what)
    return found


def dump_candidates(candidates: Sequence[Candidate]) -> str:
    """Candidates as JSON text, for a column of rows; `parse_candidates` reads it back."""
    return json.dumps([asdict(item) for item in candidates], ensure_ascii=False)


def parse_candidates(text: str, *, what: str, asked_at: str | None = None) -> tuple[Candidate, ...]:
    """Read what `dump_candidates` wrote. Raises DataError as `load_candidates` does, and for a candidate later than `asked_at`."""
    items = _read_object(f'{{"candidates": {text}}}', what)["candidates"]
    if not isinstance(items, list):
        raise DataError.of(what, "are no list", got=text)
    read = [_read_candidate(item, f"{what}, candidate {index}") for index, item in enumerate(items, start=1)]
    return check_candidates(read, what=what, asked_at=asked_at)


def find_candidates(found: Mapping[str, tuple[Candidate, ...]], task: Task, *, path: Path) -> tuple[Candidate, ...]:
    """The candidates of one task.

    Raises:
        DataError: the file does not have the task, or holds something later than its `asked_at`.
    """
    if task.task_id not in found:
        raise DataError.of(f"candidates {path}", "do not have a task", got=task.task_id, fix="Retrieve candidates for every task of the set.")
    return check_candidates(found[task.task_id], what=f"candidates {path}, task {task.task_id}", asked_at=task.asked_at)


def _read_object(line: str, what: str) -> dict[str, Any]:
    try:
        row = json.loads(line, object_pairs_hook=refuse_repeats)
        line.encode()
        json.dumps(row, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise DataError.of(what, f"is no JSON object ({error})", got=line) from error
    if not isinstance(row, dict):
        raise DataError.of(what, "is no JSON object", got=line)
    return row


def _read_candidate(row: Any, what: str) -> Candidate:
    if not isinstance(row, dict):
        raise DataError.of(what, "is no JSON object", got=row)
    _check_fields(row, _FIELDS, ("id", "text"), what)
    values: dict[str, Any] = dict(row)
    for name in _TEXTS:
        if not isinstance(values.get(name, ""), str):
            raise DataError.of(what, f"has a {name} that is no text", got=values[name])
    for name in _LISTS:
        items = values.get(name, [])
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise DataError.of(what, f"has {name} that are no list of texts", got=items)
        values[name] = tuple(items)
    score, level = values.get("score", 0.0), values.get("level", str(Level.RAW))
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        raise DataError.of(what, "has a score that is no number", got=score)
    if level not in [str(known) for known in Level]:
        raise DataError.of(what, "has an unknown level", got=level, expected=", ".join(Level))
    return Candidate(**values | {"score": float(score), "level": Level(level)})


def _check_fields(row: Mapping[str, Any], known: Sequence[str], required: Sequence[str], what: str) -> None:
    missing = [name for name in required if name not in row]
    unknown = [name for name in row if name not in known]
    if missing:
        raise DataError.of(what, f"misses {', '.join(missing)}", got=dict(row))
    if unknown:
        raise DataError.of(what, "has an unknown field", got=unknown[0], expected=", ".join(known))
