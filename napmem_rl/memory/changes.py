"""What one commit adds to a memory: messages and record revisions at the end, topic tracks and the profile in place of the old ones."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from napmem_rl.errors import BankError
from napmem_rl.memory.pyramid import (
    Known,
    Ledger,
    Pyramid,
    check_message,
    check_profile,
    check_revision,
    check_tracks,
)
from napmem_rl.memory.storage import dump_json
from napmem_rl.schema import Message, Profile, Record, RecordOperation, RecordRevision, Track

MAX_TOLD = 5  # problems that one error spells out


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """One commit's content: it becomes visible as a whole, or not at all.

    Example: Changes(messages=session, revisions=(stored, merged), note="session s3")
    """

    messages: tuple[Message, ...] = ()
    revisions: tuple[RecordRevision, ...] = ()
    tracks: tuple[Track, ...] | None = None  # all tracks from now on; None leaves them as they are
    profile: Profile | None = None  # None leaves it as it is
    state: Mapping[str, Any] = field(default_factory=dict)  # the builder's own, JSON-ready; kept with the version, no part of its hash; replaces the old one
    note: str = ""  # for `napmem bank log`, e.g. "session s3"


def find_change_problems(changes: Changes, known: Known, tracks: Sequence[Track], profile: Profile) -> list[str]:
    """What is wrong with changes to a memory, in words; empty where they can be made. Takes time by their size and that of the tracks alone.

    Args:
        changes: what is to be added.
        known: the memory's messages and records.
        tracks, profile: the memory's own, which the changes may leave as they are; their links must hold afterwards all the same.
    """
    ledger, problems = Ledger(known), []
    for message in changes.messages:
        problems += check_message(message, ledger)
        ledger.add_message(message)
    for revision in changes.revisions:
        problems += check_revision(revision, ledger)
        ledger.add_revision(revision)
    is_linked_anew = changes.tracks is not None or changes.profile is not None
    if is_linked_anew or any(revision.operation is not RecordOperation.STORE for revision in changes.revisions):  # what is only added breaks no link
        tracks = tracks if changes.tracks is None else changes.tracks
        problems += [*check_tracks(tracks, ledger), *check_profile(profile if changes.profile is None else changes.profile, tracks, ledger)]
    try:
        dump_json([dict(changes.state), changes.note]).encode()
    except (TypeError, ValueError) as error:
        problems.append(f"state or note cannot be written as JSON ({error})")
    return problems


def apply_changes(pyramid: Pyramid, changes: Changes) -> Pyramid:
    """The memory after these changes; pure.

    Raises:
        BankError: a link does not hold, with all problems.
    """
    ledger = Ledger()
    for message in pyramid.messages:
        ledger.add_message(message)
    ledger.records = {record.record_id: record for record in pyramid.records}
    problems = find_change_problems(changes, ledger, pyramid.tracks, pyramid.profile)
    if problems:
        raise error_of("changes", problems, fix="Nothing was changed.")
    records: dict[str, Record] = {record.record_id: record for record in pyramid.records}
    for revision in changes.revisions:
        records[revision.record.record_id] = revision.record
        for merged_id in revision.merged_ids:
            del records[merged_id]
    return Pyramid(
        messages=(*pyramid.messages, *changes.messages),
        records=tuple(records.values()),
        tracks=pyramid.tracks if changes.tracks is None else tuple(sorted(changes.tracks, key=lambda track: track.file_name)),
        profile=pyramid.profile if changes.profile is None else changes.profile,
    )


def relink(tracks: Sequence[Track], profile: Profile, revisions: Sequence[RecordRevision]) -> tuple[tuple[Track, ...], Profile]:
    """Tracks and profile as they are to be after these revisions: links to a merged record lead to the one that took it in, and no time lies before a source's.

    What the texts say stays as it is; only ``[rec:…]`` in them changes.

    Example: after rec:9 was merged into rec:7, "She moved. [rec:9]" reads "She moved. [rec:7]".
    """
    successors, times = _follow_merges(revisions), {revision.record.record_id: revision.record.time for revision in revisions}
    if not times:
        return tuple(tracks), profile
    new_tracks = []
    for track in tracks:
        record_ids = _replace_ids(track.record_ids, successors)
        time = max([track.time, *(times[record_id] for record_id in record_ids if record_id in times)])
        texts = {name: _replace_links(getattr(track, name), successors) for name in ("summary", "narrative")}
        new_tracks.append(dataclasses.replace(track, record_ids=record_ids, time=time, **texts))
        times[track.track_id] = time
    source_ids = _replace_ids(profile.source_ids, successors)
    time = max([profile.time, *(times[source_id] for source_id in source_ids if source_id in times)])
    return tuple(new_tracks), Profile(text=_replace_links(profile.text, successors), time=time, source_ids=source_ids)


def error_of(what: str, problems: Sequence[str], *, fix: str) -> BankError:
    """One error for all problems; the first ones are spelled out."""
    more = f" (and {len(problems) - MAX_TOLD} more)" if len(problems) > MAX_TOLD else ""
    return BankError.of(what, "; ".join(problems[:MAX_TOLD]) + more, fix=fix)


def _follow_merges(revisions: Sequence[RecordRevision]) -> dict[str, str]:
    """For each record that was merged, the one that it is part of in the end."""
    successors: dict[str, str] = {}
    for revision in reversed(revisions):  # so that the successor's own fate is known
        record_id = revision.record.record_id
        successors.update((merged_id, successors.get(record_id, record_id)) for merged_id in revision.merged_ids)
    return successors


def _replace_ids(ids: Sequence[str], successors: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(successors.get(item_id, item_id) for item_id in ids))


def _replace_links(text: str, successors: Mapping[str, str]) -> str:
    """The text with links to successors; a link that would stand twice in a row stands once."""
    for old, new in successors.items():
        link = re.escape(f"[{new}]")
        text = re.sub(rf"(?:{re.escape(f'[{old}]')}|{link})(?: ?(?:{re.escape(f'[{old}]')}|{link}))*", f"[{new}]", text) if f"[{old}]" in text else text
    return text
