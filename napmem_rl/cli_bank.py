"""The `napmem bank` commands."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_check import verify_bank
from napmem_rl.memory.commit_log import Commit
from napmem_rl.memory.forgotten import REMOVED_NOTE, RemovedVersion, list_removed_versions
from napmem_rl.memory.pyramid import PROFILE_ID
from napmem_rl.memory.versions import BankDiff, RecordChange, checkout_version, diff_versions, list_versions
from napmem_rl.schema import Message, Record, RecordOperation, Track


def add_bank_commands(areas: argparse._SubParsersAction) -> None:
    """Add `bank` and its commands to the areas of `napmem`."""
    bank = areas.add_parser("bank", help="memory banks on disk").add_subparsers(required=True, metavar="COMMAND")
    verify = _add(bank, "verify", run_verify, "check every version, file and link of a bank")
    verify.add_argument("--version", metavar="V", help="look no further than this version")
    show = _add(bank, "show", run_show, "what a bank holds, or one item with all that it rests on")
    show.add_argument("item_id", nargs="?", metavar="ITEM_ID", help="msg:12, rec:7, trk:3, profile, or a file name")
    show.add_argument("--version", metavar="V", help="one of the versions that `log` lists; default: the newest")
    _add(bank, "log", run_log, "the versions of a bank, newest first")
    diff = _add(bank, "diff", run_diff, "what changed from one version to a later one")
    diff.add_argument("old", metavar="V1")
    diff.add_argument("new", metavar="V2")
    checkout = _add(bank, "checkout", run_checkout, "write a version, with those before it, as a bank of its own; the bank itself keeps all its versions")
    checkout.add_argument("version", metavar="V")
    checkout.add_argument("--out", type=Path, required=True, metavar="NEWDIR", help="a new or empty directory")


def run_verify(args: argparse.Namespace) -> int:
    """Every problem, one a line; exit status 1 where there is one."""
    problems = verify_bank(args.dir, version=args.version)
    for problem in problems:
        print(problem)
    print(f"bank {args.dir}: {len(problems)} problem(s)" if problems else f"bank {args.dir}: fine", file=sys.stderr if problems else sys.stdout)
    return 1 if problems else 0


def run_show(args: argparse.Namespace) -> int:
    """A bank, or one of its items."""
    bank = MemoryBank.open(args.dir, version=args.version)
    _print(_describe_bank(bank) if args.item_id is None else _describe_item(bank, _find_id(bank, args.item_id), 0))
    return 0


def run_log(args: argparse.Namespace) -> int:
    """One line a version."""
    commits = list_versions(args.dir)
    lines = [(commit.time, _describe_version(commit, _flatten(commit.note))) for commit in commits]
    place = next((index for index, commit in enumerate(commits) if commit.note == REMOVED_NOTE), len(commits))
    lines[place:place] = [(found.time, _describe_version(found, f"content removed {time}")) for found, time in list_removed_versions(args.dir)]
    for _, line in reversed(sorted(lines, key=lambda line: line[0])):  # stable: what has one time stays in this order
        print(line)
    return 0


def run_diff(args: argparse.Namespace) -> int:
    """Messages, records, and unified diffs of tracks and profile."""
    _print(_describe_diff(diff_versions(args.dir, args.old, args.new)))
    return 0


def run_checkout(args: argparse.Namespace) -> int:
    """A version in a directory of its own."""
    checkout_version(args.dir, args.version, args.out)
    print(f"version {args.version} of {args.dir} is in {args.out}")
    return 0


def _describe_version(version: Commit | RemovedVersion, note: str) -> str:
    counts = f"{version.num_messages} messages, {version.num_records} records, {version.num_tracks} tracks"
    return f"{version.version}  {version.time}  {version.writer}  {counts}" + (f"  {note}" if note else "")


def _add(bank: argparse._SubParsersAction, name: str, run: object, text: str) -> argparse.ArgumentParser:
    parser = bank.add_parser(name, help=text)
    parser.add_argument("dir", type=Path, metavar="DIR")
    parser.set_defaults(run=run)
    return parser


def _print(lines: Iterator[str]) -> None:
    for line in lines:
        print(line)


def _find_id(bank: MemoryBank, name: str) -> str:
    """An item id as it is, or the id of the item that a file of this name holds."""
    item = bank.item_of_file(name)
    item_id = name if item is None else getattr(item, "track_id", PROFILE_ID)
    bank.provenance(item_id)  # raises for an unknown one
    return item_id


def _describe_bank(bank: MemoryBank) -> Iterator[str]:
    yield f"bank {bank.bank_id}, version {bank.version}, written by {bank.writer}"
    yield f"{len(bank.messages)} messages, {len(bank.records)} records, {len(bank.tracks)} tracks"
    yield from (f"{track.track_id}  {track.file_name}  {track.summary}" for track in bank.tracks)
    yield f"{PROFILE_ID}  profile.md  {len(bank.profile.text)} characters, {len(bank.profile.source_ids)} links"


def _describe_item(bank: MemoryBank, item_id: str, depth: int) -> Iterator[str]:
    """The item, then what it rests on, indented by level."""
    indent = "  " * depth
    match item := bank.item(item_id):
        case Message():
            caption = f" [image: {item.caption}]" if item.caption else ""
            yield f"{indent}{item_id} {item.time} {item.speaker}: {item.text}{caption}"
            return
        case Record():
            yield from (f"{indent}{line}" for line in _describe_record(bank, item))
            sources = item.source_ids
        case Track():
            yield f"{indent}{item_id} {item.time} {item.title}: {item.summary}"
            sources = item.record_ids
        case _:
            yield from (f"{indent}{line}" for line in (f"{PROFILE_ID} {bank.profile.time}", *bank.profile.text.splitlines()))
            sources = bank.profile.source_ids
    for source_id in sources:
        yield from _describe_item(bank, source_id, depth + 1)


def _describe_record(bank: MemoryBank, record: Record) -> Iterator[str]:
    """The record, and what it was before each of its revisions."""
    yield f"{record.record_id} {record.time} {record.type}: {record.text}"
    for revision in reversed(bank.history(record.record_id)[:-1]):
        yield f"  before: {revision.record.time} {revision.record.type}: {revision.record.text}"


def _describe_diff(diff: BankDiff) -> Iterator[str]:
    yield f"{diff.old.version} ({diff.old.time}) to {diff.new.version} ({diff.new.time})"
    yield f"{len(diff.messages)} messages added"
    yield from (f"+ {message.message_id} {message.time} {_flatten(message.speaker)}: {_flatten(message.text)}" for message in diff.messages)
    yield f"{len(diff.records)} changes of records"
    for change in diff.records:
        yield from _describe_change(change)
    yield f"{len(diff.files)} files changed"
    for lines in diff.files.values():
        yield from lines


def _describe_change(change: RecordChange) -> Iterator[str]:
    record, operation = change.revision.record, change.revision.operation
    verb = {RecordOperation.STORE: "stored", RecordOperation.UPDATE: "updated", RecordOperation.MERGE: f"merged with {', '.join(change.revision.merged_ids)}"}
    yield f"{record.record_id} {verb[operation]}, from {', '.join(record.source_ids)}"
    for before in (change.before, *change.merged):
        if before is not None:
            yield f"- {before.record_id} {before.time} {before.type}: {_flatten(before.text)}"
    yield f"+ {record.record_id} {record.time} {record.type}: {_flatten(record.text)}"


def _flatten(text: str) -> str:
    """A text on one line, without what a terminal would take for a command."""
    return "".join(char if char.isprintable() else " " for char in text)
