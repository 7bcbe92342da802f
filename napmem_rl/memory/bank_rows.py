"""Columns of a bank's logs: one fixed-size row per line, names as codes, ids as hashes. What makes a million messages searchable without an object for each.

Everything here only ever grows, so that views of the first n rows stay true while more are added.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

_LINE = [("start", "<i8"), ("stop", "<i8"), ("crc", "<u4"), ("id_hash", "<u8"), ("time", "S19"), ("kind", "<i2"), ("session", "<i4")]
MESSAGE_ROW = np.dtype([*_LINE, ("speaker", "<i2")])  # start and stop: bytes of the line in its log; crc: CRC-32 of the line; the rest: codes of names
REVISION_ROW = np.dtype([*_LINE, ("slot", "<i4")])  # slot: number of the record by first appearance
END_ROW = np.dtype([("by", "<i8"), ("slot", "<i4")])  # a merge: position of its revision, slot of a record that it ended
MAX_TAIL = 1 << 16  # ids in a dict before they are sorted in


def hash_id(item_id: str) -> int:
    """64 bits of an id, the same everywhere."""
    return int.from_bytes(hashlib.blake2b(item_id.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


class GrowingRows:
    """An array that grows at its end; views that were taken stay as they are."""

    def __init__(self, rows: np.ndarray) -> None:
        self._data = rows
        self._used = len(rows)

    def __len__(self) -> int:
        return self._used

    def view(self, stop: int) -> np.ndarray:
        """The first rows."""
        return self._data[:stop]

    def reserve(self, num: int) -> None:
        """Make room for so many rows in all, so that appending them moves nothing."""
        if num > len(self._data) or not self._data.flags.writeable:
            fresh = np.zeros(num + num // 8 + 64, dtype=self._data.dtype)
            fresh[: self._used] = self._data[: self._used]
            self._data = fresh

    def append(self, rows: np.ndarray) -> None:
        """Add rows at the end."""
        used = self._used + len(rows)
        self.reserve(used)
        self._data[self._used : used] = rows
        self._used = used


class Names:
    """Names by code, in order of first appearance."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names: list[str] = list(names)
        self._codes = {name: code for code, name in enumerate(self.names)}

    def code(self, name: str) -> int:
        """The name's code; a new one for a new name."""
        code = self._codes.setdefault(name, len(self.names))
        if code == len(self.names):
            self.names.append(name)
        return code


class IdIndex:
    """Positions by id hash: sorted arrays, and a dict for what came last."""

    def __init__(self, hashes: np.ndarray) -> None:
        self._num = len(hashes)
        self._state: tuple[np.ndarray, np.ndarray, dict[int, list[int]]] | None = None
        self._hashes = hashes

    def find(self, id_hash: int) -> list[int]:
        """All positions of a hash, ascending."""
        hashes, order, tail = self._load()
        start = int(hashes.searchsorted(np.uint64(id_hash)))
        found = []
        while start < len(hashes) and hashes[start] == id_hash:
            found.append(int(order[start]))
            start += 1
        return found + tail.get(id_hash, [])

    def append(self, id_hashes: Sequence[int], rows: GrowingRows) -> None:
        """Add ids at the end; `rows` are all rows by now, these included."""
        hashes, order, tail = self._load()
        self._num += len(id_hashes)
        if len(tail) + len(id_hashes) > MAX_TAIL:
            self._hashes, self._state = rows.view(self._num)["id_hash"], None
            return
        for position, id_hash in enumerate(id_hashes, start=self._num - len(id_hashes)):
            tail.setdefault(id_hash, []).append(position)

    def forked(self) -> IdIndex:
        """One of its own to add to; what is sorted is shared."""
        hashes, order, tail = self._load()
        fork = IdIndex(self._hashes)
        fork._num, fork._state = self._num, (hashes, order, {key: list(positions) for key, positions in tail.items()})
        return fork

    def _load(self) -> tuple[np.ndarray, np.ndarray, dict[int, list[int]]]:
        state = self._state
        if state is None:
            order = np.argsort(self._hashes, kind="stable")
            state = self._state = (np.ascontiguousarray(self._hashes[order]), order, {})
        return state
