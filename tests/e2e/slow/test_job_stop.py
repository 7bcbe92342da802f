"""`ray job stop` in the middle of a step of a real job on a running cluster: the job saves that step and ends, and the same submission goes on from there."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray_head import Head, start_head

from napmem_rl.backend.run_checkpoints import find_checkpoints

pytestmark = pytest.mark.slow

NUM_STEPS = 8
STOPPED_AFTER = 1
START_TIMEOUT_S = 240.0
SLOW = "ray_kwargs.ray_init.runtime_env.env_vars"


@pytest.fixture
def head() -> Iterator[Head]:
    """A cluster of its own."""
    with start_head() as running:
        yield running


def submit(head: Head, name: str, run_dir: Path, data_dir: Path, judge_url: str, *, waits: bool) -> str:
    """Send the job; each step takes some ten seconds, most of them for rollouts, so that `ray job stop` comes in time. Returns what was printed."""
    runtime_env = json.dumps({"env_vars": {"NAPMEM_REVISION": "0123abcd", "RAY_JOB_STOP_WAIT_TIME_S": "300"}})
    recipe = ["tests/e2e/tiny_grpo.yaml", f"data.dir={data_dir}", f"trainer.default_local_dir={run_dir}", f"judge.base_url={judge_url}"]
    slow = [f"{SLOW}.VERL_USE_EXTERNAL_MODULES='napmem_rl.backend.plugin,napmem_rl.backend.slow_engine'"]
    slow += [f"{SLOW}.NAPMEM_SLOW_TOKEN_S='0.5'", f"{SLOW}.NAPMEM_SLOW_SIGMA='0.0'"]
    steps = [f"trainer.total_training_steps={NUM_STEPS}", "trainer.save_freq=100", "trainer.test_freq=-1", "trainer.logger=[console,file]"]
    where = ["--address", head.dashboard, "--submission-id", name, "--working-dir", ".", "--runtime-env-json", runtime_env]
    done = head.ray("job", "submit", *where, *([] if waits else ["--no-wait"]), "--", "python", "launch/grpo.py", *recipe, *steps, *slow)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout + done.stderr


def read_steps(path: Path) -> list[int]:
    """Steps of a metrics file, as far as it is written."""
    return [json.loads(line)["step"] for line in path.read_text().splitlines()] if path.is_file() else []


def whole_steps(run_dir: Path) -> list[int]:
    """Steps of its whole checkpoints."""
    return [checkpoint.step for checkpoint in find_checkpoints(run_dir) if checkpoint.problem is None]


def test_a_job_stopped_in_mid_step_saves_it_and_the_same_submission_goes_on(head, job_data, judge_url, tmp_path):
    run_dir = tmp_path / "run"
    submit(head, "first", run_dir, job_data, judge_url, waits=False)
    deadline = time.monotonic() + START_TIMEOUT_S
    while STOPPED_AFTER not in read_steps(run_dir / "metrics.jsonl"):
        assert time.monotonic() < deadline, head.ray("job", "logs", "--address", head.dashboard, "first").stdout[-3000:]
        time.sleep(0.1)
    stopped = head.ray("job", "stop", "--address", head.dashboard, "first")
    assert stopped.returncode == 0, stopped.stderr
    log = head.ray("job", "logs", "--address", head.dashboard, "first").stdout
    steps = read_steps(run_dir / "metrics.jsonl")
    last = steps[-1]
    assert f"stopped by SIGTERM after step {last}" in log, log[-3000:]
    assert STOPPED_AFTER < last < NUM_STEPS and steps == list(range(1, last + 1)), "the step it was in has ended"
    assert whole_steps(run_dir) == [last], "and is saved, although it was not its time"

    log = submit(head, "second", run_dir, job_data, judge_url, waits=True)
    assert f"resuming from {run_dir / f'global_step_{last}'}" in log
    assert read_steps(run_dir / "metrics.1.jsonl") + read_steps(run_dir / "metrics.jsonl") == list(range(1, NUM_STEPS + 1))
    assert whole_steps(run_dir) == [last, NUM_STEPS]
