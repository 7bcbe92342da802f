"""What a bank was made to forget: ids and versions, never content.

::

    forgotten.jsonl   one line a `napmem forget` (or `napmem correct --forget-old`), oldest first

It is the bank's audit, and it is acted on: a message that was forgotten is not taken in again, and a version whose content is gone is named as such. It is no
part of any version; a copy of the bank (`napmem bank checkout`) takes it along.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from napmem_rl.atomic import write_file
from napmem_rl.errors import BankError
from napmem_rl.memory.storage import dump_json

FORGOTTEN_FILE = "forgotten.jsonl"
REMOVED_NOTE = "content removed"  # of the version that begins without it


@dataclass(frozen=True, kw_only=True, slots=True)
class RemovedVersion:
    """A version whose content is gone: what `napmem bank log` still says of it."""

    version: str
    time: str
    writer: str
    num_messages: int
    num_records: int
    num_tracks: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Forgetting:
    """One act of forgetting."""

    time: str  # UTC, ISO 8601
    selector: str  # the kinds of selectors, e.g. "session" or "query"; never what they said
    message_ids: tuple[str, ...]
    record_ids: tuple[str, ...]  # that were removed, and not written again under the same id
    track_ids: tuple[str, ...]
    versions: tuple[RemovedVersion, ...]


def forgotten_ids(bank_dir: Path) -> frozenset[str]:
    """Ids of all messages that a bank was made to forget; empty for one that forgot nothing, and where there is no bank.

    Raises:
        BankError: the bank's list is damaged: who goes on without it might bring back what was forgotten.
    """
    return frozenset(message_id for forgetting in list_forgettings(bank_dir) for message_id in forgetting.message_ids)


def list_forgettings(bank_dir: Path) -> list[Forgetting]:
    """All acts of forgetting, oldest first. Raises BankError where the list is damaged."""
    path = Path(bank_dir) / FORGOTTEN_FILE
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BankError.of(f"{path}", f"cannot be read ({error.strerror})") from error
    return [_parse(path, number, line) for number, line in enumerate(lines, start=1)]


def stamp(bank_dir: Path) -> tuple[int, int, int] | None:
    """What changes whenever a bank forgets: of the list's file, without reading it; None where there is none."""
    try:
        status = os.stat(f"{bank_dir}/{FORGOTTEN_FILE}")
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def list_removed_versions(bank_dir: Path) -> list[tuple[RemovedVersion, str]]:
    """Versions whose content is gone, oldest first, each with the time at which it went."""
    return [(version, forgetting.time) for forgetting in list_forgettings(bank_dir) for version in forgetting.versions]


def refuse_removed(path: Path, version: str) -> None:
    """Raise BankError where the content of a version was removed."""
    removed = {found.version: time for found, time in list_removed_versions(path)}
    if version in removed:
        fix = "`napmem bank log` lists the versions that are whole."
        raise BankError.of(f"bank {path}", f"version {version} held content that the bank was made to forget on {removed[version][:10]}; it is gone", fix=fix)


def render_forgettings(forgettings: Sequence[Forgetting]) -> bytes:
    """The content of `forgotten.jsonl`."""
    return b"".join(dump_json(asdict(forgetting)).encode() + b"\n" for forgetting in forgettings)


def carry_forgotten(bank_dir: Path, other: Path) -> None:
    """Let another directory of the same bank know what it is not to take in again, where there is anything. Raises BankError where the list is damaged."""
    if list_forgettings(bank_dir):
        write_file(Path(other) / FORGOTTEN_FILE, (Path(bank_dir) / FORGOTTEN_FILE).read_bytes(), durable=False)


def _parse(path: Path, number: int, line: bytes) -> Forgetting:
    try:
        fields = json.loads(line.decode())
        versions = tuple(RemovedVersion(**version) for version in fields.pop("versions"))
        ids = {name: _parse_ids(fields.pop(name)) for name in ("message_ids", "record_ids", "track_ids")}
        return Forgetting(versions=versions, **ids, **fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        fix = "Restore the file from a copy of the bank: without it, forgotten messages could come back with the next import."
        raise BankError.of(f"{path} line {number}", f"cannot be read ({type(error).__name__})", fix=fix) from error


def _parse_ids(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item_id, str) for item_id in value):
        raise TypeError("not a list of ids")
    return tuple(value)
