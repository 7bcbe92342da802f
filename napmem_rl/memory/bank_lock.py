"""One writer at a time: a lock of the operating system on a file of the bank's directory. It ends with its process, however that ends."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from pathlib import Path

from napmem_rl.errors import BankError
from napmem_rl.memory.storage import LOCK_FILE


class BankLock:
    """Held from `acquire` to `release`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, path: Path, bank_id: str) -> BankLock:
        """Take the lock of a bank's directory.

        Raises:
            BankError: another writer holds it (the message names its process and machine), or the file system knows no locks.
        """
        while True:
            descriptor = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = _read_holder(descriptor)
                os.close(descriptor)
                raise BankError.of(f"bank {bank_id} in {path}", f"is being written by {holder}", fix="Wait until it has ended, or end it.") from error
            except OSError as error:
                os.close(descriptor)
                raise BankError.of(f"bank {bank_id} in {path}", f"cannot be locked ({error.strerror})", fix="Choose a file system with locks.") from error
            if _is_at(descriptor, path / LOCK_FILE):  # not one whose directory was replaced between opening and locking
                break
            os.close(descriptor)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
        return cls(descriptor)

    def release(self) -> None:
        """Give the lock back; twice is once. The file stays: one that is removed could be locked twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _read_holder(descriptor: int) -> str:
    try:
        holder = json.loads(os.pread(descriptor, 1000, 0))
        return f"process {holder['pid']} on {holder['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"  # which has locked it this very moment


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
