"""Sessions of an import on the disk, to be read again in the order of time, so that an export of any size need not fit into memory.

The file has no name: it is gone with its process, however that ends.
"""

from __future__ import annotations

import pickle
import tempfile
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from napmem_rl.data.chat_exports.placing import PlacedSession
from napmem_rl.schema import Message


class Spool:
    """Takes sessions in any order and gives them back oldest first; those that begin at the same moment in the order in which they came."""

    def __init__(self, directory: Path) -> None:
        """Args:
        directory: exists; where there is room for all texts of the import.
        """
        self._file = tempfile.TemporaryFile(dir=directory, prefix=".import-")  # noqa: SIM115: closed by __exit__
        self._times: list[str] = []
        self._offsets = array("Q")
        self.num_messages = 0

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def add(self, session: PlacedSession) -> None:
        """Keep one."""
        self._times.append(session.time)
        self._offsets.append(self._file.tell())
        rows = [(one.message_id, one.session_id, one.role, one.speaker, one.text, one.time) for one in session.messages]
        pickle.dump((rows, session.places), self._file, protocol=5)
        self.num_messages += len(rows)

    def read(self) -> Iterator[PlacedSession]:
        """All sessions, oldest first."""
        for position in sorted(range(len(self._times)), key=self._times.__getitem__):
            self._file.seek(self._offsets[position])
            rows, places = pickle.load(self._file)  # noqa: S301: written by `add` in this process
            names = ("message_id", "session_id", "role", "speaker", "text", "time")
            messages = tuple(Message(**dict(zip(names, row, strict=True))) for row in rows)
            yield PlacedSession(time=self._times[position], messages=messages, places=places)
