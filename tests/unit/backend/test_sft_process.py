"""The supervised trainer runs in processes of its own, which end with us."""

import os
import signal
import sys
from pathlib import Path

import pytest

from napmem_rl.backend.child_process import run_to_the_end


def test_the_exit_code_is_the_commands_own():
    assert run_to_the_end([sys.executable, "-c", "import os, sys; sys.exit(int(os.environ['CODE']))"], environment={**os.environ, "CODE": "3"}) == 3


def test_a_command_is_told_to_end_where_we_are_interrupted(tmp_path: Path):
    pid_file = tmp_path / "pid"
    code = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"

    def interrupt(number: int, frame: object) -> None:
        if pid_file.exists() and pid_file.read_text():
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_to_the_end([sys.executable, "-c", code])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
