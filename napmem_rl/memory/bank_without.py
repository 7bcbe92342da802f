"""A bank as it would look without some of its items. The bank itself, on disk and in memory, stays as it is."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from napmem_rl.errors import BankError
from napmem_rl.memory.bank_view import BankView
from napmem_rl.memory.pyramid import LINK, PROFILE_FILE, PROFILE_ID, find_links
from napmem_rl.memory.storage import render_profile, render_track
from napmem_rl.retrieval.index import PassageIndex
from napmem_rl.schema import Level, Message, Profile, Record, RecordRevision, Track

_STATEMENT = re.compile(rf"(?:(?!{LINK.pattern}).)*(?:{LINK.pattern}[\s,;.]*)+")  # some text and the links that close it
_NEAR_IDS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Hidden:
    """What is left out: the items that were named, and those that rest on them. `edited` are files that stay, without what rested on hidden items."""

    dropped: tuple[str, ...]
    dependents: tuple[str, ...]
    edited: tuple[str, ...]

    @property
    def ids(self) -> frozenset[str]:
        """All items that are left out."""
        return frozenset((*self.dropped, *self.dependents))


def find_hidden(bank: BankView, names: Sequence[str], *, with_dependents: bool) -> Hidden:
    """What goes with some items.

    Args:
        bank: holds them.
        names: ids, or file names of tracks and the profile.
        with_dependents: True takes everything that rests on them at all; False what rests on nothing else.

    Raises:
        BankError: one that the bank does not hold; near ids are named.
    """
    dropped = tuple(dict.fromkeys(_find_id(bank, name) for name in names))
    hidden = set(dropped)
    rests_on_hidden: Callable[[Iterable[bool]], bool] = any if with_dependents else all
    dependents = []
    levels = (
        ((record.record_id, record.source_ids) for record in bank.records),
        ((track.track_id, track.record_ids) for track in bank.tracks),
        ((PROFILE_ID, bank.profile.source_ids),),
    )
    for level in levels:
        for item_id, source_ids in level:
            if item_id not in hidden and source_ids and rests_on_hidden(source_id in hidden for source_id in source_ids):
                hidden.add(item_id)
                dependents.append(item_id)
    files = [(track.file_name, track.track_id, track.record_ids) for track in bank.tracks] + [(PROFILE_FILE, PROFILE_ID, bank.profile.source_ids)]
    edited = tuple(name for name, item_id, source_ids in files if item_id not in hidden and not hidden.isdisjoint(source_ids))
    return Hidden(dropped=dropped, dependents=tuple(dependents), edited=edited)


def _find_id(bank: BankView, name: str) -> str:
    of_file = bank.item_of_file(name) if bank.file(name) is not None else None
    if of_file is not None:
        return of_file.track_id if isinstance(of_file, Track) else PROFILE_ID
    if bank.item(name) is not None:
        return name
    near = difflib.get_close_matches(name, _list_ids(bank, name), n=_NEAR_IDS, cutoff=0.5)
    fix = f"Did you mean {', '.join(near)}?" if near else "Ids look like msg:12, rec:7, trk:3 or profile; `napmem bank show` prints a bank."
    raise BankError.of(f"bank {bank.bank_id}", f"holds no item {name!r}", fix=fix)


def _list_ids(bank: BankView, name: str) -> list[str]:
    """Ids of the level that a name seems to be of."""
    if name.startswith("msg:"):
        return [message.message_id for message in bank.messages]
    if name.startswith("rec:"):
        return [record.record_id for record in bank.records]
    return [*(track.track_id for track in bank.tracks), *bank.file_names, PROFILE_ID]


class BankWithout(BankView):
    """A bank without the items that are hidden.

    Searches leave hidden items out before ranking, so that nothing takes a place from them or lends to its neighbours; word statistics are still those of the
    whole bank. Links to hidden items are gone from records, topic files and the profile. Of a file that stays, statements whose links are all hidden are left
    out and, since nobody can tell what it rests on, all text without a link.
    """

    def __init__(self, bank: BankView, hidden: Hidden) -> None:
        """Args:
        bank: stays as it is.
        hidden: see `find_hidden`.
        """
        texts = {name: _render(bank, name, hidden) for name in bank.file_names}
        super().__init__(bank.snapshot, {name: text for name, text in texts.items() if text is not None})
        self._bank, self._ids = bank, hidden.ids
        self.hidden = hidden
        self.bank_id, self.writer, self.state = bank.bank_id, bank.writer, bank.state
        self.version = f"{bank.version} without {', '.join(hidden.dropped)}"
        self.messages = tuple(message for message in bank.messages if message.message_id not in self._ids)
        self.records = tuple(self._shown(record) for record in bank.records if record.record_id not in self._ids)
        self.tracks = tuple(_reduce_track(track, hidden) for track in bank.tracks if track.track_id not in self._ids)
        self.profile = Profile(text="", time=bank.profile.time, source_ids=()) if PROFILE_ID in self._ids else _reduce_profile(bank.profile, hidden)

    def check_current(self) -> None:
        """See `BankView`."""
        self._bank.check_current()

    def message(self, message_id: str) -> Message | None:
        """See `BankView`; None for a hidden one."""
        return None if message_id in self._ids else self._bank.message(message_id)

    def record(self, record_id: str) -> Record | None:
        """See `BankView`; None for a hidden one."""
        found = None if record_id in self._ids else self._bank.record(record_id)
        return None if found is None else self._shown(found)

    def history(self, record_id: str) -> tuple[RecordRevision, ...]:
        """See `BankView`; empty for a hidden one."""
        return () if record_id in self._ids else self._bank.history(record_id)

    def position(self, item_id: str) -> int | None:
        """See `BankView`; None for a hidden one."""
        return None if item_id in self._ids else self._bank.position(item_id)

    def item(self, item_id: str) -> Message | Record | Track | Profile | None:
        """See `BankView`; None for a hidden one."""
        return None if item_id in self._ids else super().item(item_id)

    def search_records(self, query: str, *, k: int, without: Collection[str] = (), **where: object) -> list[Record]:
        """See `BankView`."""
        found = self._bank.search_records(query, k=k, without=(*without, *self._of_kind("rec:")), **where)
        return [self._shown(record) for record in found]

    def search_messages(self, query: str, *, k: int, without: Collection[str] = (), **where: object) -> list[Message]:
        """See `BankView`."""
        return self._bank.search_messages(query, k=k, without=(*without, *self._of_kind("msg:")), **where)

    def find_index(self, level: Level) -> PassageIndex:
        """Of the whole bank; searches leave out what is hidden."""
        return self._bank.find_index(level)

    def _of_kind(self, prefix: str) -> tuple[str, ...]:
        return tuple(sorted(item_id for item_id in self._ids if item_id.startswith(prefix)))

    def _shown(self, record: Record) -> Record:
        """A record without links to hidden messages."""
        if self._ids.isdisjoint(record.source_ids):
            return record
        return dataclasses.replace(record, source_ids=_keep(record.source_ids, self.hidden))


def _keep(item_ids: Sequence[str], hidden: Hidden) -> tuple[str, ...]:
    return tuple(item_id for item_id in item_ids if item_id not in hidden.ids)


def _render(bank: BankView, name: str, hidden: Hidden) -> str | None:
    """A file's text; None for a hidden one."""
    item = bank.item_of_file(name)
    if (item.track_id if isinstance(item, Track) else PROFILE_ID) in hidden.ids:
        return None
    if name not in hidden.edited:
        return bank.file(name)
    return (render_track(_reduce_track(item, hidden)) if isinstance(item, Track) else render_profile(_reduce_profile(bank.profile, hidden))).decode()


def _reduce_track(track: Track, hidden: Hidden) -> Track:
    if track.file_name not in hidden.edited:
        return track
    texts = {name: reduce_text(getattr(track, name), hidden.ids) for name in ("summary", "narrative")}
    return dataclasses.replace(track, **texts, record_ids=_keep(track.record_ids, hidden))


def _reduce_profile(profile: Profile, hidden: Hidden) -> Profile:
    if PROFILE_FILE not in hidden.edited:
        return profile
    return dataclasses.replace(profile, text=reduce_text(profile.text, hidden.ids), source_ids=_keep(profile.source_ids, hidden))


def reduce_text(text: str, hidden: Collection[str]) -> str:
    """A Markdown text without the statements whose links are all hidden, and without text that has no link; headings stay.

    Example: ``"Ana moved. [rec:7] She likes tea. [rec:8]"`` without rec:7 is ``"She likes tea. [rec:8]"``.
    """
    lines = [line if line.startswith("#") else _reduce_line(line, hidden) for line in text.split("\n")]
    return "\n".join(line for line, before in zip(lines, text.split("\n"), strict=True) if line or not before)


def _reduce_line(line: str, hidden: Collection[str]) -> str:
    kept = []
    for match in _STATEMENT.finditer(line):
        links = find_links(match[0])
        if all(link in hidden for link in links):
            continue
        statement = match[0]
        for link in links:
            statement = statement.replace(f"[{link}]", "") if link in hidden else statement
        kept.append(statement)
    return "".join(kept).strip()
