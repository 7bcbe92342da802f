"""Jobs that are disturbed: started as a user starts them, followed by their metrics, and ended with all that they started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from grpo_launch import ROOT, build_launch

START_TIMEOUT_S = 240.0
END_TIMEOUT_S = 120.0  # what docs/operate.md promises after a fault
NUM_STEPS = 8


@dataclass
class RunningJob:
    """A job in a process of its own, its output in a file."""

    run_dir: Path
    process: subprocess.Popen[bytes]
    log: Path

    def metrics(self) -> dict[int, dict[str, Any]]:
        """All metrics by step, of this start and of earlier ones; the latest start wins."""
        files = sorted(self.run_dir.glob("metrics.*.jsonl"), key=lambda path: int(path.name.split(".")[1]))
        lines = [line for path in [*files, self.run_dir / "metrics.jsonl"] if path.is_file() for line in path.read_text().splitlines()]
        return {entry["step"]: entry["data"] for entry in map(json.loads, lines)}

    def wait_for_step(self, step: int) -> None:
        """Wait until a step is in the metrics of this start."""
        path, deadline = self.run_dir / "metrics.jsonl", time.monotonic() + START_TIMEOUT_S
        while not (path.is_file() and f'"step":{step},' in path.read_text().replace(" ", "")):
            assert self.process.poll() is None, f"the job ended before step {step}:\n{self.output()[-3000:]}"
            assert time.monotonic() < deadline, f"no step {step} within {START_TIMEOUT_S:.0f} s:\n{self.output()[-3000:]}"
            time.sleep(0.05)

    def wait(self, timeout_s: float = END_TIMEOUT_S) -> int:
        """The exit code."""
        return self.process.wait(timeout_s)

    def workers(self, name: str) -> list[psutil.Process]:
        """Living processes of the job whose title holds `name`."""
        return [process for process in psutil.Process(self.process.pid).children(recursive=True) if name in " ".join(process.cmdline())]

    def output(self) -> str:
        """Everything it printed."""
        return self.log.read_text(errors="replace")

    def whole_steps(self) -> list[int]:
        """Steps of its whole checkpoints."""
        from napmem_rl.backend.run_checkpoints import find_checkpoints

        return [checkpoint.step for checkpoint in find_checkpoints(self.run_dir) if checkpoint.problem is None]


StartJob = Callable[..., RunningJob]


@pytest.fixture
def start_job(job_data: Path, judge_url: str, tmp_path: Path) -> Iterator[StartJob]:
    """Starts `NUM_STEPS` steps of the tiny job, a checkpoint each; whatever still runs at the end of the test is ended."""
    jobs: list[RunningJob] = []

    def start(
        run_dir: Path, *overrides: str, name: str = "tiny_grpo.yaml", data: Path = job_data, judge: str = judge_url, ray_address: str | None = None
    ) -> RunningJob:
        recipe = ROOT / "tests" / "e2e" / name
        given = [f"data.dir={data}", f"trainer.default_local_dir={run_dir}", f"judge.base_url={judge}"]
        steps = [f"trainer.total_training_steps={NUM_STEPS}", "trainer.save_freq=1", "trainer.test_freq=-1"]
        log = tmp_path / f"{run_dir.name}.{len(jobs)}.log"  # not beside the run directory, whose disk a test may fill
        env = {"RAY_ADDRESS": ray_address} if ray_address is not None else {}
        with log.open("wb") as out:
            launch = build_launch(str(recipe), *given, *steps, *overrides, **env)
            process = subprocess.Popen(**launch, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        jobs.append(RunningJob(run_dir, process, log))
        return jobs[-1]

    yield start
    for job in jobs:
        if job.process.poll() is None:
            os.kill(job.process.pid, signal.SIGKILL)
            job.process.wait()
