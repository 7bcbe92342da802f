"""The columns of a bank's logs on disk, so that opening does not parse every line. Derived: lost or damaged ones are built again from the logs.

::

    index/columns.json                 how much of each log is covered (lines, bytes, chain hash), and a checksum of each file below
    index/{messages,records}.rows      rows of `bank_rows`, appended to at each commit
    index/{messages,records}.names     names by code, one JSON object a line: {"sessions": […], "speakers": […]}
    index/records.ends                 which records merges ended

The bank's writer extends them now and then; a reader that had to do without leaves fresh ones. Files are only appended to beyond what the head covers, or
replaced as a whole, so that who reads beside that sees a whole that fits, or builds its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from napmem_rl.atomic import write_file
from napmem_rl.memory.bank_rows import END_ROW, MESSAGE_ROW, REVISION_ROW, GrowingRows, IdIndex, Names
from napmem_rl.memory.bank_tables import MessageTable, RevisionTable
from napmem_rl.memory.commit_log import Commit

_LOG = logging.getLogger(__name__)
_FORMAT = [1, str(MESSAGE_ROW), str(REVISION_ROW), str(END_ROW)]
_HEAD = "columns.json"
MAPPED_BYTES = 1 << 20  # a larger file of rows is mapped, and read in steps of this size


@dataclass(frozen=True, kw_only=True, slots=True)
class Covered:
    """What columns on disk cover. `files`: (bytes, CRC-32) by file name."""

    num_messages: int
    num_revisions: int
    message_bytes: int
    record_bytes: int
    message_chain: str
    record_chain: str
    files: Mapping[str, tuple[int, int]]
    num_names: tuple[int, int, int]  # sessions and speakers of messages, sessions of records

    def fits(self, commit: Commit) -> bool:
        """Whether a commit ends where these columns do."""
        theirs = (self.num_messages, self.num_revisions, self.message_bytes, self.record_bytes, self.message_chain, self.record_chain)
        ends = (commit.messages.num_bytes, commit.records.num_bytes, commit.messages.chain.hex(), commit.records.chain.hex())
        return theirs == (commit.num_messages, commit.num_revisions, *ends)


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """Columns as they were read."""

    covered: Covered
    rows: tuple[np.ndarray, np.ndarray]
    ends: np.ndarray
    names: tuple[list[str], list[str], list[str]]  # see `Covered.num_names`

    def fill(self, messages: MessageTable, revisions: RevisionTable, commit: Commit) -> tuple[MessageTable, RevisionTable]:
        """Both tables with the rows up to a commit, on the logs of the given empty ones."""
        rows = (self.rows[0][: commit.num_messages], self.rows[1][: commit.num_revisions])
        ends = self.ends[self.ends["by"] < len(rows[1])]
        sessions, speakers, record_sessions = (Names(names) for names in self.names)
        first = MessageTable(messages.log, GrowingRows(rows[0]), IdIndex(rows[0]["id_hash"]), sessions, messages.keys, speakers)
        parts = (revisions.log, GrowingRows(rows[1]), IdIndex(rows[1]["id_hash"]), record_sessions, revisions.keys, GrowingRows(ends))
        return first, RevisionTable(*parts, RevisionTable.replay(rows[1], ends))


def read_covered(directory: Path) -> Covered | None:
    """What the columns on disk cover. To be read before the bank's commits: then these hold the one that it ends with."""
    try:
        return _read_head(directory)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        _LOG.warning("%s: columns cannot be used (%s); they are built again", directory, error)
        return None


def load_columns(directory: Path, covered: Covered | None, commits: Sequence[Commit]) -> Columns | None:
    """Columns that cover a bank up to one of its commits; None where there are none that fit."""
    if covered is None or not any(covered.fits(commit) for commit in reversed(commits)):
        return None
    try:
        lines = [
            [json.loads(line) for line in _read_checked(directory / name, *covered.files[name]).splitlines()] for name in ("messages.names", "records.names")
        ]
        names = [[name for line in lines[which] for name in line[kind]] for which, kind in ((0, "sessions"), (0, "speakers"), (1, "sessions"))]
        kinds = (("messages.rows", MESSAGE_ROW), ("records.rows", REVISION_ROW), ("records.ends", END_ROW))
        messages, records, ends = (_read_rows(directory / name, dtype, *covered.files[name]) for name, dtype in kinds)
        return Columns(covered=covered, rows=(messages, records), ends=ends, names=tuple(names))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        _LOG.warning("%s: columns cannot be used (%s); they are built again", directory, error)
        return None


def save_columns(directory: Path, messages: MessageTable, revisions: RevisionTable, commit: Commit, *, seen: Covered | None | bool = True) -> None:
    """Make the columns on disk cover a bank up to its newest commit: what is missing is appended where that is possible. Failures are logged, never raised.

    Args:
        directory: the bank's index/.
        messages, revisions: the bank at this commit.
        commit: the newest one.
        seen: for a reader, what it found on disk; nothing is written where that has changed since. True for the bank's writer, who knows best.
    """
    try:
        directory.mkdir(exist_ok=True)
        with _hold(directory / ".columns.lock"):
            if seen is not True and read_covered(directory) != seen:
                return
            covered = _find_covered(directory, messages, revisions)
            if covered is not None and covered.fits(commit):
                return
            contents = _render(messages, revisions, covered)
            files = {name: _write(directory / name, content, covered and covered.files[name]) for name, content in contents.items()}
            new = Covered(
                num_messages=len(messages),
                num_revisions=len(revisions),
                message_bytes=messages.num_bytes,
                record_bytes=revisions.num_bytes,
                message_chain=commit.messages.chain.hex(),
                record_chain=commit.records.chain.hex(),
                files=files,
                num_names=_count_names(messages, revisions),
            )
            write_file(directory / _HEAD, json.dumps({"format": _FORMAT} | asdict(new)), durable=False)
    except OSError as error:
        _LOG.info("%s: columns cannot be written (%s); each process builds its own", directory, error)


@contextlib.contextmanager
def _hold(path: Path) -> Iterator[None]:
    """One process at a time changes the columns; it takes milliseconds, so that others wait."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read_head(directory: Path) -> Covered:
    fields = json.loads((directory / _HEAD).read_text(encoding="utf-8"))
    if fields.pop("format") != _FORMAT:
        raise ValueError("of another format")
    files = {name: (int(size), int(crc)) for name, (size, crc) in fields.pop("files").items()}
    return Covered(**fields | {"files": files, "num_names": tuple(fields["num_names"])})


def _read_checked(path: Path, size: int, crc: int) -> bytes:
    """The first bytes of a file."""
    with path.open("rb") as stream:
        content = stream.read(size)
    if len(content) != size or zlib.crc32(content) != crc:
        raise ValueError(f"{path.name} is damaged")
    return content


def _read_rows(path: Path, dtype: np.dtype, size: int, crc: int) -> np.ndarray:
    """The rows in the first bytes of a file; a large one is mapped, so that processes share it."""
    if size <= MAPPED_BYTES:
        return np.frombuffer(_read_checked(path, size, crc), dtype)
    found, left = 0, size
    with path.open("rb") as stream:
        while left and (content := stream.read(min(left, MAPPED_BYTES))):
            found, left = zlib.crc32(content, found), left - len(content)
        if left or found != crc:
            raise ValueError(f"{path.name} is damaged")
        return np.memmap(stream, dtype, mode="r", shape=(size // dtype.itemsize,)).view(np.ndarray)


def _find_covered(directory: Path, messages: MessageTable, revisions: RevisionTable) -> Covered | None:
    """What is on disk, where it covers a part of these tables and can be appended to."""
    try:
        covered = _read_head(directory)
        is_whole = all((directory / name).stat().st_size >= size for name, (size, _) in covered.files.items())
    except (OSError, ValueError, KeyError, TypeError):
        return None
    keys = (messages.prefix_key(covered.num_messages), revisions.prefix_key(covered.num_revisions))
    return covered if is_whole and keys == (covered.message_chain, covered.record_chain) else None


def _count_names(messages: MessageTable, revisions: RevisionTable) -> tuple[int, int, int]:
    return len(messages.session_names), len(messages.speaker_names), len(revisions.session_names)


def _render(messages: MessageTable, revisions: RevisionTable, covered: Covered | None) -> dict[str, bytes]:
    """What each file lacks."""
    num_messages, num_revisions = (covered.num_messages, covered.num_revisions) if covered else (0, 0)
    sessions, speakers, record_sessions = covered.num_names if covered else (0, 0, 0)
    first = {"sessions": messages.session_names[sessions:], "speakers": messages.speaker_names[speakers:]}
    ends = revisions.ends[revisions.ends["by"] >= num_revisions]
    return {
        "messages.rows": messages.rows[num_messages:].tobytes(),
        "messages.names": _render_names(first),
        "records.rows": revisions.rows[num_revisions:].tobytes(),
        "records.names": _render_names({"sessions": revisions.session_names[record_sessions:]}),
        "records.ends": ends.tobytes(),
    }


def _render_names(names: Mapping[str, Sequence[str]]) -> bytes:
    return (json.dumps(dict(names)) + "\n").encode() if any(names.values()) else b""


def _write(path: Path, content: bytes, covered: tuple[int, int] | None) -> tuple[int, int]:
    """Append to what is covered of a file, or replace the file; returns (bytes, CRC-32) of the whole."""
    if covered is None:
        write_file(path, content, durable=False)
        return len(content), zlib.crc32(content)
    size, crc = covered
    if content:
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, content, size)
        finally:
            os.close(descriptor)
    return size + len(content), zlib.crc32(content, crc)
