"""One writer of a bank at a time: a lock on a file of the bank's directory."""

from __future__ import annotations

from pathlib import Path

from napmem_rl.errors import BankError
from napmem_rl.file_lock import FileLock
from napmem_rl.memory.storage import LOCK_FILE


class BankLock(FileLock):
    """Held from `acquire` to `release`."""

    @classmethod
    def acquire(cls, path: Path, bank_id: str) -> FileLock:
        """Take the lock of a bank's directory.

        Raises:
            BankError: another writer holds it (the message names its process and machine), or the file system knows no locks.
        """
        return cls.acquire_file(path / LOCK_FILE, f"bank {bank_id} in {path}", BankError)
