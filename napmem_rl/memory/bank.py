"""A user's memory bank: a verified, read-only snapshot to look things up in.

Nothing changes a bank that is open: `BankWriter` adds versions after the one that it shows, `save_bank` puts another bank in its place.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from napmem_rl.errors import BankError
from napmem_rl.memory.bank_place import build_beside, replace_bank
from napmem_rl.memory.bank_store import StoredBank, load_bank
from napmem_rl.memory.bank_tables import LiveRecords, MessageTable
from napmem_rl.memory.bank_writer import BankWriter, is_bank_or_empty
from napmem_rl.memory.changes import Changes, error_of
from napmem_rl.memory.pyramid import PROFILE_FILE, PROFILE_ID
from napmem_rl.memory.storage import INDEX_DIR
from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.retrieval.fusion import RRF_K
from napmem_rl.retrieval.index import PassageIndex
from napmem_rl.retrieval.passages import SearchFilter
from napmem_rl.schema import Level, Message, Profile, Record, RecordOperation, RecordRevision, Track


class MemoryBank:
    """Read-only snapshot of one user's memory. Safe to read and search from several threads.

    Attributes: `path`, `bank_id`, `version`, `writer` (of that version), `state` (the builder's), `messages`, `records` (live ones, in order of first
    appearance), `tracks`, `profile`, `file_names`. Messages and records are read from disk where they are asked for.
    """

    def __init__(self, path: Path, stored: StoredBank, *, encoder: Encoder | None = None, rrf_k: int = RRF_K) -> None:
        """For `open`, which verifies what is given here."""
        self.path = path
        self.bank_id = stored.bank_id
        self.version = stored.commit.version
        self.writer = stored.commit.writer
        self.state: Mapping[str, Any] = stored.commit.state
        self.snapshot = stored.snapshot
        self.messages: MessageTable = stored.snapshot.messages
        self.records: LiveRecords = stored.snapshot.records
        self.tracks: tuple[Track, ...] = stored.snapshot.tracks
        self.profile: Profile = stored.snapshot.profile
        self.file_names: tuple[str, ...] = tuple(sorted(stored.files))
        self._files = dict(stored.files)
        self._encoder = encoder
        self._rrf_k = rrf_k
        self._indexes: dict[Level, PassageIndex] = {}
        self._lock = threading.Lock()

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        encoder: Encoder | None = None,
        expected_version: str | None = None,
        version: str | None = None,
        verify: bool = True,
        rrf_k: int = RRF_K,
    ) -> MemoryBank:
        """Read a bank, checking every hash and every provenance link.

        Args:
            path: the bank's directory.
            encoder: for dense search; None for BM25 alone.
            expected_version: refuse the bank where its newest version is another.
            version: one of the bank's versions, see `napmem bank log`; None for the newest.
            verify: False leaves the logs unread where the columns in index/ cover them: for who has just written the bank, or opens a large one again.
            rrf_k: the constant of the rank fusion.

        Raises:
            BankError: missing, broken, or of another version.
        """
        path = Path(path)
        problems: list[str] = []
        stored = load_bank(path, problems, version=version, verify=verify)
        if stored is None or problems:
            raise error_of(f"bank {path}", problems, fix="See `napmem bank verify`, or build the bank again.")
        if expected_version not in (None, stored.commit.version):
            fix = "Build it again, or use the data it belongs to."
            raise BankError.of(f"bank {path}", "is of another version", got=stored.commit.version, expected=expected_version, fix=fix)
        return cls(path, stored, encoder=encoder, rrf_k=rrf_k)

    def message(self, message_id: str) -> Message | None:
        """The message of this id, or None."""
        position = self.messages.position(message_id)
        return None if position is None else self.messages[position]

    def record(self, record_id: str) -> Record | None:
        """The live record of this id, or None."""
        position = self.snapshot.revisions.live_position(record_id)
        return None if position is None else self.snapshot.revisions.revision(position).record

    def history(self, record_id: str) -> tuple[RecordRevision, ...]:
        """All revisions of a record up to this version, first to last, also of one that a merge ended; empty for an unknown id."""
        revisions = self.snapshot.revisions
        return tuple(revisions.revision(position) for position in revisions.positions(record_id))

    def position(self, item_id: str) -> int | None:
        """Where the message, or the first revision of the live record, of this id stands: by this, `messages` and `records` are in order. None: unknown."""
        if item_id.startswith("msg:"):
            return self.messages.position(item_id)
        return self.snapshot.revisions.first_position(item_id)

    def item(self, item_id: str) -> Message | Record | Track | Profile | None:
        """The item of any level with this id; None for an id that the bank does not hold."""
        if item_id == PROFILE_ID:
            return self.profile
        return self.message(item_id) or self.record(item_id) or next((track for track in self.tracks if track.track_id == item_id), None)

    def file(self, name: str) -> str | None:
        """The Markdown file of exactly this name (a track's, or "profile.md"), front matter included; None for any other string. Never touches the disk."""
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
    ) -> list[Record]:
        """The k live records that fit the query best, best first.

        Args:
            query: free text; one without content gives nothing.
            k: how many at most.
            before, after: ISO 8601; only records at or before, at or after that moment take part.
            types: only records of these types.
            session_ids: only records whose newest source is of these sessions.
        """
        where = SearchFilter(before=before, after=after, kinds=_as_tuple(types), session_ids=_as_tuple(session_ids))
        return [self.snapshot.revisions.revision(position).record for position in self._index(Level.RECORD).search(query, k=k, where=where)]

    def search_messages(
        self,
        query: str,
        *,
        k: int,
        before: str | None = None,
        after: str | None = None,
        roles: Sequence[str] | None = None,
        session_ids: Sequence[str] | None = None,
    ) -> list[Message]:
        """The k messages that fit the query best, best first; see `search_records`. `roles`: only messages of "user" or of "assistant"."""
        where = SearchFilter(before=before, after=after, kinds=_as_tuple(roles), session_ids=_as_tuple(session_ids))
        return [self.messages[position] for position in self._index(Level.RAW).search(query, k=k, where=where)]

    def build_index(self) -> None:
        """Build both search indexes now rather than at the first search, and leave them on disk for the next process."""
        self._index(Level.RECORD).build()
        self._index(Level.RAW).build()

    def _index(self, level: Level) -> PassageIndex:
        index = self._indexes.get(level)
        if index is None:
            with self._lock:
                index = self._indexes.get(level) or self._build_index(level)
                self._indexes[level] = index
        return index

    def _build_index(self, level: Level) -> PassageIndex:
        source = self.messages if level is Level.RAW else self.snapshot.revisions
        return PassageIndex(source, level=str(level), encoder=self._encoder, directory=self.path / INDEX_DIR, rrf_k=self._rrf_k)


def save_bank(
    path: Path, *, bank_id: str, messages: Sequence[Message], records: Sequence[Record], tracks: Sequence[Track], profile: Profile, writer: str
) -> str:
    """Write a bank as a whole, in place of the one at `path` if there is one: that one's versions go with it. `BankWriter` adds to a bank instead.

    Args:
        path: the bank's directory; its parents are made.
        bank_id: whose memory it is.
        messages, records, tracks, profile: the levels, linked by ids.
        writer: what built the upper levels, e.g. "rules".

    Returns:
        The content version: the same content under the same bank id has the same version.

    Raises:
        BankError: a link does not hold, another process writes the old bank, or `path` holds something that is no bank. The old bank stays as it was, as after
            any other failure.
    """
    path = Path(path)
    if not is_bank_or_empty(path):
        raise BankError.of(f"bank {bank_id}", f"cannot be written to {path}, which holds something else", fix="Choose an empty or new directory.")
    revisions = tuple(RecordRevision(operation=RecordOperation.STORE, record=record) for record in records)
    changes = Changes(messages=tuple(messages), revisions=revisions, tracks=tuple(tracks), profile=profile)
    with build_beside(path) as fresh, BankWriter.open(fresh, bank_id=bank_id, writer=writer, durable=False) as bank_writer:
        version = bank_writer.commit(changes)
        replace_bank(fresh, path, bank_id)
    return version


def _as_tuple(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)
