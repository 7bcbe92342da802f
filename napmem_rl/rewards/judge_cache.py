"""Verdicts that are given once: in memory in front of the disk, and one request where several ask the same at a time."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from napmem_rl.llm.disk_cache import DiskCache, hash_key
from napmem_rl.rewards.verdict import Verdict

logger = logging.getLogger(__name__)
MAX_HELD = 50_000  # verdicts in memory, about 400 bytes each
_SLOW_READ_S = 0.003  # a mean read above it is that of a network file system, or of a disk that others keep busy
_LONGEST_READ_S = 0.01  # that one read counts for, so that a moment in which others had the processor is no slow disk
_NEW_SHARE = 0.1  # of the newest read in the mean


class VerdictCache:
    """Verdicts by key, on disk for all processes and all later runs. Belongs to one event loop at a time.

    Args:
        directory: of a `DiskCache`.
        max_held: verdicts kept in memory too; those used longest ago leave first.
    """

    def __init__(self, directory: str | Path, *, max_held: int = MAX_HELD) -> None:
        self._disk, self._max_held = DiskCache(directory), max_held
        self._held: OrderedDict[str, Verdict] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._mean_read_s = 0.0  # of late

    async def fetch(self, key: Mapping[str, Any], ask: Callable[[], Awaitable[Verdict]]) -> Verdict:
        """The verdict under a JSON-ready key; `ask` gives one that is new, and is called once however many wait. What it raises is not kept."""
        digest = hash_key(key)
        held = self._take(digest)
        if held is not None:
            return held
        lock = self._locks.setdefault(digest, asyncio.Lock())
        async with lock:
            verdict = self._take(digest) or _read_stored(await self._read(key), digest)
            if verdict is None:
                verdict = await ask()
                await asyncio.to_thread(self._disk.put, key, asdict(verdict))
            self._hold(digest, verdict)
            return verdict

    async def _read(self, key: Mapping[str, Any]) -> Any | None:
        """What the disk holds. A quick read is done on the spot, since the way through a thread costs more than it; a slow disk must not hold up the loop."""
        is_quick = self._mean_read_s < _SLOW_READ_S
        value, seconds = self._time_read(key) if is_quick else await asyncio.to_thread(self._time_read, key)
        self._mean_read_s += (min(seconds, _LONGEST_READ_S) - self._mean_read_s) * _NEW_SHARE
        return value

    def _time_read(self, key: Mapping[str, Any]) -> tuple[Any | None, float]:
        started = time.perf_counter()
        return self._disk.get(key), time.perf_counter() - started

    def _take(self, digest: str) -> Verdict | None:
        if digest in self._held:
            self._held.move_to_end(digest)
        return self._held.get(digest)

    def _hold(self, digest: str, verdict: Verdict) -> None:
        self._held[digest] = verdict
        if len(self._held) > self._max_held:
            self._held.popitem(last=False)


def _read_stored(value: Any, digest: str) -> Verdict | None:
    """What lay on the disk; anything but a verdict counts as absent, and is written anew."""
    if value is None:
        return None
    is_verdict = isinstance(value, dict) and set(value) == {"is_correct", "reason"} and isinstance(value["is_correct"], bool)
    if not (is_verdict and isinstance(value["reason"], str)):
        logger.warning("cache entry %s holds no verdict; it will be replaced", digest)
        return None
    return Verdict(**value)
