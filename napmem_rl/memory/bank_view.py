"""Looking things up in one state of a memory, wherever it is held."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from napmem_rl.errors import BankError
from napmem_rl.memory.bank_store import Snapshot
from napmem_rl.memory.bank_tables import LiveRecords, MessageTable
from napmem_rl.memory.pyramid import PROFILE_FILE, PROFILE_ID
from napmem_rl.retrieval.index import PassageIndex
from napmem_rl.retrieval.passages import SearchFilter
from napmem_rl.schema import Level, Message, Profile, Record, RecordRevision, Track


class BankView(ABC):
    """Everything that readers and tools ask of a memory.

    Attributes: `bank_id`, `version`, `writer` (of that version), `state` (the builder's), `snapshot`, and its levels: `messages`, `records` (live ones, in
    order of first appearance), `tracks`, `profile`; `file_names`.
    """

    bank_id: str
    version: str
    writer: str
    state: Mapping[str, Any]

    def __init__(self, snapshot: Snapshot, files: Mapping[str, str]) -> None:
        self._show(snapshot, files)

    def _show(self, snapshot: Snapshot, files: Mapping[str, str]) -> None:
        """Look at this state from now on; `files` are its Markdown texts."""
        self.snapshot = snapshot
        self.messages: MessageTable = snapshot.messages
        self.records: LiveRecords = snapshot.records
        self.tracks: tuple[Track, ...] = snapshot.tracks
        self.profile: Profile = snapshot.profile
        self.file_names: tuple[str, ...] = tuple(sorted(files))
        self._files = dict(files)

    @abstractmethod
    def check_current(self) -> None:
        """Raise BankError where the memory on disk was made to forget since this one was opened."""

    def message(self, message_id: str) -> Message | None:
        """The message of this id, or None."""
        self.check_current()
        return self.snapshot.message(message_id)

    def record(self, record_id: str) -> Record | None:
        """The live record of this id, or None."""
        self.check_current()
        return self.snapshot.record(record_id)

    def history(self, record_id: str) -> tuple[RecordRevision, ...]:
        """All revisions of a record up to this version, first to last, also of one that a merge ended; empty for an unknown id."""
        self.check_current()
        revisions = self.snapshot.revisions
        return tuple(revisions.revision(position) for position in revisions.positions(record_id))

    def position(self, item_id: str) -> int | None:
        """Where the message, or the first revision of the live record, of this id stands: by this, `messages` and `records` are in order. None: unknown."""
        if item_id.startswith("msg:"):
            return self.messages.position(item_id)
        return self.snapshot.revisions.first_position(item_id)

    def item(self, item_id: str) -> Message | Record | Track | Profile | None:
        """The item of any level with this id; None for an id that the bank does not hold."""
        self.check_current()
        if item_id == PROFILE_ID:
            return self.profile
        return self.message(item_id) or self.record(item_id) or next((track for track in self.tracks if track.track_id == item_id), None)

    def file(self, name: str) -> str | None:
        """The Markdown file of exactly this name (a track's, or "profile.md"), front matter included; None for any other string. Opens no file of that name."""
        self.check_current()
        return self._files.get(name)

    def item_of_file(self, name: str) -> Track | Profile | None:
        """The track or profile that a file of `file_names` holds, or None."""
        if name == PROFILE_FILE:
            return self.profile
        return next((track for track in self.tracks if track.file_name == name), None)

    def provenance(self, item_id: str) -> tuple[str, ...]:
        """Ids of the messages that an item of any level rests on, each once; a message rests on itself.

        Raises:
            BankError: no such item.
        """
        match item := self.item(item_id):
            case Message():
                return (item_id,)
            case Record():
                return tuple(dict.fromkeys(item.source_ids))
            case Track():
                below = item.record_ids
            case Profile():
                below = item.source_ids
            case _:
                raise BankError.of(f"bank {self.bank_id}", f"holds no item {item_id!r}", fix="Ids look like msg:12, rec:7, trk:3 or profile.")
        return tuple(dict.fromkeys(message_id for source_id in below for message_id in self.provenance(source_id)))

    def search_records(
        self,
        query: str,
        *,
        k: int,
        before: str | None = None,
        after: str | None = None,
        types: Sequence[str] | None = None,
        session_ids: Sequence[str] | None = None,
        without: Collection[str] = (),
    ) -> list[Record]:
        """The k live records that fit the query best, best first.

        Args:
            query: free text; one without content gives nothing.
            k: how many at most.
            before, after: ISO 8601; only records at or before, at or after that moment take part.
            types: only records of these types.
            session_ids: only records whose newest source is of these sessions.
            without: ids of records that take no part.
        """
        self.check_current()
        hidden = tuple(position for record_id in without for position in self.snapshot.revisions.positions(record_id))
        where = SearchFilter(before=before, after=after, kinds=_as_tuple(types), session_ids=_as_tuple(session_ids), without=hidden)
        return [self.snapshot.revisions.revision(position).record for position in self.find_index(Level.RECORD).search(query, k=k, where=where)]

    def search_messages(
        self,
        query: str,
        *,
        k: int,
        before: str | None = None,
        after: str | None = None,
        roles: Sequence[str] | None = None,
        session_ids: Sequence[str] | None = None,
        without: Collection[str] = (),
    ) -> list[Message]:
        """The k messages that fit the query best, best first; see `search_records`. `roles`: only messages of "user" or of "assistant"."""
        self.check_current()
        hidden = tuple(position for message_id in without if (position := self.snapshot.messages.position(message_id)) is not None)
        where = SearchFilter(before=before, after=after, kinds=_as_tuple(roles), session_ids=_as_tuple(session_ids), without=hidden)
        return [self.messages[position] for position in self.find_index(Level.RAW).search(query, k=k, where=where)]

    @abstractmethod
    def find_index(self, level: Level) -> PassageIndex:
        """The search index over the messages, or over the revisions of records."""


def _as_tuple(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)
