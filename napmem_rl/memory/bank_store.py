"""Reading a bank's directory: one version of it, checked, as a snapshot that later commits do not touch."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from napmem_rl.errors import BankError
from napmem_rl.memory.bank_columns import Covered, load_columns, read_covered, save_columns
from napmem_rl.memory.bank_tables import MAX_NAMES, FileLines, Lines, LiveRecords, MemoryLines, MessageTable, RevisionTable
from napmem_rl.memory.changes import Changes, find_change_problems
from napmem_rl.memory.commit_log import EMPTY_CHAIN, Commit, LogEnd, compute_version, extend_chain, parse_commit, split_commits
from napmem_rl.memory.erasing import finish_erasing
from napmem_rl.memory.pyramid import PROFILE_FILE, Ledger, check_message, check_profile, check_revision, check_tracks
from napmem_rl.memory.storage import (
    BANK_FILE,
    COMMITS_FILE,
    EMPTY_PROFILE,
    FILES_DIR,
    FORMAT,
    INDEX_DIR,
    MESSAGES_FILE,
    OLD_HEAD,
    RECORDS_FILE,
    hash_content,
    parse_message,
    parse_profile,
    parse_revision,
    parse_track,
    parse_tree,
    render_profile,
    render_track,
    render_tree,
)
from napmem_rl.schema import Message, Profile, Record, Track

HELD_BYTES = 1 << 20  # a log up to this size is held in memory, a larger one is read where it is asked for
BATCH = 4096  # lines that are parsed at a time
CHUNK = 1 << 20  # bytes that are hashed at a time
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """All levels of one version. Itself a `Known`: what further changes are checked against."""

    messages: MessageTable
    revisions: RevisionTable
    tracks: tuple[Track, ...] = ()  # by file name
    profile: Profile = EMPTY_PROFILE

    @property
    def records(self) -> LiveRecords:
        """The live records, in order of first appearance."""
        return LiveRecords(self.revisions)

    def message(self, message_id: str) -> Message | None:
        """The message of this id, or None."""
        position = self.messages.position(message_id)
        return None if position is None else self.messages[position]

    def record(self, record_id: str) -> Record | None:
        """The live record of this id, or None."""
        position = self.revisions.live_position(record_id)
        return None if position is None else self.revisions.revision(position).record

    def source(self, message_id: str) -> tuple[str, str] | None:
        """See `Known`."""
        return self.messages.source(message_id)

    def record_time(self, record_id: str) -> str | None:
        """See `Known`."""
        return self.revisions.record_time(record_id)

    def record_sources(self, record_id: str) -> tuple[str, ...]:
        """See `Known`."""
        return self.revisions.record_sources(record_id)

    def is_record_taken(self, record_id: str) -> bool:
        """See `Known`."""
        return self.revisions.is_record_taken(record_id)

    def prepare(self) -> None:
        """Do now what the first commit would wait for."""
        self.messages.prepare()
        self.revisions.prepare()

    def find_problems(self, changes: Changes) -> list[str]:
        """Why these changes cannot be added; empty where they can."""
        problems = find_change_problems(changes, self, self.tracks, self.profile)
        new = {message.speaker for message in changes.messages if isinstance(message.speaker, str)}.difference(self.messages.speaker_names)
        if len(self.messages.speaker_names) + len(new) > MAX_NAMES:
            problems.append(f"more than {MAX_NAMES} speakers, which is the most that a bank holds")
        return problems

    def render_files(self) -> dict[str, bytes]:
        """The Markdown files by name: one for each track, and the profile's."""
        return {track.file_name: render_track(track) for track in self.tracks} | {PROFILE_FILE: render_profile(self.profile)}

    def render_again(self, before: Snapshot, files: Mapping[str, bytes]) -> dict[str, bytes]:
        """The same where the files of an earlier snapshot are known: what did not change is not rendered again."""
        old = {track.file_name: track for track in before.tracks}
        fresh = {track.file_name: files[track.file_name] if track == old.get(track.file_name) else render_track(track) for track in self.tracks}
        return fresh | {PROFILE_FILE: files[PROFILE_FILE] if self.profile == before.profile else render_profile(self.profile)}

    def over(self, messages: MessageTable, revisions: RevisionTable) -> Snapshot:
        """The same tracks and profile over these tables."""
        return replace(self, messages=messages, revisions=revisions)

    def with_levels(self, changes: Changes) -> Snapshot:
        """The snapshot with the tracks and the profile of these changes."""
        tracks = self.tracks if changes.tracks is None else tuple(sorted(changes.tracks, key=lambda track: track.file_name))
        return replace(self, tracks=tracks, profile=self.profile if changes.profile is None else changes.profile)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredBank:
    """A version of a bank as it was read. `files` are the Markdown texts by file name."""

    bank_id: str
    commit: Commit
    snapshot: Snapshot
    files: Mapping[str, str]


def load_bank(path: Path, problems: list[str], *, version: str | None = None, verify: bool = True) -> StoredBank | None:
    """Read one version of a bank, adding every problem to `problems`, in words; None where there is too little to go on.

    A directory that another one takes the place of in the meantime is read again.

    Args:
        path: the bank's directory.
        problems: what is wrong with the version and with all before it.
        version: None for the newest.
        verify: hash both logs, whose lines are otherwise taken to be as they were when the columns in index/ were written.
    """
    finish_erasing(path)
    for _ in range(5):
        before, found = _identity(path), []
        stored = _load_bank(path, found, version, verify)
        if _identity(path) == before:
            break
    problems += found
    return stored


def compute_stored_version(path: Path) -> str:
    """Content version of a bank by the bytes that are there. Hashes alone: links are not looked at.

    Raises:
        BankError: there is too little to go on.
        OSError: a file cannot be read.
    """
    problems: list[str] = []
    bank_id = read_bank_id(path, problems)
    head = None if bank_id is None else find_commit(read_commits(path, bank_id, problems)[0], None, problems)
    if bank_id is None or head is None:
        raise BankError("; ".join(problems))
    chains = []
    for name, end in ((MESSAGES_FILE, head.messages), (RECORDS_FILE, head.records)):
        chain, log = EMPTY_CHAIN, FileLines(path / name)
        for lines in iterate_lines(log, 0, end.num_bytes):
            chain = extend_chain(chain, lines)
        chains.append(chain)
    tree = parse_tree((path / FILES_DIR / f"{head.tree}.json").read_bytes())
    hashes = {name: hash_content((path / FILES_DIR / f"{content_hash}.md").read_bytes()) for name, content_hash in tree.items()}
    return compute_version(bank_id, chains[0], chains[1], hash_content(render_tree(hashes)))


def read_bank_id(path: Path, problems: list[str]) -> str | None:
    """The id in bank.json; None with the problem noted."""
    if not path.is_dir():
        problems.append("there is no such directory")
        return None
    try:
        head = json.loads((path / BANK_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        is_old = (path / OLD_HEAD).is_file()
        problems.append(f"is of format 1; this release reads format {FORMAT}: build it again" if is_old else f"is no bank: it holds no {BANK_FILE}")
        return None
    except (OSError, ValueError) as error:
        problems.append(f"{BANK_FILE}: cannot be read ({error})")
        return None
    if not isinstance(head, dict) or not isinstance(head.get("bank_id"), str):
        problems.append(f"{BANK_FILE}: is not a bank's head; it needs bank_id and format")
    elif head.get("format") != FORMAT:
        problems.append(f"{BANK_FILE}: format {head.get('format')!r}; this release reads format {FORMAT}: build the bank again")
    else:
        return head["bank_id"]
    return None


def read_commits(path: Path, bank_id: str, problems: list[str]) -> tuple[list[Commit], int]:
    """All commits, first to last, and how many bytes they take; each one's checksum, parent and version are checked."""
    try:
        content = (path / COMMITS_FILE).read_bytes()
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        problems.append(f"{COMMITS_FILE}: cannot be read ({error.strerror})")
        return [], 0
    lines, num_bytes = split_commits(content, problems)
    commits: list[Commit] = []
    for number, line in enumerate(lines, start=1):
        commit = attempt(problems, f"{COMMITS_FILE} line {number}", parse_commit, line)
        if commit is not None:
            problems += [f"{COMMITS_FILE} line {number}: {problem}" for problem in _check_commit(commit, commits[-1] if commits else None, bank_id)]
            commits.append(commit)
    return commits, num_bytes


def attempt(problems: list[str], what: str, parse: Callable[..., T], *args: Any) -> T | None:
    """What a parser gives, or None with the problem noted."""
    try:
        return parse(*args)
    except BankError as error:
        problems.append(f"{what}: {error.message}")
        return None


def read_levels(path: Path, tree_hash: str, problems: list[str]) -> tuple[tuple[Track, ...], Profile, dict[str, str]]:
    """(tracks, profile, Markdown texts by file name) of a tree."""
    content = read_hashed(path, f"{tree_hash}.json", problems)
    tree = None if content is None else attempt(problems, f"{FILES_DIR}/{tree_hash}.json", parse_tree, content)
    tracks, profile, texts = [], EMPTY_PROFILE, {}
    for name, content_hash in (tree or {}).items():
        what = f"{FILES_DIR}/{content_hash}.md ({name})"
        content = read_hashed(path, f"{content_hash}.md", problems, f" ({name})")
        text = None if content is None else attempt(problems, what, decode_text, content)
        if text is None:
            continue
        texts[name] = text
        if name == PROFILE_FILE:
            profile = attempt(problems, what, parse_profile, text) or EMPTY_PROFILE
        elif (track := attempt(problems, what, parse_track, name, text)) is not None:
            tracks.append(track)
    return tuple(tracks), profile, texts


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _load_bank(path: Path, problems: list[str], version: str | None, verify: bool) -> StoredBank | None:
    bank_id = read_bank_id(path, problems)
    if bank_id is None:
        return None
    covered = read_covered(path / INDEX_DIR)
    commits, _ = read_commits(path, bank_id, problems)
    head = find_commit(commits, version, problems)
    if head is None:
        return None
    snapshot = load_tables(path, commits, head, covered, problems, verify=verify)
    tracks, profile, files = read_levels(path, head.tree, problems)
    snapshot = replace(snapshot, tracks=tracks, profile=profile)
    if not problems:
        problems += [*check_tracks(tracks, snapshot), *check_profile(profile, tracks, snapshot)]
    return StoredBank(bank_id=bank_id, commit=head, snapshot=snapshot, files=files)


def find_commit(commits: Sequence[Commit], version: str | None, problems: list[str]) -> Commit | None:
    """The newest commit, or the last of a version; None with the problem noted where there is none."""
    if not commits:
        problems.append("holds no version: nothing was committed yet" if not problems else f"{COMMITS_FILE}: holds no version that can be read")
        return None
    found = next((commit for commit in reversed(commits) if version in (None, commit.version)), None)
    if found is None:
        problems.append(f"holds no version {version}; its newest of {len(commits)} is {commits[-1].version}")
    return found


def load_tables(
    path: Path,
    commits: Sequence[Commit],
    head: Commit | None,
    covered: Covered | None,
    problems: list[str],
    *,
    verify: bool = True,
    held_bytes: int = HELD_BYTES,
) -> Snapshot:
    """Messages and revisions up to one of these commits: from the columns in index/ as far as they go, every line after them parsed and checked.

    Args:
        path: the bank's directory.
        commits: all of the bank's.
        head: the commit to stop at; None for none.
        covered: what `read_covered` gave before the commits were read.
        problems: takes what is wrong, in words.
        verify: hash both logs.
        held_bytes: a log up to this size is read into memory.
    """
    ends = (LogEnd(), LogEnd()) if head is None else (head.messages, head.records)
    logs = [open_log(path / name, end.num_bytes, held_bytes, problems) for name, end in zip((MESSAGES_FILE, RECORDS_FILE), ends, strict=True)]
    messages = MessageTable.empty(logs[0], {commit.num_messages: commit.messages.chain.hex() for commit in commits})
    revisions = RevisionTable.empty(logs[1], {commit.num_revisions: commit.records.chain.hex() for commit in commits})
    if problems or head is None:
        return Snapshot(messages=messages, revisions=revisions)
    columns = load_columns(path / INDEX_DIR, covered, commits)
    if columns is not None:
        messages, revisions = columns.fill(messages, revisions, head)
    snapshot = Snapshot(messages=messages, revisions=revisions)
    for name, end in zip((MESSAGES_FILE, RECORDS_FILE), ends, strict=True):
        snapshot = _fill(snapshot, name, end, problems, verify=verify)
    for name, table, wanted in ((MESSAGES_FILE, snapshot.messages, head.num_messages), (RECORDS_FILE, snapshot.revisions, head.num_revisions)):
        if not problems and len(table) != wanted:
            problems.append(f"{name}: holds {len(table)} lines, {COMMITS_FILE} says {wanted}")
    if not problems and columns is None and head is commits[-1]:
        save_columns(path / INDEX_DIR, snapshot.messages, snapshot.revisions, head, seen=covered)
    return snapshot


def _fill(snapshot: Snapshot, name: str, end: LogEnd, problems: list[str], *, verify: bool) -> Snapshot:
    """The snapshot with all lines of one log."""
    table = snapshot.messages if name == MESSAGES_FILE else snapshot.revisions
    chain, number = EMPTY_CHAIN, len(table) + 1
    if verify:
        for lines in iterate_lines(table.log, 0, table.num_bytes):
            chain = extend_chain(chain, lines)
    for lines in iterate_lines(table.log, table.num_bytes, end.num_bytes):
        chain = extend_chain(chain, lines)
        items = _check_lines(snapshot, name, number, lines, problems)
        number += len(lines)
        if not problems:
            snapshot = append_items(snapshot, name, items, lines)
    if verify and chain != end.chain:
        problems.append(f"{name}: its content is not what {COMMITS_FILE} says (hash differs)")
    return snapshot


def find_damage(name: str, log: Lines, rows: np.ndarray | None, first: int, last: int, version: str) -> Iterator[str]:
    """Which of the lines from `first` to `last`, which a version brought and whose hash differs, were changed. `rows`: their columns, where they are there."""
    found = [] if rows is None else [index for index, row in enumerate(rows) if zlib.crc32(log.read(int(row["start"]), int(row["stop"]))) != row["crc"]]
    for index in found:
        yield f"{name} line {first + index}: was changed after version {version} brought it (hash differs)"
    if not found:
        where = f"line {first}" if first == last else f"lines {first} to {last}"
        yield f"{name} {where}: not what version {version} brought (hash differs)"


def _check_lines(snapshot: Snapshot, name: str, number: int, lines: Sequence[bytes], problems: list[str]) -> list[Any]:
    """The items of some lines; `number` is the first one's. Adds what is wrong with them to `problems`."""
    items, ledger = [], Ledger(snapshot)
    parse, check = (parse_message, check_message) if name == MESSAGES_FILE else (parse_revision, check_revision)
    add = ledger.add_message if name == MESSAGES_FILE else ledger.add_revision
    for index, line in enumerate(lines, start=number):
        item = attempt(problems, f"{name} line {index}", parse, line)
        if item is not None:
            problems += [f"{name} line {index}: {problem}" for problem in check(item, ledger)]
            add(item)
            items.append(item)
    return items


def append_items(snapshot: Snapshot, name: str, items: Sequence[Any], lines: Sequence[bytes]) -> Snapshot:
    """The snapshot with more messages or revisions, by the name of the log."""
    if not items:
        return snapshot
    if name == MESSAGES_FILE:
        return replace(snapshot, messages=snapshot.messages.appended(items, lines))
    return replace(snapshot, revisions=snapshot.revisions.appended(items, lines))


def iterate_lines(log: Lines, start: int, end: int) -> Iterator[list[bytes]]:
    """The lines of the bytes [start, end) of a log, without their ends, some at a time. What follows the last line end is a line too."""
    rest = b""
    while start < end:
        stop = min(start + CHUNK, end)
        lines = (rest + log.read(start, stop)).split(b"\n")
        rest, start = lines.pop(), stop
        for first in range(0, len(lines), BATCH):
            yield lines[first : first + BATCH]
    if rest:
        yield [rest]


def open_log(path: Path, num_bytes: int, held_bytes: int, problems: list[str]) -> Lines:
    """A log's committed bytes."""
    try:
        if path.stat().st_size < num_bytes:
            problems.append(f"{path.name}: is cut off: it holds {path.stat().st_size} bytes, {COMMITS_FILE} says {num_bytes}")
            return MemoryLines(b"")
        if num_bytes > held_bytes:
            return FileLines(path)
        with path.open("rb") as stream:
            return MemoryLines(stream.read(num_bytes))
    except FileNotFoundError:
        if num_bytes:
            problems.append(f"{path.name}: is missing")
    except OSError as error:
        problems.append(f"{path.name}: cannot be read ({error.strerror})")
    return MemoryLines(b"")


def _check_commit(commit: Commit, before: Commit | None, bank_id: str) -> Iterator[str]:
    if commit.parent != (None if before is None else before.version):
        yield f"its parent is {commit.parent}, the version before it {None if before is None else before.version}"
    if compute_version(bank_id, commit.messages.chain, commit.records.chain, commit.tree) != commit.version:
        yield f"version {commit.version} does not follow from bank id {bank_id!r} and the content"
    if before is not None and (commit.messages.num_bytes < before.messages.num_bytes or commit.records.num_bytes < before.records.num_bytes):
        yield "its logs are shorter than those of the version before it"


def read_hashed(path: Path, name: str, problems: list[str], label: str = "") -> bytes | None:
    """A file of files/, which must hold what it is named by."""
    try:
        content = (path / FILES_DIR / name).read_bytes()
    except OSError as error:
        problems.append(f"{FILES_DIR}/{name}{label}: cannot be read ({error.strerror})")
        return None
    if hash_content(content) != name.partition(".")[0]:
        problems.append(f"{FILES_DIR}/{name}{label}: its content is not what its name says (hash differs)")
    return content


def decode_text(content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BankError(f"is not UTF-8 ({error})") from error
