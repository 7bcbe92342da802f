"""The one writer of a bank: commits that are there as a whole or not at all.

A commit appends to the two logs, puts new Markdown files in place, and last of all appends its own line to commits.jsonl: with that line's end the version
exists. Whatever a commit leaves before it ends (a process that is killed, a full disk) belongs to no version: readers do not look at it, and the next writer
cuts it off.
"""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from napmem_rl.atomic import sync_path, write_file
from napmem_rl.errors import BankError
from napmem_rl.memory.bank_columns import read_covered, save_columns
from napmem_rl.memory.bank_lock import BankLock
from napmem_rl.memory.bank_store import Snapshot, append_items, load_tables, read_bank_id, read_commits, read_levels
from napmem_rl.memory.changes import Changes, error_of
from napmem_rl.memory.commit_log import Commit, LogEnd, compute_version, extend_chain, render_commit
from napmem_rl.memory.erasing import finish_erasing
from napmem_rl.memory.pyramid import check_profile, check_tracks
from napmem_rl.memory.storage import (
    BANK_FILE,
    COMMITS_FILE,
    FILES_DIR,
    FORMAT,
    INDEX_DIR,
    LOCK_FILE,
    MESSAGES_FILE,
    OLD_HEAD,
    RECORDS_FILE,
    TEMPORARY,
    dump_json,
    hash_content,
    render_message,
    render_revision,
    render_tree,
)
from napmem_rl.schema import Message, Profile, Record, RecordOperation, Track

MIN_UNINDEXED = 256  # lines that the columns on disk may lack, and the share of all lines: whoever opens the bank parses them
UNINDEXED_SHARE = 64


class BankWriter:
    """Writes one bank, from `open` to `close` (or within a `with` block). Its attributes are those of the newest version; what they gave stays as it was.

    Attributes: `path`, `bank_id`, `writer`.
    """

    def __init__(self, path: Path, bank_id: str, writer: str, *, durable: bool) -> None:
        """For `open`, which holds the lock that `close` gives back."""
        self.path = path
        self.bank_id = bank_id
        self.writer = writer
        self._durable = durable
        self._failure: BaseException | None = None
        self._descriptors: list[int] = []
        self._lock = BankLock.acquire(path, bank_id)
        try:
            finish_erasing(path)
            _write_head(path, bank_id, durable=durable)
            for name in (MESSAGES_FILE, RECORDS_FILE, COMMITS_FILE):
                self._descriptors.append(os.open(path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
            self._snapshot, self._commit, self._num_commit_bytes = _load(path, bank_id)
            self._files = self._snapshot.render_files()
            self._num_indexed = self._num_lines  # to a few, see `_advance`
            self._snapshot.prepare()
            self._cut_tails()
        except BaseException as error:
            self._failure = error
            self.close()
            raise

    @classmethod
    def open(cls, path: Path, *, bank_id: str, writer: str, durable: bool = True) -> BankWriter:
        """Open a bank to write, making it where there is none.

        Args:
            path: the bank's directory; its parents are made.
            bank_id: whose memory it is; must be the bank's own where there is one.
            writer: what writes the upper levels from now on, e.g. "rules".
            durable: whether a commit that has returned survives a power cut. Without it a commit is faster and still whole after a killed process.

        Raises:
            BankError: another writer holds the bank, it is broken or of another user, or `path` holds something else.
        """
        path = Path(path)
        _make_directory(path, bank_id, durable=durable)
        return cls(path, bank_id, writer, durable=durable)

    def __enter__(self) -> BankWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let other writers in. What was committed is there; there is nothing else."""
        if self._descriptors and self._failure is None:
            self.save_columns()
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []
        self._lock.release()

    def save_columns(self) -> None:
        """Leave the columns of all lines in index/, so that whoever opens the bank next need not parse them. Done by itself on `close`, and on the way."""
        if self._commit is not None and self._num_indexed < self._num_lines:
            save_columns(self.path / INDEX_DIR, self._snapshot.messages, self._snapshot.revisions, self._commit)
            self._files = self._snapshot.render_files()
            self._num_indexed = self._num_lines

    @property
    def version(self) -> str | None:
        """The newest version; None before the first commit."""
        return None if self._commit is None else self._commit.version

    @property
    def state(self) -> Mapping[str, Any]:
        """The builder's state of the newest version."""
        return {} if self._commit is None else self._commit.state

    @property
    def messages(self) -> Sequence[Message]:
        """All messages, in the order in which they were committed."""
        return self._snapshot.messages

    @property
    def records(self) -> Sequence[Record]:
        """The live records, in order of first appearance."""
        return self._snapshot.records

    @property
    def tracks(self) -> tuple[Track, ...]:
        """All tracks, by file name."""
        return self._snapshot.tracks

    @property
    def profile(self) -> Profile:
        """The profile; empty before one is committed."""
        return self._snapshot.profile

    @property
    def snapshot(self) -> Snapshot:
        """All levels as they are now."""
        return self._snapshot

    def message(self, message_id: str) -> Message | None:
        """The message of this id, or None."""
        return self._snapshot.message(message_id)

    def record(self, record_id: str) -> Record | None:
        """The live record of this id, or None."""
        return self._snapshot.record(record_id)

    def commit(self, changes: Changes) -> str:
        """Add these changes as one version.

        Returns:
            The new version; the old one where the changes hold nothing new.

        Raises:
            BankError: a link would not hold (all problems are named, nothing was written), the writer is closed, or an earlier commit failed on the way.
            OSError: the disk; the bank on it is as it was, and can be opened again.
        """
        if not self._descriptors or self._failure is not None:
            problem = "is closed" if not self._descriptors else f"had a commit that failed ({self._failure})"
            raise BankError.of(f"writer of bank {self.bank_id}", problem, fix="Open the bank again: it holds every commit that was reported.")
        problems = self._snapshot.find_problems(changes)
        if problems:
            raise error_of(f"bank {self.bank_id}", problems, fix="Nothing was written.")
        files = self._snapshot.with_levels(changes).render_again(self._snapshot, self._files)
        lines = ([render_message(message) for message in changes.messages], [render_revision(revision) for revision in changes.revisions])
        commit = self._plan(changes, lines, files)
        if self._commit is not None and commit.version == self._commit.version and commit.state == self._commit.state:
            return commit.version
        try:
            self._write(commit, lines, files)
            self._advance(commit, changes, lines)
            self._files = files
        except BaseException as error:  # an interrupt too: what is on disk decides, and only opening looks there
            self._failure = error
            raise
        return commit.version

    def _plan(self, changes: Changes, lines: tuple[list[bytes], list[bytes]], files: Mapping[str, bytes]) -> Commit:
        """The commit that these changes make."""
        before = self._commit
        messages, records = (
            LogEnd(num_bytes=end.num_bytes + sum(len(line) + 1 for line in new), chain=extend_chain(end.chain, new))
            for end, new in zip(self._ends, lines, strict=True)
        )
        stored = sum(revision.operation is RecordOperation.STORE for revision in changes.revisions)
        ended = sum(len(revision.merged_ids) for revision in changes.revisions)
        tree = hash_content(render_tree({name: hash_content(content) for name, content in files.items()}))
        return Commit(
            version=compute_version(self.bank_id, messages.chain, records.chain, tree),
            parent=None if before is None else before.version,
            time=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S"),
            writer=self.writer,
            note=changes.note,
            state=json.loads(dump_json(dict(changes.state))),  # as it will be read
            num_messages=len(self.messages) + len(changes.messages),
            num_revisions=len(self._snapshot.revisions) + len(changes.revisions),
            num_records=(0 if before is None else before.num_records) + stored - ended,
            num_tracks=len(files) - 1,
            messages=messages,
            records=records,
            tree=tree,
        )

    @property
    def _num_lines(self) -> int:
        """Of both logs."""
        return len(self._snapshot.messages) + len(self._snapshot.revisions)

    @property
    def _ends(self) -> tuple[LogEnd, LogEnd]:
        return (LogEnd(), LogEnd()) if self._commit is None else (self._commit.messages, self._commit.records)

    def _write(self, commit: Commit, lines: tuple[list[bytes], list[bytes]], files: Mapping[str, bytes]) -> None:
        """Everything of a commit, its line last."""
        for descriptor, end, new in zip(self._descriptors, self._ends, lines, strict=False):
            if new:
                self._append(descriptor, b"\n".join(new) + b"\n", end.num_bytes)
        if self._commit is None or commit.tree != self._commit.tree:
            self._write_files(commit.tree, files)
        line = render_commit(commit)
        self._append(self._descriptors[2], line, self._num_commit_bytes)
        self._num_commit_bytes += len(line)
        if self._durable and commit.parent is None:
            sync_path(self.path)

    def _write_files(self, tree: str, files: Mapping[str, bytes]) -> None:
        """The Markdown files that are not there yet, and the tree over all of them."""
        hashes = {name: hash_content(content) for name, content in files.items()}
        is_first = self._commit is None
        contents = {f"{hashes[name]}.md": content for name, content in files.items() if is_first or content != self._files.get(name)}
        contents[f"{tree}.json"] = render_tree(hashes)
        written = [_write_hashed(self.path / FILES_DIR / name, content, durable=self._durable) for name, content in contents.items()]
        if any(written) and self._durable:
            sync_path(self.path / FILES_DIR)

    def _append(self, descriptor: int, content: bytes, offset: int) -> None:
        """Write at the committed end of a log."""
        view = memoryview(content)
        while view:
            written = os.pwrite(descriptor, view, offset)
            view, offset = view[written:], offset + written
        if self._durable:
            os.fsync(descriptor)

    def _advance(self, commit: Commit, changes: Changes, lines: tuple[list[bytes], list[bytes]]) -> None:
        """Make the written commit the newest one."""
        snapshot = self._snapshot.with_levels(changes)
        snapshot = append_items(snapshot, MESSAGES_FILE, changes.messages, lines[0])
        snapshot = append_items(snapshot, RECORDS_FILE, changes.revisions, lines[1])
        snapshot.messages.add_key(commit.messages.chain)
        snapshot.revisions.add_key(commit.records.chain)
        self._snapshot, self._commit = snapshot, commit
        if self._num_lines - self._num_indexed > max(MIN_UNINDEXED, self._num_lines // UNINDEXED_SHARE):
            self.save_columns()

    def _cut_tails(self) -> None:
        """Remove what belongs to no version: ends of logs, and temporary files of a killed writer."""
        for descriptor, num_bytes in zip(self._descriptors, (*(end.num_bytes for end in self._ends), self._num_commit_bytes), strict=True):
            if os.fstat(descriptor).st_size > num_bytes:
                os.ftruncate(descriptor, num_bytes)
        for path in (*self.path.glob(".*.tmp"), *(self.path / FILES_DIR).glob(".*.tmp")):
            if TEMPORARY.fullmatch(path.name):
                path.unlink(missing_ok=True)


def is_bank_or_empty(path: Path) -> bool:
    """Whether a bank is at `path`, or nothing but what a killed writer may have left."""
    if not path.exists():
        return True
    if (path / BANK_FILE).is_file() or (path / OLD_HEAD).is_file():
        return True
    return path.is_dir() and all(entry.name == LOCK_FILE or TEMPORARY.fullmatch(entry.name) for entry in path.iterdir())


def _make_directory(path: Path, bank_id: str, *, durable: bool) -> None:
    if not is_bank_or_empty(path):
        raise BankError.of(f"bank {bank_id}", f"cannot be written to {path}, which holds something else", fix="Choose an empty or new directory.")
    if not path.exists():
        path.mkdir(parents=True, exist_ok=True)
        if durable:
            sync_path(path.parent)


def _write_head(path: Path, bank_id: str, *, durable: bool) -> None:
    """Write bank.json where there is none, or see that it is this bank's."""
    try:
        content = (dump_json({"bank_id": bank_id, "format": FORMAT}) + "\n").encode()
    except UnicodeEncodeError as error:
        raise BankError.of("bank id", "is not valid Unicode", got=bank_id) from error
    if not (path / BANK_FILE).exists() and not (path / OLD_HEAD).exists():
        write_file(path / BANK_FILE, content, durable=durable)
        if durable:
            sync_path(path)
    problems: list[str] = []
    found = read_bank_id(path, problems)
    if problems:
        raise error_of(f"bank {path}", problems, fix="Nothing was written.")
    if found != bank_id:
        raise BankError.of(f"bank {path}", "is that of another user", got=found, expected=repr(bank_id), fix="Nothing was written.")


def _load(path: Path, bank_id: str) -> tuple[Snapshot, Commit | None, int]:
    """(the newest version, whole and checked; its commit; how many bytes all commits take)."""
    problems: list[str] = []
    covered = read_covered(path / INDEX_DIR)
    commits, num_bytes = read_commits(path, bank_id, problems)
    head = commits[-1] if commits else None
    snapshot = load_tables(path, commits, head, covered, problems, held_bytes=-1)
    if head is not None and not problems:
        tracks, profile, _ = read_levels(path, head.tree, problems)
        snapshot = replace(snapshot, tracks=tracks, profile=profile)
        problems += [*check_tracks(tracks, snapshot), *check_profile(profile, tracks, snapshot)]
    if problems:
        raise error_of(f"bank {path}", problems, fix="See `napmem bank verify`; nothing was written.")
    return snapshot, head, num_bytes


def _write_hashed(path: Path, content: bytes, *, durable: bool) -> bool:
    """Put a file of files/ in place where it is not there as it should be; returns whether it was written."""
    try:
        if path.read_bytes() == content:
            return False
    except FileNotFoundError:
        pass
    write_file(path, content, durable=durable)
    return True
