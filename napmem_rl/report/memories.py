"""The memories that shown episodes looked at, with what they rest on, out of the run's banks. Only these, so that a page stays small."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from napmem_rl.errors import BankError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.storage import find_bank_dir
from napmem_rl.memory.versions import list_versions
from napmem_rl.schema import Message, Profile, Record, Track

MAX_CHARACTERS = 4_000_000  # of all memories of a page


@dataclass(kw_only=True, slots=True)
class Memories:
    """`items` holds, by bank id and item id, what an item says and the ids that it rests on; `notes` says by bank id what is wrong with a bank."""

    items: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    num_left_out: int = 0  # for want of room


def wanted_items(episodes: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Item ids by bank id, each once, in the order in which shaped episodes show them."""
    wanted: dict[str, dict[str, None]] = defaultdict(dict)
    for episode in episodes:
        for turn in episode["turns"]:
            for call in turn["calls"]:
                wanted[episode["bank"]].update(dict.fromkeys([*call["items"], *call["messages"]]))
    return {bank: list(ids) for bank, ids in wanted.items() if ids}


def load_memories(
    wanted: Mapping[str, Iterable[str]], banks_dir: Path | None, versions: Mapping[str, str], *, max_characters: int = MAX_CHARACTERS
) -> Memories:
    """Look up items and all that they rest on, down to the messages.

    Args:
        wanted: item ids by bank id.
        banks_dir: holds one folder per bank id; None where no banks are at hand.
        versions: the banks' content versions when the run started.
        max_characters: room for texts; items beyond it are counted and left out.
    """
    memories = Memories()
    room = max_characters
    for bank_id, item_ids in wanted.items():
        bank = _open_bank(bank_id, banks_dir, versions, memories.notes)
        if bank is None:
            continue
        found: dict[str, dict[str, Any]] = {}
        pending = list(reversed(list(item_ids)))
        while pending:
            item_id = pending.pop()
            if item_id in found or (item := describe_item(bank, item_id)) is None:
                continue
            length = sum(len(text) for text in item.values() if isinstance(text, str))
            if length > room:
                memories.num_left_out += 1
                continue
            room -= length
            found[item_id] = item
            pending.extend(reversed(item["sources"]))
        memories.items[bank_id] = found
    return memories


def describe_item(bank: MemoryBank, item_id: str) -> dict[str, Any] | None:
    """One item as plain data: its level, texts, time and the ids that it rests on. None for an id that the bank does not hold."""
    match item := bank.item(item_id):
        case Message():
            text = f"{item.text}\n[image: {item.caption}]" if item.caption else item.text
            return {"level": "raw", "title": item.speaker, "text": text, "time": item.time, "session": item.session_id, "sources": []}
        case Record():
            return {"level": "record", "title": str(item.type), "text": item.text, "time": item.time, "sources": list(item.source_ids)}
        case Track():
            text = f"{item.summary}\n\n{item.narrative}"
            return {"level": "track", "title": item.title, "text": text, "time": item.time, "sources": list(item.record_ids)}
        case Profile():
            return {"level": "profile", "title": "User profile", "text": item.text, "time": item.time, "sources": list(item.source_ids)}
    return None


def _open_bank(bank_id: str, banks_dir: Path | None, versions: Mapping[str, str], notes: dict[str, str]) -> MemoryBank | None:
    if banks_dir is None:
        notes[bank_id] = "its banks are not at hand"
        return None
    try:
        path = find_bank_dir(banks_dir, bank_id)  # ids come out of a log: none may lead elsewhere
    except BankError:
        path = None
    if path is None or not path.is_dir():
        notes[bank_id] = f"is not in {banks_dir}"
        return None
    try:
        bank = _open_version(path, versions.get(bank_id))
    except BankError as error:
        notes[bank_id] = str(error)
        return None
    expected = versions.get(bank_id)
    if expected is not None and expected != bank.version:
        notes[bank_id] = f"has changed since the run: version {bank.version}, then {expected}; what is shown may differ from what the policy read"
    return bank


def _open_version(path: Path, version: str | None) -> MemoryBank:
    """The bank as it was in this version, where it has it; otherwise its newest."""
    if version is not None and any(commit.version == version for commit in list_versions(path)):
        return MemoryBank.open(path, version=version)
    return MemoryBank.open(path)
