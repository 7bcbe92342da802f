"""Links from tracks and profile follow what is below them: to a record or track that took another in, and to the time of one that was revised.

A track is shown from the time of its newest record on, and a profile from that of its newest source: a text must never be shown at a moment at which something
it rests on was not known yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from napmem_rl.memory.pyramid import LINK
from napmem_rl.memory.reconcile import unite
from napmem_rl.schema import Profile, Record, RecordOperation, RecordRevision, Track

MAX_STAND_INS = 3  # records linked in place of a track that was dropped


def relink(
    tracks: Sequence[Track], profile: Profile, revisions: Sequence[RecordRevision], find_record: Callable[[str], Record | None]
) -> tuple[tuple[Track, ...], Profile]:
    """Tracks and profile as they must be once these revisions are part of the bank.

    Args:
        tracks, profile: as they are.
        revisions: of one commit, in order.
        find_record: a live record of an id, with the revisions applied.

    Returns:
        The same objects where nothing they rest on has changed.
    """
    touched = {revision.record.record_id for revision in revisions if revision.operation is not RecordOperation.STORE}
    if not touched:
        return tuple(tracks), profile
    taken_in = {merged_id: revision.record.record_id for revision in revisions for merged_id in revision.merged_ids}
    heirs = {record_id: (_follow(record_id, taken_in),) for record_id in taken_in}
    moved = tuple(_relink_track(track, touched, heirs, find_record) for track in tracks)
    return moved, _relink_profile(profile, moved, heirs, find_record)


def relink_profile(
    profile: Profile, before: Sequence[Track], after: Sequence[Track], merged: Mapping[str, str], find_record: Callable[[str], Record | None]
) -> Profile:
    """The profile as it must be after a round of topic writing; its words stay, until it is written anew.

    Args:
        profile: as it is.
        before, after: all tracks.
        merged: ids of tracks that another took in, with the other's.
        find_record: a live record of an id.

    Returns:
        The profile with links to a merged track led to the one that took it in, those to a dropped one to its newest records.
    """
    left = {track.track_id for track in after}
    heirs: dict[str, tuple[str, ...]] = {}
    for track in before:
        heir = _follow(track.track_id, merged)
        if heir in left:
            heirs[track.track_id] = (heir,)
        else:
            newest = sorted((record for record_id in track.record_ids if (record := find_record(record_id))), key=lambda record: record.time)
            heirs[track.track_id] = tuple(record.record_id for record in newest[-MAX_STAND_INS:])
    return _relink_profile(profile, after, heirs, find_record)


def _follow(item_id: str, taken_in: Mapping[str, str]) -> str:
    while item_id in taken_in:
        item_id = taken_in[item_id]
    return item_id


def _relink_track(track: Track, touched: set[str], heirs: Mapping[str, tuple[str, ...]], find_record: Callable[[str], Record | None]) -> Track:
    if not (touched | heirs.keys()).intersection(track.record_ids):
        return track
    record_ids = _relink_ids(track.record_ids, heirs)
    time = max(record.time for record_id in record_ids if (record := find_record(record_id)))
    return replace(track, summary=_relink_text(track.summary, heirs), narrative=_relink_text(track.narrative, heirs), record_ids=record_ids, time=time)


def _relink_profile(profile: Profile, tracks: Sequence[Track], heirs: Mapping[str, tuple[str, ...]], find_record: Callable[[str], Record | None]) -> Profile:
    source_ids = _relink_ids(profile.source_ids, heirs)
    times = {track.track_id: track.time for track in tracks}
    times |= {record_id: record.time for record_id in source_ids if (record := find_record(record_id))}
    time = max((profile.time, *(times[item_id] for item_id in source_ids)))
    if (source_ids, time) == (profile.source_ids, profile.time):
        return profile
    return replace(profile, text=_relink_text(profile.text, heirs), source_ids=source_ids, time=time)


def _relink_ids(item_ids: Sequence[str], heirs: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    return unite(*(heirs.get(item_id, (item_id,)) for item_id in item_ids))


def _relink_text(text: str, heirs: Mapping[str, tuple[str, ...]]) -> str:
    return LINK.sub(lambda link: " ".join(f"[{item_id}]" for item_id in heirs.get(link.group(1), (link.group(1),))), text)
