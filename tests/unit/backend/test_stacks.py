"""Stacks of a process that hangs where Python cannot answer."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from napmem_rl.backend.stacks import DIRECTORY_VARIABLE, PREFIX, collect_stacks, remove_old_stacks

HANGS_IN_C = """
import threading
from napmem_rl.backend.stacks import arm_stacks
arm_stacks()
print("armed", flush=True)
lock = threading.Lock()
lock.acquire()
def wait_for_the_others():
    lock.acquire()
wait_for_the_others()
"""


def test_what_earlier_jobs_left_is_removed_but_not_of_a_job_that_runs_or_has_just_begun(tmp_path):
    own, dead, running, young, other = (tmp_path / name for name in (f"{PREFIX}own", f"{PREFIX}dead", f"{PREFIX}running", f"{PREFIX}young", "other"))
    for directory in (own, dead, young, other):
        directory.mkdir()
        (directory / "4194304.txt").write_text("")  # more than any pid
    env = {DIRECTORY_VARIABLE: str(running), "PYTHONPATH": ":".join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", HANGS_IN_C], env=env, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"armed\n"
        for directory in (own, dead, running, other):
            os.utime(directory, (1, 1))
        remove_old_stacks(own)
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in (own, running, young, other))
    finally:
        process.kill()
        process.wait()


def test_a_process_stuck_in_a_lock_shows_where_and_processes_of_others_are_left_alone(tmp_path):
    env = {DIRECTORY_VARIABLE: str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    stuck = subprocess.Popen([sys.executable, "-c", HANGS_IN_C], env=env, stdout=subprocess.PIPE)
    stranger = subprocess.Popen(["sleep", "60"])  # would be ended by the signal
    try:
        assert stuck.stdout.readline() == b"armed\n"
        (tmp_path / f"{stranger.pid}.txt").write_text("")
        time.sleep(0.1)
        stacks = collect_stacks(str(tmp_path))
        assert [name.split()[0] for name in stacks] == [str(stuck.pid)]
        assert "in wait_for_the_others" in next(iter(stacks.values()))
        assert stranger.poll() is None and stuck.poll() is None
    finally:
        for process in (stuck, stranger):
            process.kill()
            process.wait()
