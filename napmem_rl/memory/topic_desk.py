"""What a topic writer works at: the tracks of one round, where every write is checked before it counts (NapMem appendix B, "Topic tracks").

"Updates are committed only after format validation; invalid writes are rolled back": here a write that does not hold is refused at once, in words that the
writer can act on, and leaves all as it was; the builder commits a finished round as a whole or not at all.

Ours, where the paper is silent: the length limits below; links are ``[rec:7]`` and name live records alone; a dropped or merged track's id is never used again.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from napmem_rl.errors import NapMemError, PolicyOutputError
from napmem_rl.memory.pyramid import PROFILE_FILE, find_links
from napmem_rl.memory.reconcile import unite
from napmem_rl.schema import Record, Track

MAX_TRACKS = 20  # NapMem appendix B
MAX_TITLE_CHARS = 100
MAX_SUMMARY_CHARS = 600
MAX_NARRATIVE_CHARS = 6000
MAX_SLUG_CHARS = 60
_SHOWN = 10  # names or ids in a refusal


class TopicRound:
    """One round's tracks; a `TopicDesk`.

    Attributes: `new_records`, `num_refused` (writes that did not hold), `wants_profile`, `next_track` (number of the next track's id), `merged` (ids of tracks
    that another took in, with the other's).
    """

    def __init__(
        self,
        tracks: Iterable[Track],
        new_records: Sequence[Record],
        *,
        find_record: Callable[[str], Record | None],
        next_track: int,
        max_tracks: int = MAX_TRACKS,
    ) -> None:
        """Args:
        tracks: as they are before the round.
        new_records: live ones that were created or revised since the last round.
        find_record: the live record of an id, or None.
        next_track: number of the first track that is created here.
        """
        self.new_records: Sequence[Record] = tuple(new_records)
        self.num_refused = 0
        self.wants_profile = False
        self.next_track = next_track
        self.merged: dict[str, str] = {}
        self._find_record = find_record
        self._max_tracks = max_tracks
        self._tracks = {track.file_name: track for track in tracks}

    def list_tracks(self) -> tuple[Track, ...]:
        """All tracks as they are now in this round, by file name."""
        return tuple(self._tracks[name] for name in sorted(self._tracks))

    def read_track(self, file_name: str) -> Track:
        """One track.

        Raises:
            PolicyOutputError: no track has this name.
        """
        track = self._tracks.get(file_name) if isinstance(file_name, str) else None
        if track is None:
            names = ", ".join(sorted(self._tracks)[:_SHOWN]) or "none, there are no tracks yet"
            raise self._refusal("track", "there is no such file", got=file_name, expected=f"one of {names}")
        return track

    def create_track(self, *, title: str, summary: str, narrative: str) -> Track:
        """A new track, named after its title.

        Raises:
            PolicyOutputError: too many tracks, or parts that do not hold.
        """
        if len(self._tracks) >= self._max_tracks:
            raise self._refusal("new track", f"there are {self._max_tracks} tracks already, the most there may be", fix="Update, merge or drop one first.")
        parts = self._check_parts("new track", title, summary, narrative)
        track = Track(track_id=f"trk:{self.next_track}", file_name=build_file_name(parts["title"], self._tracks, self.next_track), **parts)
        self.next_track += 1
        return self._put(track)

    def update_track(self, file_name: str, *, title: str | None = None, summary: str | None = None, narrative: str | None = None) -> Track:
        """A track with these parts replaced; its file name stays.

        Raises:
            PolicyOutputError: unknown name, nothing to replace, or parts that do not hold.
        """
        track = self.read_track(file_name)
        if title is None and summary is None and narrative is None:
            raise self._refusal(file_name, "nothing was given to replace", expected="title, summary or narrative")
        given = (track.title if title is None else title, track.summary if summary is None else summary, track.narrative if narrative is None else narrative)
        return self._put(replace(track, **self._check_parts(file_name, *given)))

    def merge_tracks(self, file_names: Sequence[str], *, title: str, summary: str, narrative: str) -> Track:
        """One track in place of several; the first one's file name and id stay.

        Raises:
            PolicyOutputError: unknown names, fewer than two different ones, or parts that do not hold.
        """
        tracks = [self.read_track(name) for name in unite(file_names)]
        if len(tracks) < 2:
            raise self._refusal("merge", "takes several tracks", got=list(file_names), expected="at least two different file names")
        merged = replace(tracks[0], **self._check_parts(tracks[0].file_name, title, summary, narrative))
        for track in tracks[1:]:
            del self._tracks[track.file_name]
            self.merged[track.track_id] = merged.track_id
        return self._put(merged)

    def edit_track(self, file_name: str, *, old: str, new: str) -> Track:
        """Replace the only occurrence of `old` in the narrative.

        Raises:
            PolicyOutputError: unknown name, `old` occurs never or more than once, or a narrative that does not hold afterwards.
        """
        track = self.read_track(file_name)
        occurrences = track.narrative.count(old) if isinstance(old, str) and old else 0
        if occurrences != 1:
            fix = "Give the exact text with enough around it to be the only one."
            raise self._refusal(file_name, f"the text to replace occurs {occurrences} times in the narrative", got=old, expected="exactly once", fix=fix)
        if not isinstance(new, str):
            raise self._refusal(file_name, "the new text is no text", got=new)
        return self.update_track(file_name, narrative=track.narrative.replace(old, new))

    def drop_track(self, file_name: str) -> None:
        """Remove a track that no longer holds.

        Raises:
            PolicyOutputError: unknown name.
        """
        del self._tracks[self.read_track(file_name).file_name]

    def request_profile(self) -> None:
        """Ask for a refresh of the profile after this round."""
        self.wants_profile = True

    def _put(self, track: Track) -> Track:
        self._tracks[track.file_name] = track
        return track

    def _check_parts(self, what: str, title: str, summary: str, narrative: str) -> dict[str, Any]:
        """The parts of a track that follow from what was written, or a refusal that leaves all as it was."""
        title = self._check_text(what, "title", title, MAX_TITLE_CHARS, is_line=True)
        summary = self._check_text(what, "summary", summary, MAX_SUMMARY_CHARS, is_line=True)
        narrative = self._check_text(what, "narrative", narrative, MAX_NARRATIVE_CHARS, is_line=False)
        links = unite(find_links(f"{summary}\n{narrative}"))
        records = {link: self._find_record(link) for link in links}
        unknown = [link for link in links if records[link] is None]
        if unknown:
            fix = "Link live records only, as in [rec:7]."
            raise self._refusal(what, f"{len(unknown)} links lead to no record", got=", ".join(unknown[:_SHOWN]), fix=fix)
        if not links:
            raise self._refusal(what, "rests on no record", expected="at least one link such as [rec:7] in its narrative")
        time = max(record.time for record in records.values() if record is not None)
        return {"title": title, "summary": summary, "narrative": narrative, "time": time, "record_ids": links}

    def _check_text(self, what: str, part: str, text: str, limit: int, *, is_line: bool) -> str:
        """The text without space around it."""
        if not isinstance(text, str) or not text.strip():
            raise self._refusal(what, f"the {part} is empty" if isinstance(text, str) else f"the {part} is no text", got=text)
        text = text.strip()
        if is_line and len(text.splitlines()) > 1:
            raise self._refusal(what, f"the {part} has {len(text.splitlines())} lines", expected="one line")
        if len(text) > limit:
            raise self._refusal(what, f"the {part} has {len(text)} characters", expected=f"at most {limit}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise self._refusal(what, f"the {part} is not valid Unicode ({error.reason})") from error
        return text

    def _refusal(self, what: str, problem: str, *, got: object = None, expected: str | None = None, fix: str | None = None) -> NapMemError:
        self.num_refused += 1
        return PolicyOutputError.of(what, problem, got=got, expected=expected, fix=fix)


def build_file_name(title: str, taken: Mapping[str, Track], number: int) -> str:
    """A track's file name from its title: a-z, 0-9 and -, never one that is taken. ``"Café & travel"`` gives ``cafe-travel.md``."""
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", plain)[:MAX_SLUG_CHARS].strip("-") or f"topic-{number}"
    while f"{slug}.md" in taken or f"{slug}.md" == PROFILE_FILE:
        slug = f"{slug}-{number}"
    return f"{slug}.md"
