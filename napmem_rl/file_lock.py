"""One process at a time: a lock of the operating system on a file. It ends with its process, however that ends."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from pathlib import Path

from napmem_rl.errors import NapMemError


class FileLock:
    """Held from `acquire` to `release`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire_file(cls, path: Path, what: str, error_class: type[NapMemError]) -> FileLock:
        """Take the lock of a file, which is made where it is not there.

        Args:
            path: the file, used for nothing else; its directory exists.
            what: what is locked, for errors.
            error_class: of the errors.

        Raises:
            error_class: another process holds it (the message names it and its machine), or the file system knows no locks.
        """
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = _read_holder(descriptor)
                os.close(descriptor)
                raise error_class.of(what, f"is being written by {holder}", fix="Wait until it has ended, or end it.") from error
            except OSError as error:
                os.close(descriptor)
                raise error_class.of(what, f"cannot be locked ({error.strerror})", fix="Choose a file system with locks.") from error
            if _is_at(descriptor, path):  # not one whose directory was replaced between opening and locking
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
