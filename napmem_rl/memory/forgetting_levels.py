"""What is left of a memory without some of its messages; pure.

Everything that rests on a forgotten message goes. Of a record, the revisions before the first that rests on one stay, so that it says again what it said
before. What such records rested on besides is to be drawn from again. Tracks and the profile lose every statement that links to a record that went or changed,
and every text without links, since nobody can tell what that rests on; a title or file name stays where the records that are left use its words.

Corrections stand: a record that its user put right keeps the user's words, and what it rested on before is never drawn from again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from napmem_rl.memory.bank_store import Snapshot
from napmem_rl.memory.bank_without import reduce_text
from napmem_rl.memory.pyramid import PROFILE_ID, find_links
from napmem_rl.memory.storage import EMPTY_PROFILE
from napmem_rl.schema import Profile, Record, RecordOperation, RecordRevision, Track

CORRECTION_PREFIX = "msg:correction-"  # ids of messages in which a user puts a record right
PLAIN_HEADINGS = frozenset({"Preferences", "Instructions", "Facts"})  # say nothing of a user


@dataclass(frozen=True, kw_only=True, slots=True)
class Remains:
    """A memory's levels without what was forgotten.

    Attributes:
        revisions: in the order of the log.
        tracks, profile: reduced.
        lost_ids: records that are gone, or that say something else now.
        gone_ids: those of them that are gone.
        new_ids: records that were not there before.
        orphan_ids: messages that lost records rested on, but for those that what they say now rests on: to be drawn from again.
        reduced_ids, dropped_ids: tracks, and the profile.
        revised_ids: live records that tracks and profile are to take in again.
    """

    revisions: tuple[RecordRevision, ...]
    tracks: tuple[Track, ...]
    profile: Profile
    lost_ids: tuple[str, ...]
    gone_ids: tuple[str, ...]
    new_ids: tuple[str, ...]
    orphan_ids: tuple[str, ...]
    reduced_ids: tuple[str, ...]
    dropped_ids: tuple[str, ...]
    revised_ids: tuple[str, ...]

    @property
    def changed_ids(self) -> tuple[str, ...]:
        """Records that are there and say something else."""
        return tuple(record_id for record_id in self.lost_ids if record_id not in self.gone_ids)


def is_correction(message_id: str) -> bool:
    """Whether a message is one in which the user put a record right."""
    return message_id.startswith(CORRECTION_PREFIX)


def list_revisions(snapshot: Snapshot) -> list[RecordRevision]:
    """All revisions of a memory, in the order of the log."""
    return [snapshot.revisions.revision(position) for position in range(len(snapshot.revisions))]


def find_corrected(records: Collection[Record]) -> frozenset[str]:
    """Messages that corrected records rest on beside the correction: nothing is to be drawn from them again."""
    corrected = (record for record in records if any(map(is_correction, record.source_ids)))
    return frozenset(source_id for record in corrected for source_id in record.source_ids if not is_correction(source_id))


def replay_live(revisions: Sequence[RecordRevision]) -> dict[str, Record]:
    """The live records after these revisions, in order of first appearance."""
    live: dict[str, Record] = {}
    for revision in revisions:
        live[revision.record.record_id] = revision.record
        for merged_id in revision.merged_ids:
            live.pop(merged_id, None)
    return live


def keep_clean(revisions: Sequence[RecordRevision], forgotten: Collection[str], source: Callable[[str], tuple[str, str] | None]) -> list[RecordRevision]:
    """The revisions that rest on no forgotten message, and corrections without those.

    Args:
        revisions: of the whole log.
        forgotten: message ids.
        source: (time, session id) of a message.
    """
    kept: list[RecordRevision] = []
    stored: set[str] = set()
    for revision in revisions:
        record = revision.record
        source_ids = tuple(source_id for source_id in record.source_ids if source_id not in forgotten)
        if len(source_ids) < len(record.source_ids):
            if not _is_last_word(revision, source_ids):
                continue
            operation = RecordOperation.UPDATE if record.record_id in stored else RecordOperation.STORE
            time, session_id = max((place for source_id in source_ids if (place := source(source_id))), key=lambda place: place[0])
            revision = RecordRevision(operation=operation, record=replace(record, source_ids=source_ids, time=time, session_id=session_id))
        stored.add(record.record_id)
        kept.append(revision)
    return _without_revived(revisions, kept)


def _without_revived(before: Sequence[RecordRevision], kept: Sequence[RecordRevision]) -> list[RecordRevision]:
    """Without records that live again because the merge that ended them is gone, where what they say was put right since."""
    old, new = replay_live(before), replay_live(kept)
    corrected = find_corrected(new.values())
    wrong = {record_id for record_id, record in new.items() if record_id not in old and corrected.issuperset(record.source_ids)}
    return [revision for revision in kept if revision.record.record_id not in wrong]


def _is_last_word(revision: RecordRevision, source_ids: Sequence[str]) -> bool:
    """Whether a revision is a correction itself: what it says are the user's own words, whatever it rested on before."""
    return revision.operation is RecordOperation.UPDATE and bool(source_ids) and is_correction(revision.record.source_ids[-1]) and is_correction(source_ids[-1])


def compute_remains(before: Snapshot, revisions: Sequence[RecordRevision], forgotten: Collection[str]) -> Remains:
    """Tracks, profile and lists of what changed, for revisions that are kept or were drawn again.

    Args:
        before: the memory as it was.
        revisions: of the memory as it is to be.
        forgotten: message ids.
    """
    old, new = {record.record_id: record for record in before.records}, replay_live(revisions)
    lost = tuple(record_id for record_id, record in old.items() if new.get(record_id) != record)
    gone = tuple(record_id for record_id in lost if record_id not in new)
    anew = (record for record_id, record in new.items() if record_id in lost or record_id not in old)
    covered = {source_id for record in anew for source_id in record.source_ids}
    orphans = dict.fromkeys(source_id for record_id in lost for source_id in old[record_id].source_ids)
    orphan_ids = tuple(message_id for message_id in orphans if message_id not in forgotten and message_id not in covered and not is_correction(message_id))
    tracks, reduced, dropped = _reduce_tracks(before.tracks, frozenset(lost), new)
    kept_tracks = {track.track_id: track.time for track in tracks}
    touched = {*lost, *reduced, *dropped}
    profile = _reduce_profile(before.profile, touched, {**kept_tracks, **{record_id: record.time for record_id, record in new.items()}})
    if profile != before.profile:
        (reduced if profile.text else dropped).append(PROFILE_ID)
    of_tracks = (record_id for track in before.tracks if track.track_id in touched for record_id in track.record_ids)
    revised = dict.fromkeys(record_id for record_id in (*of_tracks, *lost) if record_id in new)
    return Remains(
        revisions=tuple(revisions),
        tracks=tuple(tracks),
        profile=profile,
        lost_ids=lost,
        gone_ids=gone,
        new_ids=tuple(record_id for record_id in new if record_id not in old),
        orphan_ids=orphan_ids,
        reduced_ids=tuple(reduced),
        dropped_ids=tuple(dropped),
        revised_ids=tuple(revised),
    )


def _reduce_tracks(tracks: Sequence[Track], lost: Collection[str], live: Mapping[str, Record]) -> tuple[list[Track], list[str], list[str]]:
    """(tracks that stay, ids of those that lost something, ids of those that went)."""
    kept, reduced, dropped = [], [], []
    for track in tracks:
        if not any(record_id in lost for record_id in track.record_ids):
            kept.append(track)
            continue
        smaller = _reduce_track(track, lost, live)
        (dropped if smaller is None else reduced).append(track.track_id)
        kept += [] if smaller is None else [smaller]
    return kept, reduced, dropped


def _reduce_track(track: Track, lost: Collection[str], live: Mapping[str, Record]) -> Track | None:
    """The track without what rested on lost records; None where nothing is left to be called by its title."""
    narrative = reduce_text(track.narrative, lost)
    record_ids = tuple(record_id for record_id in track.record_ids if record_id in live and record_id not in lost)
    if not record_ids or not _is_said(f"{track.title} {track.file_name.removesuffix('.md')}", [live[record_id].text for record_id in record_ids]):
        return None
    time = max(live[record_id].time for record_id in record_ids)
    return replace(track, summary=f"{len(record_ids)} records", narrative=narrative, record_ids=record_ids, time=time)


def _is_said(title: str, texts: Sequence[str]) -> bool:
    """Whether these texts hold all words of a title."""
    said = set(re.findall(r"[^\W_]+", " ".join(texts).lower()))
    return said.issuperset(re.findall(r"[^\W_]+", title.lower()))


def _reduce_profile(profile: Profile, touched: Collection[str], times: Mapping[str, str]) -> Profile:
    """The profile without what rested on lost records or on tracks that are no longer what they were."""
    if touched.isdisjoint((*profile.source_ids, *find_links(profile.text))):
        return profile
    lines = [line for line in reduce_text(profile.text, touched).split("\n") if not line.startswith("#") or line.lstrip("# ") in PLAIN_HEADINGS]
    text = "\n".join(lines).strip("\n")
    source_ids = tuple(source_id for source_id in profile.source_ids if source_id in times and source_id not in touched)
    if not source_ids or not find_links(text):
        return EMPTY_PROFILE
    return Profile(text=text, time=max(times[source_id] for source_id in source_ids), source_ids=source_ids)
