"""A process that dies by itself at a chosen change of a file."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence

from napmem_rl import atomic

POINTS = ("pwrite", "fsync", "replace", "rename", "ftruncate")  # of the module os: everything that changes a file a bank is made of
REMOVALS = ("unlink", "rmdir")


def run_in_child(action: Callable[[], None]) -> int:
    """Run something in a process of its own; returns how it ended, as `os.waitpid` tells it."""
    child = os.fork()
    if child == 0:
        try:
            action()
            os._exit(0)
        except BaseException as error:
            print(f"child: {error!r}", flush=True)
            os._exit(1)
    return os.waitpid(child, 0)[1]


def kill_at(point: int, moment: str, points: Sequence[str] = POINTS) -> None:
    """From now on, die at the n-th change of a file: before it, after it, or with half of it written."""
    count = 0

    def arm(module: object, name: str) -> None:
        real = getattr(module, name)

        def armed(*args, **options):
            nonlocal count
            count += 1
            if count < point:
                return real(*args, **options)
            if moment == "half" and name == "pwrite":
                real(args[0], bytes(args[1])[: len(args[1]) // 2], args[2])
            elif moment == "after":
                real(*args, **options)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(module, name, armed)

    for name in points:
        arm(os, name)
    arm(atomic, "_exchange")
