"""The four levels of a memory and the links between them (NapMem section 3.2).

Every item above the messages rests on items of a lower level::

    profile ─▶ tracks and records ─▶ messages

`find_problems` says whether all links hold, `trace_messages` follows them down.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from napmem_rl.schema import Message, Profile, Record, Track

PROFILE_ID = "profile"
PROFILE_FILE = "profile.md"
LINK = re.compile(r"\[((?:rec|trk):[^\s\[\]]+)\]")
_ID = {"msg": re.compile(r"msg:[^\s\[\]]+"), "rec": re.compile(r"rec:[^\s\[\]]+"), "trk": re.compile(r"trk:[^\s\[\]]+")}
_TIME = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])(T([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?)?")
_FILE = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}\.md")


@dataclass(frozen=True, kw_only=True, slots=True)
class Pyramid:
    """All levels of one user's memory."""

    messages: tuple[Message, ...]
    records: tuple[Record, ...]
    tracks: tuple[Track, ...]
    profile: Profile


def find_problems(pyramid: Pyramid) -> list[str]:
    """Every broken id, time, file name and link, in words; empty where all is well."""
    return [*_check_messages(pyramid.messages), *_check_records(pyramid), *_check_tracks(pyramid), *_check_profile(pyramid)]


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


def _join_traces(traces: Mapping[str, tuple[str, ...]], item_ids: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(message_id for item_id in item_ids for message_id in traces[item_id]))


def _check_id(item_id: str, kind: str, seen: set[str]) -> Iterator[str]:
    if not _ID[kind].fullmatch(item_id):
        yield f"{item_id!r}: is not an id of the form {kind}:…"
    if item_id in seen:
        yield f"{item_id}: the id occurs twice"
    seen.add(item_id)


def _check_time(what: str, time: str) -> Iterator[str]:
    if not is_time(time):
        yield f"{what}: time {time!r} is not ISO 8601 without a zone, such as 2024-03-05T13:56:00"


def _check_messages(messages: Sequence[Message]) -> Iterator[str]:
    seen: set[str] = set()
    for message in messages:
        yield from _check_id(message.message_id, "msg", seen)
        yield from _check_time(message.message_id, message.time)
        if message.role not in ("user", "assistant"):
            yield f"{message.message_id}: role {message.role!r} is neither user nor assistant"


def _check_records(pyramid: Pyramid) -> Iterator[str]:
    times = {message.message_id: message.time for message in pyramid.messages}
    seen: set[str] = set()
    for record in pyramid.records:
        yield from _check_id(record.record_id, "rec", seen)
        yield from _check_time(record.record_id, record.time)
        yield from _check_links(record.record_id, record.time, record.source_ids, times, "message", is_exact=True)


def _check_tracks(pyramid: Pyramid) -> Iterator[str]:
    times = {record.record_id: record.time for record in pyramid.records}
    seen: set[str] = set()
    files: set[str] = set()
    for track in pyramid.tracks:
        yield from _check_id(track.track_id, "trk", seen)
        yield from _check_time(track.track_id, track.time)
        yield from _check_links(track.track_id, track.time, track.record_ids, times, "record", is_exact=True)
        yield from _check_evidence(track.track_id, f"{track.summary}\n{track.narrative}", track.record_ids)
        if not _FILE.fullmatch(track.file_name) or track.file_name == PROFILE_FILE:
            yield f"{track.track_id}: file name {track.file_name!r} is not of the form <slug>.md (a-z, 0-9, - and _) or is taken by the profile"
        if track.file_name in files:
            yield f"{track.track_id}: file name {track.file_name} is used by two tracks"
        if "\n" in track.title or "\n" in track.summary:
            yield f"{track.track_id}: title and summary must be one line each"
        files.add(track.file_name)


def _check_profile(pyramid: Pyramid) -> Iterator[str]:
    profile = pyramid.profile
    times = {record.record_id: record.time for record in pyramid.records} | {track.track_id: track.time for track in pyramid.tracks}
    if profile.source_ids:
        yield from _check_time(PROFILE_ID, profile.time)
        yield from _check_links(PROFILE_ID, profile.time, profile.source_ids, times, "record or track", is_exact=False)
    yield from _check_evidence(PROFILE_ID, profile.text, profile.source_ids)


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
