"""A job that was killed or stopped goes on as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from metric_checks import assert_equal_metrics

from napmem_rl.backend.run_checkpoints import TRACKER

pytestmark = pytest.mark.slow

NUM_STEPS = 8


def test_killed_and_stopped_jobs_end_with_the_metrics_of_an_undisturbed_one(start_job, tmp_path: Path):
    whole = start_job(tmp_path / "whole")
    assert whole.wait(300) == 0, whole.output()[-3000:]
    expected = whole.metrics()
    assert sorted(expected) == list(range(1, NUM_STEPS + 1))

    killed = start_job(tmp_path / "killed", "trainer.save_freq=2")
    killed.wait_for_step(3)
    started = psutil.Process(killed.process.pid).children(recursive=True)
    os.kill(killed.process.pid, signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    _, alive = psutil.wait_procs(started, timeout=120)
    assert alive == [], "what a killed driver started must end with it"
    torn = tmp_path / "killed" / "global_step_99"
    torn.mkdir()
    (tmp_path / "killed" / TRACKER).write_text("9")
    again = start_job(tmp_path / "killed", "trainer.save_freq=2")
    assert again.wait(300) == 0, again.output()[-3000:]
    assert f"{torn} was never finished" in again.output() and (tmp_path / "killed" / "broken_global_step_99.1").is_dir()
    assert "named '9'" in again.output()
    assert min(int(path.name[5:11]) for path in (tmp_path / "killed" / "trajectories").glob("step_*")) == 1
    assert_equal_metrics(again.metrics(), expected)
    assert _trajectory_keys(tmp_path / "killed") == _trajectory_keys(tmp_path / "whole"), "no episode is there twice"

    for number in (signal.SIGUSR1, signal.SIGTERM):
        run_dir = tmp_path / number.name
        stopped = start_job(run_dir, "trainer.save_freq=100")
        stopped.wait_for_step(2)
        os.kill(stopped.process.pid, number)
        assert stopped.wait() == 75, stopped.output()[-3000:]
        assert f"stopped by {number.name} after step" in stopped.output()
        last = max(stopped.metrics())
        assert stopped.whole_steps() == [last], "the step it was in is saved, although it was not its time"
    again = start_job(run_dir, "trainer.save_freq=100")
    assert again.wait(300) == 0, again.output()[-3000:]
    assert f"resuming from {run_dir / f'global_step_{last}'}" in again.output()
    assert_equal_metrics(again.metrics(), expected)


def _trajectory_keys(run_dir: Path) -> list[tuple]:
    lines = [json.loads(line) for path in (run_dir / "trajectories").glob("step_*.jsonl") for line in path.read_text().splitlines()]
    return sorted((line["step"], line["task_id"], line["sample"], line["reward"] is None, line["final_answer"] or "") for line in lines)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_at_a_save_is_named_and_the_checkpoint_before_it_is_used(start_job, tmp_path: Path):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(small)], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    try:
        full = start_job(small / "run", "report.trajectories=false", "trainer.logger=[console,file]")
        assert full.wait(300) == 2, full.output()[-3000:]
        error = [line for line in full.output().splitlines() if line.startswith("error: ")]
        assert len(error) == 1 and "checkpoint of step" in error[0] and "could not be written" in error[0] and "MiB free" in error[0], error
        saved = full.whole_steps()
        assert saved, "the checkpoints before the full disk are whole"
        subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
        again = start_job(small / "run", "report.trajectories=false")
        assert again.wait(300) == 0, again.output()[-3000:]
        assert f"resuming from {small / 'run' / f'global_step_{saved[-1]}'}" in again.output()
        assert again.whole_steps()[-1] == NUM_STEPS
    finally:
        time.sleep(1)
        subprocess.run(["umount", "-l", str(small)], check=True)
