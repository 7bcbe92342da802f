"""A command run to its end as a child of this process: where this process is interrupted, the child is told to end, so that it can end what it started."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import IO

END_TIMEOUT_S = 60.0  # for a job to save and stop, for torchrun to end its workers


def run_to_the_end(command: Sequence[str], *, environment: Mapping[str, str] | None = None, output: IO[bytes] | None = None) -> int:
    """Exit code of a command.

    Args:
        command: program and arguments.
        environment: of the child, whole; None is this process's.
        output: takes both its streams; None leaves them to this process's.
    """
    streams = {} if output is None else {"stdout": output, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(command, env=None if environment is None else dict(environment), **streams)
    try:
        return process.wait()
    finally:
        if process.poll() is None:
            end_process(process)


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Ask a child to save and stop; end it by force where it takes too long."""
    process.terminate()
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
