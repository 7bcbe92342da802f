"""The versions of a bank: which there are, what changed between two of them, and an older one as a bank of its own.

No version of a bank is ever dropped but for what the bank is made to forget (`forgetting`): there is no going back in place. `checkout_version` writes the
older version elsewhere, with the history that led to it; later versions stay where they are.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from napmem_rl.atomic import write_file
from napmem_rl.errors import BankError
from napmem_rl.memory.bank_columns import save_columns
from napmem_rl.memory.bank_lock import BankLock
from napmem_rl.memory.bank_place import build_beside, replace_bank
from napmem_rl.memory.bank_store import CHUNK, Snapshot, StoredBank, load_bank, read_bank_id, read_commits, read_hashed
from napmem_rl.memory.bank_tables import RevisionTable
from napmem_rl.memory.changes import error_of
from napmem_rl.memory.commit_log import Commit, render_commit
from napmem_rl.memory.erasing import finish_erasing
from napmem_rl.memory.forgotten import carry_forgotten, refuse_removed
from napmem_rl.memory.import_state import carry_import_state
from napmem_rl.memory.storage import BANK_FILE, COMMITS_FILE, FILES_DIR, INDEX_DIR, MESSAGES_FILE, RECORDS_FILE, parse_tree
from napmem_rl.schema import Message, Record, RecordRevision


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordChange:
    """One revision of a record, and what was there before: the record itself (None for a new one) and those that it took in."""

    revision: RecordRevision
    before: Record | None
    merged: tuple[Record, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class BankDiff:
    """What a later version of a bank holds beyond an earlier one. `files`: unified diff by file name, of tracks and profile that differ."""

    old: Commit
    new: Commit
    messages: tuple[Message, ...]
    records: tuple[RecordChange, ...]
    files: dict[str, tuple[str, ...]]


def list_versions(path: Path) -> list[Commit]:
    """All versions of a bank, oldest first; one that was made again, or got another state, is there twice.

    Raises:
        BankError: there is no bank, or its list of versions is broken.
    """
    return _list_versions(Path(path))[1]


def diff_versions(path: Path, old: str, new: str) -> BankDiff:
    """What changed from one version of a bank to a later one.

    Raises:
        BankError: the bank is broken, holds no such version, or `old` is the later one.
    """
    path = Path(path)
    before, after = _load(path, old), _load(path, new)
    if before.commit.num_messages > after.commit.num_messages or before.commit.num_revisions > after.commit.num_revisions:
        raise BankError.of(f"bank {path}", f"version {old} is later than {new}", fix="Give the earlier one first.")
    messages = after.snapshot.messages[before.commit.num_messages :]
    records = tuple(_find_record_changes(after.snapshot.revisions, before.commit.num_revisions))
    return BankDiff(old=before.commit, new=after.commit, messages=messages, records=records, files=dict(_diff_files(before, after)))


def checkout_version(path: Path, version: str, out: Path) -> str:
    """Write a version of a bank to a directory of its own, as a bank whose newest version it is, with all versions before it.

    Args:
        path: the bank's directory, which stays as it is.
        version: one of its versions.
        out: new, or empty.

    Returns:
        The version, which is the same there.

    Raises:
        BankError: the bank is broken, holds no such version (any more), or `out` holds something.
    """
    path, out = Path(path), Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BankError.of(f"checkout of bank {path}", f"{out} is not empty", fix="Choose a new directory: what is there is not replaced.")
    bank_id, commits = _list_versions(path)
    stored = _load(path, version)
    kept = commits[: max(index for index, commit in enumerate(commits) if commit.version == version) + 1]
    with build_beside(out) as fresh:
        fresh.mkdir()
        lock = BankLock.acquire(fresh, bank_id)
        try:
            copy_versions(path, fresh, stored.snapshot, kept)
            carry_forgotten(path, fresh)
            save_columns(fresh / INDEX_DIR, stored.snapshot.messages, stored.snapshot.revisions, stored.commit)
            replace_bank(fresh, out, bank_id)
        finally:
            lock.release()
    return version


def _list_versions(path: Path) -> tuple[str, list[Commit]]:
    finish_erasing(path)
    problems: list[str] = []
    bank_id = read_bank_id(path, problems)
    commits = [] if bank_id is None else read_commits(path, bank_id, problems)[0]
    if bank_id is None or problems:
        raise error_of(f"bank {path}", problems, fix="See `napmem bank verify`.")
    return bank_id, commits


def _load(path: Path, version: str) -> StoredBank:
    refuse_removed(path, version)
    problems: list[str] = []
    stored = load_bank(path, problems, version=version)
    if stored is None or problems:
        raise error_of(f"bank {path}", problems, fix="See `napmem bank verify` and `napmem bank log`.")
    return stored


def _find_record_changes(revisions: RevisionTable, start: int) -> Iterator[RecordChange]:
    """The revisions from a position on, each with what it replaced."""
    for position in range(start, len(revisions)):
        revision = revisions.revision(position)
        before = _find_before(revisions, revision.record.record_id, position)
        merged = [_find_before(revisions, merged_id, position) for merged_id in revision.merged_ids]
        yield RecordChange(revision=revision, before=before, merged=tuple(record for record in merged if record is not None))


def _find_before(revisions: RevisionTable, record_id: str, position: int) -> Record | None:
    earlier = [found for found in revisions.positions(record_id) if found < position]
    return revisions.revision(earlier[-1]).record if earlier else None


def _diff_files(before: StoredBank, after: StoredBank) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name in sorted({*before.files, *after.files}):
        old, new = before.files.get(name), after.files.get(name)
        if old != new:
            names = (name if old is not None else "/dev/null", name if new is not None else "/dev/null")
            yield name, tuple(difflib.unified_diff((old or "").splitlines(), (new or "").splitlines(), *names, lineterm=""))


def copy_versions(path: Path, fresh: Path, snapshot: Snapshot, commits: list[Commit]) -> None:
    """Write a bank's first versions into an empty directory; each file is read through its hash.

    Args:
        path: the bank's directory.
        fresh: the new one.
        snapshot: of the last of these versions, or of a later one.
        commits: the first of the bank's; none leaves no more than its head.

    Raises:
        BankError: a file is damaged.
    """
    problems: list[str] = []
    write_file(fresh / BANK_FILE, (path / BANK_FILE).read_bytes(), durable=False)
    ends = (commits[-1].messages.num_bytes, commits[-1].records.num_bytes) if commits else (0, 0)
    for name, table, end in zip((MESSAGES_FILE, RECORDS_FILE), (snapshot.messages, snapshot.revisions), ends, strict=True):
        with (fresh / name).open("wb") as stream:
            for start in range(0, end, CHUNK):
                stream.write(table.log.read(start, min(start + CHUNK, end)))
    names = {f"{commit.tree}.json": None for commit in commits}
    contents = {name: read_hashed(path, name, problems) for name in names}
    for content in list(contents.values()):
        contents |= {f"{content_hash}.md": None for content_hash in (parse_tree(content).values() if content is not None else ())}
    for name, content in contents.items():
        content = content if content is not None else read_hashed(path, name, problems)
        if content is not None:
            write_file(fresh / FILES_DIR / name, content, durable=False)
    if problems:
        raise error_of(f"bank {path}", problems, fix="Nothing was written.")
    (fresh / COMMITS_FILE).write_bytes(b"".join(map(render_commit, commits)))
    carry_import_state(path, fresh)
