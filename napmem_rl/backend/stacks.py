"""Python stacks of every process of a job, also of those that hang in C code: what a watchdog shows before it gives a job up.

Each process of a job opens a file of its own in a directory of its node and lets `faulthandler` write all its threads there on SIGUSR2. The handler runs in C,
so it answers while the interpreter is stuck in a collective. Needs no permission to trace other processes. Stdlib only.
"""

from __future__ import annotations

import faulthandler
import os
import re
import shutil
import signal
import tempfile
import time
from pathlib import Path

DIRECTORY_VARIABLE = "NAPMEM_STACKS_DIR"  # set in the environment of all processes of a job; the same path on each node, local to it
SIGNAL = signal.SIGUSR2
SETTLE_S = 2.0
PREFIX = "napmem_rl-stacks-"
KEEP_S = 3600.0
_armed: list[object] = []  # keeps the file open


def arm_stacks() -> None:
    """Let this process answer `SIGNAL` with its stacks. Does nothing outside a job, or a second time."""
    directory = os.environ.get(DIRECTORY_VARIABLE)
    if not directory or _armed:
        return
    Path(directory).mkdir(parents=True, exist_ok=True)
    file = (Path(directory) / f"{os.getpid()}.txt").open("w")
    faulthandler.register(SIGNAL, file=file, all_threads=True)
    _armed.append(file)
    remove_old_stacks(Path(directory))


def name_directory(job_name: str) -> str:
    """Where processes of a job leave their stacks, on each node."""
    return f"{tempfile.gettempdir()}/{PREFIX}{job_name}"


def remove_old_stacks(own: Path) -> None:
    """Remove what earlier jobs left on this node: a driver removes the directory of its own node alone, and none where it was killed.

    Args:
        own: directory of this job, which stays, as do those that are younger than `KEEP_S` or have a living process.
    """
    for path in own.parent.glob(f"{PREFIX}*"):
        try:
            is_old = path != own and time.time() - path.stat().st_mtime > KEEP_S
            if is_old and not any(_catches(int(file.stem)) for file in path.glob("*.txt")):
                shutil.rmtree(path, ignore_errors=True)
        except (OSError, ValueError):
            continue  # another process removes it too, or it is none of ours


def collect_stacks(directory: str) -> dict[str, str]:
    """Ask every living process of the job on this node for its stacks.

    Args:
        directory: value of `DIRECTORY_VARIABLE`.

    Returns:
        stacks by "<pid> <name of the process>".
    """
    asked = {pid: path for path in Path(directory).glob("*.txt") if (pid := int(path.stem)) != os.getpid() and _catches(pid)}
    for pid in asked:
        os.kill(pid, SIGNAL)
    time.sleep(SETTLE_S)
    return {f"{pid} {_process_name(pid)}": path.read_text(errors="replace") for pid, path in asked.items()}


def _catches(pid: int) -> bool:
    """True where the process lives and has a handler for `SIGNAL`: without one the signal would end it, and pids are used again."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        files = {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()}
    except OSError:
        return False
    caught = int(re.search(r"^SigCgt:\s*([0-9a-f]+)", status, re.MULTILINE)[1], 16)
    return bool(caught >> (SIGNAL - 1) & 1) and any(name.endswith(f"/{pid}.txt") for name in files)


def _process_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()[:120]
    except OSError:
        return "(ended)"
