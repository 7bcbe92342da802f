"""What the page of a memory bank holds: all levels in columns, as far as there is room, and what was left out in words.

Columns, because a hundred thousand messages as objects would say every field's name a hundred thousand times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.commit_log import Commit
from napmem_rl.schema import Message, Record, Track

MAX_MESSAGES = 200_000
MAX_CHARACTERS = 30_000_000  # of all texts; a page of 100,000 messages of ordinary length has about half
_RECORD_SHARE = 0.5  # of the room, at most


@dataclass(frozen=True, kw_only=True, slots=True)
class BankSelection:
    """Positions, ascending, of what is shown: records among the live ones, messages among all."""

    records: tuple[int, ...]
    messages: tuple[int, ...]
    num_records: int  # in the bank
    num_messages: int

    @property
    def notices(self) -> list[str]:
        """What is left out, in words; empty where nothing is."""
        parts = []
        if len(self.records) < self.num_records:
            parts.append(f"{len(self.records):,} of {self.num_records:,} records: the newest")
        if len(self.messages) < self.num_messages:
            parts.append(f"{len(self.messages):,} of {self.num_messages:,} messages: those that shown records rest on first, then the newest")
        more = "The others are in the bank: `napmem bank show BANK ID` shows them, and `napmem show --max-messages` makes a page of another size."
        return [f"This page holds {' and '.join(parts)}. {more}"] if parts else []


def select_items(messages: Sequence[Message], records: Sequence[Record], *, max_messages: int, max_characters: int = MAX_CHARACTERS) -> BankSelection:
    """Choose what has room.

    Args:
        messages, records: all of the bank, in its order.
        max_messages: messages at most.
        max_characters: of the texts of records and messages together.
    """
    newest_records = sorted(range(len(records)), key=lambda place: (records[place].time, place), reverse=True)
    shown_records, used = _take(newest_records, [len(record.text) for record in records], int(max_characters * _RECORD_SHARE), len(records))
    position = {message.message_id: place for place, message in enumerate(messages)}
    sources = dict.fromkeys(position[source_id] for place in shown_records for source_id in records[place].source_ids if source_id in position)
    newest = sorted(range(len(messages)), key=lambda place: (messages[place].time, place), reverse=True)
    lengths = [len(message.text) + len(message.caption or "") for message in messages]
    shown_messages, _ = _take(list(dict.fromkeys([*sources, *newest])), lengths, max_characters - used, max_messages)
    counts = {"num_records": len(records), "num_messages": len(messages)}
    return BankSelection(records=tuple(sorted(shown_records)), messages=tuple(sorted(shown_messages)), **counts)


def build_bank_data(bank: MemoryBank, commit: Commit, *, max_messages: int = MAX_MESSAGES) -> tuple[dict[str, Any], BankSelection]:
    """All that the page's script reads, and what was chosen.

    Args:
        bank: the version to show.
        commit: that version, for when it was made.
        max_messages: messages at most.
    """
    messages, records = list(bank.messages), list(bank.records)
    selection = select_items(messages, records, max_messages=max_messages)
    shown_messages, shown_records = [messages[place] for place in selection.messages], [records[place] for place in selection.records]
    times = [message.time for message in messages]
    data = {
        "facts": [("version", bank.version), ("made", commit.time.replace("T", " ")), ("written by", bank.writer)],
        "counts": {
            "messages": len(messages),
            "records": len(records),
            "tracks": len(bank.tracks),
            "sessions": len({message.session_id for message in messages}),
        },
        "period": [min(times)[:10], max(times)[:10]] if times else [],
        "notices": selection.notices,
        "messages": _build_messages(shown_messages),
        "records": _build_records(shown_records) | {"before": _find_earlier(bank, shown_records)},
        "tracks": [_build_track(track) for track in bank.tracks],
        "profile": {"text": bank.profile.text, "time": bank.profile.time, "sources": list(bank.profile.source_ids)},
    }
    return data, selection


def _take(places: Sequence[int], lengths: Sequence[int], room: int, most: int) -> tuple[list[int], int]:
    """The first places that have room, and the characters that they take."""
    taken, used = [], 0
    for place in places[:most]:
        if used + lengths[place] > room:
            continue
        used += lengths[place]
        taken.append(place)
    return taken, used


def _build_messages(messages: Sequence[Message]) -> dict[str, Any]:
    sessions = {name: code for code, name in enumerate(dict.fromkeys(message.session_id for message in messages))}
    speakers = {name: code for code, name in enumerate(dict.fromkeys(message.speaker for message in messages))}
    return {
        "sessions": list(sessions),
        "speakers": list(speakers),
        "id": [message.message_id for message in messages],
        "time": [message.time for message in messages],
        "session": [sessions[message.session_id] for message in messages],
        "speaker": [speakers[message.speaker] for message in messages],
        "assistant": [int(message.role == "assistant") for message in messages],
        "text": [message.text for message in messages],
        "caption": {place: message.caption for place, message in enumerate(messages) if message.caption},
    }


def _build_records(records: Sequence[Record]) -> dict[str, Any]:
    return {
        "id": [record.record_id for record in records],
        "time": [record.time for record in records],
        "type": [str(record.type) for record in records],
        "text": [record.text for record in records],
        "sources": [list(record.source_ids) for record in records],
    }


def _build_track(track: Track) -> dict[str, Any]:
    texts = {"title": track.title, "summary": track.summary, "narrative": track.narrative}
    return {"id": track.track_id, "file": track.file_name, "time": track.time, "records": list(track.record_ids), **texts}


def _find_earlier(bank: MemoryBank, records: Sequence[Record]) -> dict[str, list[dict[str, str]]]:
    """What records said before they were updated or merged, newest first, by record id."""
    if len(bank.snapshot.revisions) == len(bank.records):
        return {}  # every record has one revision
    earlier = {record.record_id: bank.history(record.record_id)[:-1] for record in records}
    return {
        record_id: [{"time": revision.record.time, "text": revision.record.text} for revision in reversed(revisions)]
        for record_id, revisions in earlier.items()
        if revisions
    }
