"""A whole bank that is built beside its place and put there in one step, or not at all."""

from __future__ import annotations

import glob
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from napmem_rl.atomic import swap_directories, sync_path
from napmem_rl.errors import BankError
from napmem_rl.memory.bank_lock import BankLock
from napmem_rl.memory.storage import BANK_FILE, INDEX_DIR, LOCK_FILE


@contextmanager
def build_beside(path: Path) -> Iterator[Path]:
    """A name beside `path` for a directory that is to take its place; what is there at the end of the block is removed, as is what a killed process left.

    Whoever builds holds the lock of the new directory from the first file on, so that what is held is never taken for a leftover.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    fresh = path.parent / f".{path.name}.new-{uuid.uuid4().hex}"
    try:
        yield fresh
    finally:
        shutil.rmtree(fresh, ignore_errors=True)  # after a swap this is the old one


def replace_bank(fresh: Path, path: Path, bank_id: str) -> None:
    """Sync a bank that was built beside its place, and swap it in; after it, `fresh` is what was at `path`, if anything was.

    Raises:
        BankError: another process writes the bank at `path`.
    """
    sync_bank(fresh)
    lock = BankLock.acquire(path, bank_id) if (path / BANK_FILE).exists() else None
    try:
        swap_directories(fresh, path)
        sync_path(path.parent)
    finally:
        if lock is not None:
            lock.release()


def sync_bank(path: Path) -> None:
    """Make a bank that was written without `durable` survive a power cut. Its index is derived, and checked when it is read."""
    for entry in (*path.rglob("*"), path):
        if INDEX_DIR not in entry.relative_to(path).parts and entry.name != LOCK_FILE:
            sync_path(entry)


def _remove_leftovers(path: Path) -> None:
    """Remove directories of builders that were killed: those whose lock nobody holds."""
    for entry in path.parent.glob(f".{glob.escape(path.name)}.new-*"):
        if not re.fullmatch(r"[0-9a-f]{32}", entry.name.rpartition(".new-")[2]):
            continue
        try:
            lock = BankLock.acquire(entry, path.name)
        except (BankError, OSError):
            continue
        shutil.rmtree(entry, ignore_errors=True)
        lock.release()
