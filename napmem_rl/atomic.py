"""Files and directories that are all there or not at all: written beside their place, synced, then renamed.

Stdlib only, and the one place in the project where this is done.
"""

from __future__ import annotations

import ctypes
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_RENAME_EXCHANGE = 2  # linux/fs.h
_AT_FDCWD = -100  # fcntl.h


@contextmanager
def open_replacement(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """A binary file to write; it takes the place of `path` where the block ends without an exception, and is removed otherwise.

    Missing directories are made. A reader sees the old content or the whole new one; the last of several writers wins. With `durable` that holds after a
    power cut too.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.parent / f".{path.name}.{uuid.uuid4().hex}.tmp"
    try:
        with fresh.open("xb") as stream:
            yield stream
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


def write_file(path: Path, content: bytes | str, *, durable: bool = True) -> None:
    """Write one file as a whole; text becomes UTF-8. See `open_replacement`."""
    with open_replacement(path, durable=durable) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


def swap_directories(fresh: Path, path: Path) -> None:
    """Put `fresh` in the place of `path`; after it, `fresh` is the old directory, if there was one. For the caller to remove.

    On Linux this is one system call; elsewhere two renames, the first of which is undone if the second fails.

    Raises:
        OSError: nothing was changed at `path`.
    """
    if not path.exists():
        os.rename(fresh, path)
        return
    if _exchange(fresh, path):
        return
    old = path.parent / f".{path.name}.old-{uuid.uuid4().hex}"
    os.rename(path, old)
    try:
        os.rename(fresh, path)
    except OSError:
        os.rename(old, path)
        raise
    os.rename(old, fresh)


def sync_path(path: Path) -> None:
    """Make the content of a file, or renames within a directory, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exchange(first: Path, second: Path) -> bool:
    """Swap two directories in one step; False where the system cannot (renameat2, Linux)."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    return renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), ctypes.c_uint(_RENAME_EXCHANGE)) == 0
