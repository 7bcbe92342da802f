"""What a round of topic writing does to the profile above the tracks, until the profile itself is written anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from napmem_rl.memory.pyramid import LINK
from napmem_rl.memory.reconcile import unite
from napmem_rl.schema import Profile, Record, Track

MAX_STAND_INS = 3  # records linked in place of a track that was dropped


def carry_over(
    profile: Profile, before: Sequence[Track], after: Sequence[Track], merged: Mapping[str, str], find_record: Callable[[str], Record | None]
) -> Profile:
    """The profile as it must be after a round; its words stay.

    A link to a merged track leads to the one that took it in, one to a dropped track to its newest records, and the profile is no older than what it rests on:
    it must never be shown at a moment at which something below it was not known yet.

    Args:
        profile: as it is.
        before, after: all tracks.
        merged: ids of tracks that another took in, with the other's.
        find_record: a live record of an id.

    Returns:
        The same object where nothing changes.
    """
    times = {track.track_id: track.time for track in after}
    heirs: dict[str, tuple[str, ...]] = {}
    for track in before:
        heir = _follow(track.track_id, merged)
        newest = sorted((record for record_id in track.record_ids if (record := find_record(record_id))), key=lambda record: record.time)
        heirs[track.track_id] = (heir,) if heir in times else tuple(record.record_id for record in newest[-MAX_STAND_INS:])
    source_ids = unite(*(heirs.get(item_id, (item_id,)) for item_id in profile.source_ids))
    times |= {record_id: record.time for record_id in source_ids if (record := find_record(record_id))}
    time = max((profile.time, *(times[item_id] for item_id in source_ids)))
    if (source_ids, time) == (profile.source_ids, profile.time):
        return profile
    text = LINK.sub(lambda link: " ".join(f"[{item_id}]" for item_id in heirs.get(link.group(1), (link.group(1),))), profile.text)
    return replace(profile, text=text, source_ids=source_ids, time=time)


def _follow(track_id: str, merged: Mapping[str, str]) -> str:
    while track_id in merged:
        track_id = merged[track_id]
    return track_id
