"""The two logs of a bank as tables: columns in memory, lines read where an item is asked for. Each table is a snapshot; `appended` gives the next one.

A table is also a `PassageSource`: what its search index is built over.
"""

from __future__ import annotations

import os
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol, overload

import numpy as np

from napmem_rl.memory.bank_rows import END_ROW, MESSAGE_ROW, REVISION_ROW, GrowingRows, IdIndex, Names, hash_id
from napmem_rl.memory.storage import parse_message, parse_revision
from napmem_rl.schema import Message, Record, RecordOperation, RecordRevision, RecordType

ROLES = ("user", "assistant")
RECORD_TYPES = tuple(RecordType)
MAX_NAMES = np.iinfo(np.int16).max  # speakers of a bank


class Lines(Protocol):
    """A log's bytes."""

    def read(self, start: int, stop: int) -> bytes:
        """The bytes [start, stop)."""
        ...


class MemoryLines:
    """A log that is held as a whole."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def read(self, start: int, stop: int) -> bytes:
        """See `Lines`."""
        return self._content[start:stop]


class FileLines:
    """A log on disk, read where it is asked for. The file stays open, so that it is this file that is read whatever takes its place."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)

    def read(self, start: int, stop: int) -> bytes:
        """See `Lines`. Raises OSError where the file has become shorter."""
        content = os.pread(self._descriptor, stop - start, start)
        while len(content) < stop - start:
            more = os.pread(self._descriptor, stop - start - len(content), start + len(content))
            if not more:
                raise OSError(f"a bank's log ends before byte {stop}, which its versions say it holds")
            content += more
        return content


class TailLines:
    """A log, and lines after it that are in memory alone."""

    def __init__(self, base: Lines, num_bytes: int) -> None:
        self._base, self._num_bytes, self._tail = base, num_bytes, bytearray()

    def append(self, lines: Sequence[bytes]) -> None:
        """Add lines at the end."""
        self._tail += b"".join(line + b"\n" for line in lines)

    def read(self, start: int, stop: int) -> bytes:
        """See `Lines`; a range that spans both parts is joined."""
        cut = self._num_bytes
        head = self._base.read(start, min(stop, cut)) if start < cut else b""
        return head + bytes(self._tail[max(start - cut, 0) : max(stop - cut, 0)])


class _Table:
    """What both tables share. `log`: the bytes of all lines; `keys`: chain hash in hex by number of lines, at the ends of commits."""

    def __init__(self, lines: Lines, rows: GrowingRows, ids: IdIndex, sessions: Names, keys: dict[int, str]) -> None:
        self.log, self.keys = lines, keys
        self._rows, self._ids, self._sessions = rows, ids, sessions
        self._num = len(rows)
        self.rows = rows.view(self._num)
        self.times: np.ndarray = self.rows["time"]
        self.kinds: np.ndarray = self.rows["kind"]
        self.sessions: np.ndarray = self.rows["session"]
        self.session_names: Sequence[str] = sessions.names

    def prepare(self) -> None:
        """Sort the ids and make room now, rather than at the first look-up and the first line."""
        self._ids.find(0)
        self._rows.reserve(self._num)

    @property
    def num_bytes(self) -> int:
        """Bytes of the log, the end of its last line included."""
        return int(self.rows["stop"][-1]) + 1 if self._num else 0

    def add_key(self, chain: bytes) -> None:
        """Note that a commit ends with this table's last line."""
        self.keys[self._num] = chain.hex()

    def prefix_key(self, stop: int) -> str | None:
        """See `PassageSource`."""
        return self.keys.get(stop)

    def line(self, position: int) -> bytes:
        """A line as it stands in the log, without its end."""
        row = self.rows[position]
        return self.log.read(int(row["start"]), int(row["stop"]))

    def _read_lines(self, start: int, stop: int) -> list[bytes]:
        stop = min(stop, self._num)
        if start >= stop:
            return []
        return self.log.read(int(self.rows["start"][start]), int(self.rows["stop"][stop - 1])).split(b"\n")

    def _find(self, item_id: str) -> list[int]:
        return [position for position in self._ids.find(hash_id(item_id)) if position < self._num]

    def _build_rows(self, dtype: np.dtype, lines: Sequence[bytes], columns: Mapping[str, Sequence[object]]) -> np.ndarray:
        """Rows of new lines after those that are there."""
        rows = np.zeros(len(lines), dtype=dtype)
        sizes = np.fromiter((len(line) + 1 for line in lines), dtype=np.int64, count=len(lines))
        stops = self.num_bytes + np.cumsum(sizes) - 1
        rows["start"], rows["stop"] = stops - sizes + 1, stops
        rows["crc"] = [zlib.crc32(line) for line in lines]
        for name, values in columns.items():
            rows[name] = values
        return rows


class MessageTable(_Table, Sequence[Message]):
    """All messages, in the order of the log."""

    kind_names: Sequence[str] = ROLES

    def __init__(self, lines: Lines, rows: GrowingRows, ids: IdIndex, sessions: Names, keys: dict[int, str], speakers: Names) -> None:
        super().__init__(lines, rows, ids, sessions, keys)
        self._speakers = speakers
        self.speakers: np.ndarray = self.rows["speaker"]
        self.speaker_names: Sequence[str] = speakers.names
        self.live = np.broadcast_to(np.True_, self._num)

    @classmethod
    def empty(cls, lines: Lines, keys: dict[int, str]) -> MessageTable:
        """The table of an empty log."""
        rows = np.zeros(0, dtype=MESSAGE_ROW)
        return cls(lines, GrowingRows(rows), IdIndex(rows["id_hash"]), Names(), keys, Names())

    def __len__(self) -> int:
        return self._num

    @overload
    def __getitem__(self, position: int) -> Message: ...
    @overload
    def __getitem__(self, position: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, position: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(position, slice):
            return tuple(self[index] for index in range(*position.indices(self._num)))
        return parse_message(self.line(_check_position(position, self._num)))

    def __iter__(self) -> Iterator[Message]:
        for start in range(0, self._num, 1024):
            yield from map(parse_message, self._read_lines(start, start + 1024))

    def __eq__(self, other: object) -> bool:
        return _equal_items(self, other)

    __hash__ = None  # type: ignore[assignment]

    def position(self, message_id: str) -> int | None:
        """Where a message is; None for an unknown id."""
        return next((position for position in self._find(message_id) if self[position].message_id == message_id), None)

    def source(self, message_id: str) -> tuple[str, str] | None:
        """(time, session id) of a message, by the hash of its id alone; None for an unknown one."""
        for position in self._find(message_id):
            return self.times[position].decode(), self.session_names[self.sessions[position]]
        return None

    def texts(self, start: int, stop: int) -> list[str]:
        """See `PassageSource`."""
        return [render_message_passage(parse_message(line)) for line in self._read_lines(start, stop)]

    def appended(self, messages: Sequence[Message], lines: Sequence[bytes]) -> MessageTable:
        """The table with these messages after its own; the log holds their lines already."""
        id_hashes = [hash_id(message.message_id) for message in messages]
        columns = {
            "id_hash": id_hashes,
            "time": [message.time.encode() for message in messages],
            "kind": [ROLES.index(message.role) for message in messages],
            "session": [self._sessions.code(message.session_id) for message in messages],
            "speaker": [self._speakers.code(message.speaker) for message in messages],
        }
        self._rows.append(self._build_rows(MESSAGE_ROW, lines, columns))
        self._ids.append(id_hashes, self._rows)
        return MessageTable(self.log, self._rows, self._ids, self._sessions, self.keys, self._speakers)

    def forked(self, log: Lines) -> MessageTable:
        """The same table over a copy of its log, to which can be added without a trace in this one."""
        rows, names = GrowingRows(self.rows.copy()), (Names(self.session_names), Names(self.speaker_names))
        return MessageTable(log, rows, self._ids.forked(), names[0], dict(self.keys), names[1])


class RevisionTable(_Table):
    """All revisions of records, in the order of the log, and which of them are live.

    `current` holds, by slot (the record's number by first appearance), the position of the live revision; -1 for a record that a merge ended.
    """

    kind_names: Sequence[str] = RECORD_TYPES
    speaker_names: Sequence[str] = ()

    def __init__(
        self, lines: Lines, rows: GrowingRows, ids: IdIndex, sessions: Names, keys: dict[int, str], ends: GrowingRows, current: np.ndarray
    ) -> None:
        super().__init__(lines, rows, ids, sessions, keys)
        self._ends = ends
        self.ends = ends.view(len(ends))
        self.current = current  # [slots] int64
        self.speakers = np.broadcast_to(np.int16(-1), self._num)

    @classmethod
    def empty(cls, lines: Lines, keys: dict[int, str]) -> RevisionTable:
        """The table of an empty log."""
        rows, ends = np.zeros(0, dtype=REVISION_ROW), np.zeros(0, dtype=END_ROW)
        return cls(lines, GrowingRows(rows), IdIndex(rows["id_hash"]), Names(), keys, GrowingRows(ends), np.zeros(0, dtype=np.int64))

    @staticmethod
    def replay(rows: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """`current` after these revisions and merges."""
        current = np.full(int(rows["slot"].max()) + 1 if len(rows) else 0, -1, dtype=np.int64)
        current[rows["slot"]] = np.arange(len(rows))  # the last of a slot stays
        current[ends["slot"]] = -1  # a record that was merged never comes back
        return current

    def __len__(self) -> int:
        return self._num

    @cached_property
    def live_positions(self) -> np.ndarray:
        """[live records] int64, the live revisions in order of their records' first appearance."""
        return self.current[self.current >= 0]

    @cached_property
    def live(self) -> np.ndarray:
        """See `PassageSource`."""
        live = np.zeros(self._num, dtype=bool)
        live[self.live_positions] = True
        return live

    def revision(self, position: int) -> RecordRevision:
        """The revision at a position of the log."""
        return parse_revision(self.line(position))

    def texts(self, start: int, stop: int) -> list[str]:
        """See `PassageSource`."""
        return [render_record_passage(parse_revision(line).record) for line in self._read_lines(start, stop)]

    def positions(self, record_id: str) -> list[int]:
        """All revisions of a record, first to last; empty for an unknown id."""
        return [position for position in self._find(record_id) if self.revision(position).record.record_id == record_id]

    def first_position(self, record_id: str) -> int | None:
        """Where a live record's first revision is; None for an id that is unknown or ended."""
        return None if self.live_position(record_id) is None else self._find(record_id)[0]

    def live_position(self, record_id: str) -> int | None:
        """Where a record's live revision is; None for an id that is unknown or ended."""
        position = self._live_by_hash(record_id)
        return position if position is None or self.revision(position).record.record_id == record_id else None

    def record_time(self, record_id: str) -> str | None:
        """See `Known`; by the hash of the id alone."""
        position = self._live_by_hash(record_id)
        return None if position is None else self.times[position].decode()

    def record_sources(self, record_id: str) -> tuple[str, ...]:
        """See `Known`."""
        position = self._live_by_hash(record_id)
        return () if position is None else self.revision(position).record.source_ids

    def is_record_taken(self, record_id: str) -> bool:
        """See `Known`."""
        return bool(self._find(record_id))

    def appended(self, revisions: Sequence[RecordRevision], lines: Sequence[bytes]) -> RevisionTable:
        """The table with these revisions after its own; the log holds their lines already."""
        slots, ends, num_slots = [], [], len(self.current)
        new: dict[str, int] = {}
        for position, revision in enumerate(revisions, start=self._num):
            record_id = revision.record.record_id
            if revision.operation is RecordOperation.STORE:
                new[record_id] = num_slots + len(new)
            slots.append(self._slot(record_id, new))
            ends += [(position, self._slot(merged_id, new)) for merged_id in revision.merged_ids]
        self._append_rows([revision.record for revision in revisions], lines, slots)
        self._ends.append(np.array(ends, dtype=END_ROW))
        current = np.concatenate([self.current, np.full(len(new), -1, dtype=np.int64)])
        current[slots] = np.arange(self._num, self._num + len(slots))
        current[[slot for _, slot in ends]] = -1
        return RevisionTable(self.log, self._rows, self._ids, self._sessions, self.keys, self._ends, current)

    def forked(self, log: Lines) -> RevisionTable:
        """The same table over a copy of its log, to which can be added without a trace in this one."""
        rows, ends = GrowingRows(self.rows.copy()), GrowingRows(self.ends.copy())
        return RevisionTable(log, rows, self._ids.forked(), Names(self.session_names), dict(self.keys), ends, self.current)

    def _append_rows(self, records: Sequence[Record], lines: Sequence[bytes], slots: Sequence[int]) -> None:
        id_hashes = [hash_id(record.record_id) for record in records]
        columns = {
            "id_hash": id_hashes,
            "time": [record.time.encode() for record in records],
            "kind": [RECORD_TYPES.index(record.type) for record in records],
            "session": [self._sessions.code(record.session_id) for record in records],
            "slot": slots,
        }
        self._rows.append(self._build_rows(REVISION_ROW, lines, columns))
        self._ids.append(id_hashes, self._rows)

    def _slot(self, record_id: str, new: Mapping[str, int]) -> int:
        return new[record_id] if record_id in new else int(self.rows["slot"][self._find(record_id)[0]])

    def _live_by_hash(self, record_id: str) -> int | None:
        found = self._find(record_id)
        return found[-1] if found and self.current[self.rows["slot"][found[-1]]] == found[-1] else None


class LiveRecords(Sequence[Record]):
    """The live records of a table, in order of first appearance."""

    def __init__(self, table: RevisionTable) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table.live_positions)

    @overload
    def __getitem__(self, position: int) -> Record: ...
    @overload
    def __getitem__(self, position: slice) -> tuple[Record, ...]: ...
    def __getitem__(self, position: int | slice) -> Record | tuple[Record, ...]:
        if isinstance(position, slice):
            return tuple(self[index] for index in range(*position.indices(len(self))))
        return self._table.revision(int(self._table.live_positions[_check_position(position, len(self))])).record

    def __eq__(self, other: object) -> bool:
        return _equal_items(self, other)

    __hash__ = None  # type: ignore[assignment]


def render_message_passage(message: Message) -> str:
    """What is indexed of a message, e.g. ``"[2024-03-05] Ana: We moved to Oslo. [a red door]"``."""
    return f"[{message.time[:10]}] {message.speaker}: {message.text}" + (f" [{message.caption}]" if message.caption else "")


def render_record_passage(record: Record) -> str:
    """What is indexed of a record, e.g. ``"[2024-03-05] fact: Ana moved to Oslo."``."""
    return f"[{record.time[:10]}] {record.type}: {record.text}"


def _check_position(position: int, num: int) -> int:
    """A position as a sequence takes it, negative ones counted from the end. Raises IndexError."""
    if not -num <= position < num:
        raise IndexError(f"position {position} of a sequence of {num}")
    return position + num if position < 0 else position


def _equal_items(items: Sequence[object], other: object) -> bool:
    if not isinstance(other, Sequence) or isinstance(other, str):
        return NotImplemented
    return len(items) == len(other) and all(mine == theirs for mine, theirs in zip(items, other, strict=True))
