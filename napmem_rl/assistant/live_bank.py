"""A bank that is served for long: one user's, fixed at the start, read again where it has changed on disk.

Reading again is not for news alone: what was forgotten on disk must not be told from an old snapshot.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from napmem_rl.errors import BankError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.storage import BANK_FILE, COMMITS_FILE

_Stamp = tuple[tuple[int, int, int, int], ...]


def resolve_bank(path: Path) -> Path:
    """The real directory of a bank. A link to a bank is followed once, here; a link inside of a bank could show another user's files and is refused.

    Raises:
        BankError: nothing there, no bank, or a bank with a link in it.
    """
    try:
        root = Path(path).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise BankError.of(f"bank {path}", "cannot be found", got=str(error)) from error
    if not (root / BANK_FILE).is_file():
        fix = "Name one bank's directory; `napmem import` and launch/build_memory.py make them."
        raise BankError.of(f"bank {path}", f"is no memory bank: it holds no {BANK_FILE}", fix=fix)
    for directory, names, files in os.walk(root):
        for name in (*names, *files):
            if os.path.islink(entry := os.path.join(directory, name)):
                fix = "A bank is a directory of plain files. Copy the bank instead of linking to its parts."
                raise BankError.of(f"bank {path}", "holds a symbolic link, which could lead to another user's files", got=os.path.relpath(entry, root), fix=fix)
    return root


class LiveBank:
    """The newest version of one bank. For one event loop.

    Attributes: `path` (resolved when it was made), `bank_id`.
    """

    def __init__(self, path: Path, *, open_bank: Callable[[Path], MemoryBank] = MemoryBank.open) -> None:
        """Args:
            path: of the bank.
            open_bank: opens it, with an encoder or a ranking where one is wanted.

        Raises:
            BankError: see `resolve_bank`, or the bank is broken.
        """
        self.path = resolve_bank(path)
        self._open = open_bank
        self._stamp = _stamp(self.path)
        self._bank = open_bank(self.path)
        self.bank_id = self._bank.bank_id
        self._lock = asyncio.Lock()

    async def current(self) -> MemoryBank:
        """The bank as it is on disk now.

        Raises:
            BankError: it is gone, broken, or another user's by now. The next call tries again.
        """
        async with self._lock:
            stamp = await asyncio.to_thread(_stamp, self.path)
            if stamp != self._stamp:
                self._bank = await asyncio.to_thread(self._read)
                self._stamp = stamp
            return self._bank

    def _read(self) -> MemoryBank:
        bank = self._open(resolve_bank(self.path))
        if bank.bank_id != self.bank_id:
            raise BankError.of(f"bank {self.path}", "is another user's by now", got=bank.bank_id, expected=self.bank_id, fix="Start the server again.")
        return bank


def _stamp(path: Path) -> _Stamp:
    """What changes with every version, and with another bank in the same place."""
    try:
        stats = [os.lstat(path / name) for name in (BANK_FILE, COMMITS_FILE)]
    except OSError as error:
        raise BankError.of(f"bank {path}", "cannot be read any more", got=str(error)) from error
    return tuple((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats)
