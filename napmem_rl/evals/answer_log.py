"""The answers of one benchmark on disk: a line an attempt, appended as attempts end, read again where a run goes on.

A line is handed to the operating system whole, in one call, so that a killed process leaves whole lines; what a power cut tears off at the end is cut at the
next opening, and said. Of several lines with one identity the last counts.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from napmem_rl.errors import DataError
from napmem_rl.evals.result_rows import AnswerRow
from napmem_rl.schema import Status

Identity = tuple[str, int]  # (task_id, sample)
_OURS = frozenset(str(status) for status in Status if status.is_ours)
_FIELDS = {field.name for field in dataclasses.fields(AnswerRow)}


def is_error(row: AnswerRow) -> bool:
    """Whether the attempt failed by the system's doing: it is never scored, and asked again when the run goes on."""
    return row.trajectory["status"] in _OURS


class AnswerLog:
    """An open answers.jsonl; for one writer. `repairs` says in words what was found broken and cut."""

    def __init__(self, path: Path) -> None:
        """Open or create the file, cutting a torn last line.

        Raises:
            DataError: a line that is not the last one is broken, so the file is not what this project wrote.
        """
        self.path = path
        self.repairs: list[str] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        self._cut_tail()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def append(self, row: AnswerRow) -> None:
        """Write one row. Raises OSError where the disk takes no more; nothing of the row stays then."""
        line = render_answer(row)
        size = os.fstat(self._descriptor).st_size
        written = os.write(self._descriptor, line)
        if written != len(line):  # a full disk takes a part
            os.ftruncate(self._descriptor, size)
            raise OSError(28, f"{self.path}: only {written} of {len(line)} bytes could be written")

    def close(self) -> None:
        """Bring what was written to the disk, and close."""
        if self._descriptor >= 0:
            os.fsync(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _cut_tail(self) -> None:
        """Cut what stands after the last line end."""
        if not self.path.exists():
            return
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(self.path, whole)
            self.repairs.append(f"{self.path}: the last line was torn ({len(content) - whole} bytes) and is cut; its question is asked again")


def load_answers(path: Path) -> dict[Identity, AnswerRow]:
    """The row that counts of each attempt, in the order in which their tasks first ended; empty where there is no file. A torn last line is passed over.

    Raises:
        DataError: a line cannot be read. The message names it.
    """
    rows: dict[Identity, AnswerRow] = {}
    for row in iterate_answers(path):
        rows[row.identity] = row
    return rows


def iterate_answers(path: Path) -> Iterator[AnswerRow]:
    """Every row as it stands in the file; see `load_answers`."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield read_answer(line, what=f"{path}, line {number}")


def render_answer(row: AnswerRow) -> bytes:
    """A row as its line."""
    content = {field.name: getattr(row, field.name) for field in dataclasses.fields(AnswerRow)}
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "backslashreplace") + b"\n"


def read_answer(line: bytes, *, what: str) -> AnswerRow:
    """The row of a line. Raises DataError where it is none."""
    try:
        content: Mapping[str, Any] = json.loads(line)
        if set(content) != _FIELDS or not isinstance(content["trajectory"]["status"], str):
            raise ValueError(f"fields {sorted(content)}")
        return AnswerRow(**{**content, "context_ids": tuple(content["context_ids"])})
    except (ValueError, KeyError, TypeError) as error:
        fix = "Remove that line, or the file to ask everything again."
        raise DataError.of(what, f"is no answer of an evaluation ({error})", fix=fix) from error
