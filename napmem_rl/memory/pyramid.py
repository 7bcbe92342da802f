"""The four levels of a memory and the links between them (NapMem section 3.2).

Every item above the messages rests on items of a lower level::

    profile ─▶ tracks and records ─▶ messages

`find_problems` says whether all links of a whole memory hold; the `check_*` functions say it of one item more, over what a `Known` memory holds already.
`trace_messages` follows the links down.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from napmem_rl.schema import Message, Profile, Record, RecordOperation, RecordRevision, RecordType, Track

PROFILE_ID = "profile"
PROFILE_FILE = "profile.md"
LINK = re.compile(r"\[((?:rec|trk):[^\s\[\]]+)\]")
_ID = {"msg": re.compile(r"msg:[^\s\[\]]+"), "rec": re.compile(r"rec:[^\s\[\]]+"), "trk": re.compile(r"trk:[^\s\[\]]+")}
_TIME = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])(T([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?)?")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_FILE = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}\.md")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pyramid:
    """All levels of one user's memory."""

    messages: tuple[Message, ...]
    records: tuple[Record, ...]
    tracks: tuple[Track, ...]
    profile: Profile


class Known(Protocol):
    """What is there already when something new is checked."""

    def source(self, message_id: str) -> tuple[str, str] | None:
        """(time, session id) of a message; None for an unknown one."""
        ...

    def record_time(self, record_id: str) -> str | None:
        """Time of a live record; None for one that never was, or that a merge ended."""
        ...

    def record_sources(self, record_id: str) -> tuple[str, ...]:
        """Message ids of a live record."""
        ...

    def is_record_taken(self, record_id: str) -> bool:
        """Whether a record of this id is there or was there."""
        ...


class _Nothing:
    """The memory that holds nothing."""

    def source(self, message_id: str) -> None:
        return None

    def record_time(self, record_id: str) -> None:
        return None

    def record_sources(self, record_id: str) -> tuple[str, ...]:
        return ()

    def is_record_taken(self, record_id: str) -> bool:
        return False


@dataclass(slots=True)
class Ledger:
    """A memory and, over it, what was added since, as far as links are concerned; itself a `Known`."""

    base: Known = field(default_factory=_Nothing)
    messages: dict[str, tuple[str, str]] = field(default_factory=dict)
    records: dict[str, Record | None] = field(default_factory=dict)  # None: a merge ended it

    def source(self, message_id: str) -> tuple[str, str] | None:
        """See `Known`."""
        return self.messages.get(message_id) or self.base.source(message_id)

    def record_time(self, record_id: str) -> str | None:
        """See `Known`."""
        if record_id not in self.records:
            return self.base.record_time(record_id)
        record = self.records[record_id]
        return None if record is None else record.time

    def record_sources(self, record_id: str) -> tuple[str, ...]:
        """See `Known`."""
        record = self.records.get(record_id)
        return self.base.record_sources(record_id) if record is None else record.source_ids

    def is_record_taken(self, record_id: str) -> bool:
        """See `Known`."""
        return record_id in self.records or self.base.is_record_taken(record_id)

    def add_message(self, message: Message) -> None:
        """Count a message in."""
        self.messages[message.message_id] = (message.time, message.session_id)

    def add_revision(self, revision: RecordRevision) -> None:
        """Count a record's revision in; the records that it merged are ended."""
        self.records.update(dict.fromkeys(revision.merged_ids))
        self.records[revision.record.record_id] = revision.record


def find_problems(pyramid: Pyramid) -> list[str]:
    """Every broken id, time, file name and link, in words; empty where all is well."""
    ledger, problems = Ledger(), []
    for message in pyramid.messages:
        problems += check_message(message, ledger)
        ledger.add_message(message)
    for record in pyramid.records:
        revision = RecordRevision(operation=RecordOperation.STORE, record=record)
        problems += check_revision(revision, ledger)
        ledger.add_revision(revision)
    return [*problems, *check_tracks(pyramid.tracks, ledger), *check_profile(pyramid.profile, pyramid.tracks, ledger)]


def trace_messages(pyramid: Pyramid) -> dict[str, tuple[str, ...]]:
    """The message ids that each item rests on, by item id, in the order of the links and each once.

    Example: a profile of ["trk:1"], where trk:1 holds ["rec:1"] drawn from ["msg:4"], traces to ("msg:4",). A message traces to itself.
    """
    traces: dict[str, tuple[str, ...]] = {message.message_id: (message.message_id,) for message in pyramid.messages}
    traces.update((record.record_id, tuple(dict.fromkeys(record.source_ids))) for record in pyramid.records)
    traces.update((track.track_id, _join_traces(traces, track.record_ids)) for track in pyramid.tracks)
    traces[PROFILE_ID] = _join_traces(traces, pyramid.profile.source_ids)
    return traces


def is_time(text: str) -> bool:
    """Whether a text is a moment as banks and tasks write it: ISO 8601 without a zone, so that moments compare as texts."""
    return _TIME.fullmatch(text) is not None


def find_links(text: str) -> list[str]:
    """Record and track ids linked in a Markdown text, as in ``"Ana moved. [rec:7]"``, in order."""
    return LINK.findall(text)


def check_message(message: Message, known: Known) -> Iterator[str]:
    """What is wrong with one more message."""
    names = ("message_id", "session_id", "role", "speaker", "text", "time") + (() if message.caption is None else ("caption",))
    if unwritable := list(_check_texts(message.message_id, message, names)):
        yield from unwritable
        return
    yield from _check_id(message.message_id, "msg", is_taken=known.source(message.message_id) is not None)
    yield from _check_time(message.message_id, message.time)
    if message.role not in ("user", "assistant"):
        yield f"{message.message_id}: role {message.role!r} is neither user nor assistant"


def check_revision(revision: RecordRevision, known: Known) -> Iterator[str]:
    """What is wrong with one more revision of a record: of the record itself, and of what it takes over from earlier ones."""
    record, is_new = revision.record, revision.operation is RecordOperation.STORE
    if unwritable := list(_check_texts(record.record_id, record, ("record_id", "text", "time", "session_id"))):
        yield from unwritable
        return
    if record.type not in tuple(RecordType):
        yield f"{record.record_id}: unknown record type {record.type!r}; expected one of {', '.join(RecordType)}"
    yield from _check_id(record.record_id, "rec", is_taken=is_new and known.is_record_taken(record.record_id))
    yield from _check_time(record.record_id, record.time)
    sources = {source_id: known.source(source_id) for source_id in record.source_ids}
    times = {source_id: source[0] for source_id, source in sources.items() if source is not None}
    yield from _check_links(record.record_id, record.time, record.source_ids, times, "message", is_exact=True)
    newest = {source[1] for source in sources.values() if source is not None and source[0] == record.time}
    if newest and record.session_id not in newest:
        yield f"{record.record_id}: its session {record.session_id!r} is not that of its newest source, {sorted(newest)[0]!r}"
    yield from _check_operation(revision, known)


def check_tracks(tracks: Sequence[Track], known: Known) -> Iterator[str]:
    """What is wrong with all tracks of a memory."""
    ids: set[str] = set()
    files: set[str] = set()
    for track in tracks:
        if unwritable := list(_check_texts(track.track_id, track, ("track_id", "file_name", "title", "summary", "narrative", "time"))):
            yield from unwritable
            continue
        yield from _check_id(track.track_id, "trk", is_taken=track.track_id in ids)
        yield from _check_time(track.track_id, track.time)
        times = {record_id: time for record_id in track.record_ids if (time := known.record_time(record_id)) is not None}
        yield from _check_links(track.track_id, track.time, track.record_ids, times, "record", is_exact=True)
        yield from _check_evidence(track.track_id, f"{track.summary}\n{track.narrative}", track.record_ids)
        if not _FILE.fullmatch(track.file_name) or track.file_name == PROFILE_FILE:
            yield f"{track.track_id}: file name {track.file_name!r} is not of the form <slug>.md (a-z, 0-9, - and _) or is taken by the profile"
        if track.file_name in files:
            yield f"{track.track_id}: file name {track.file_name} is used by two tracks"
        if "\n" in track.title or "\n" in track.summary:
            yield f"{track.track_id}: title and summary must be one line each"
        ids.add(track.track_id)
        files.add(track.file_name)


def check_profile(profile: Profile, tracks: Sequence[Track], known: Known) -> Iterator[str]:
    """What is wrong with the profile beside all tracks of a memory."""
    if unwritable := list(_check_texts(PROFILE_ID, profile, ("text", "time"))):
        yield from unwritable
        return
    times = {track.track_id: track.time for track in tracks}
    times |= {source_id: time for source_id in profile.source_ids if (time := known.record_time(source_id)) is not None}
    if profile.source_ids:
        yield from _check_time(PROFILE_ID, profile.time)
        yield from _check_links(PROFILE_ID, profile.time, profile.source_ids, times, "record or track", is_exact=False)
    yield from _check_evidence(PROFILE_ID, profile.text, profile.source_ids)


def _check_operation(revision: RecordRevision, known: Known) -> Iterator[str]:
    """An update or a merge goes on from a live record, and loses no source; a merge takes in other live records."""
    record_id, taken = revision.record.record_id, revision.merged_ids
    if (revision.operation is RecordOperation.MERGE) != bool(taken):
        yield f"{record_id}: {revision.operation} with {len(taken)} merged records; a merge takes in at least one, others none"
    before = () if revision.operation is RecordOperation.STORE else (record_id, *taken)
    if len(set(before)) != len(before):
        yield f"{record_id}: a merge names a record twice"
    for earlier_id in dict.fromkeys(before):
        if known.record_time(earlier_id) is None:
            yield f"{record_id}: {revision.operation} of {earlier_id}, which is no live record"
            continue
        lost = [source_id for source_id in known.record_sources(earlier_id) if source_id not in revision.record.source_ids]
        if lost:
            yield f"{record_id}: {revision.operation} loses {lost[0]}, a source of {earlier_id}; the sources of all are united"


def _join_traces(traces: Mapping[str, tuple[str, ...]], item_ids: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(message_id for item_id in item_ids for message_id in traces[item_id]))


def _check_texts(item_id: object, item: object, names: Sequence[str]) -> Iterator[str]:
    """Every field must be a text that can be written: a lone surrogate cannot."""
    for name in names:
        value = getattr(item, name)
        if not isinstance(value, str):
            yield f"{item_id}: {name} is no text but {type(value).__name__}"
        elif not value.isascii() and _SURROGATE.search(value):
            yield f"{item_id}: {name} is not valid Unicode (a lone surrogate)"


def _check_id(item_id: str, kind: str, *, is_taken: bool) -> Iterator[str]:
    if not _ID[kind].fullmatch(item_id):
        yield f"{item_id!r}: is not an id of the form {kind}:…"
    if is_taken:
        yield f"{item_id}: the id occurs twice"


def _check_time(what: str, time: str) -> Iterator[str]:
    if not is_time(time):
        yield f"{what}: time {time!r} is not ISO 8601 without a zone, such as 2024-03-05T13:56:00"


def _check_links(item_id: str, time: str, source_ids: Sequence[str], times: Mapping[str, str], kind: str, *, is_exact: bool) -> Iterator[str]:
    """An item needs sources, all of them known, and no time before its newest one: it would be shown before it could be known."""
    if not source_ids:
        yield f"{item_id}: rests on no {kind}"
    for source_id in source_ids:
        if source_id not in times:
            yield f"{item_id}: points to {kind} {source_id}, which does not exist"
    newest = max((times[source_id] for source_id in source_ids if source_id in times), default=time)
    if time < newest or (is_exact and time > newest):
        yield f"{item_id}: its time {time} is {'before' if time < newest else 'after'} that of its newest source, {newest}"


def _check_evidence(item_id: str, text: str, source_ids: Sequence[str]) -> Iterator[str]:
    for link in find_links(text):
        if link not in source_ids:
            yield f"{item_id}: its text links to [{link}], which is not among its sources"
