"""A cluster as `ray start` makes it, with token authentication, and a job sent to it with `ray job submit --working-dir`; see docs/operate.md."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from grpo_launch import ROOT
from ray_head import Head, start_head

SLOW_TO_STOP = (
    "import pathlib, signal, sys, time\n"
    "def save(number, frame):\n    time.sleep(5)\n    pathlib.Path(sys.argv[1]).write_text('saved')\n    sys.exit(75)\n"
    "signal.signal(signal.SIGTERM, save)\nprint('listening', flush=True)\ntime.sleep(120)\n"
)


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    """A cluster of its own for these tests."""
    with start_head() as running:
        yield running


@pytest.fixture(scope="module")
def submitted(head: Head, job_data: Path, judge_url: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """One training step, sent from the checkout."""
    run_dir = tmp_path_factory.mktemp("submitted") / "run"
    runtime_env = json.dumps({"env_vars": {"NAPMEM_REVISION": "0123abcd+changes", "RAY_JOB_STOP_WAIT_TIME_S": "900"}})
    recipe = ["tests/e2e/tiny_grpo.yaml", f"data.dir={job_data}", f"trainer.default_local_dir={run_dir}", f"judge.base_url={judge_url}"]
    short = ["trainer.total_training_steps=1", "trainer.test_freq=-1", "trainer.save_freq=-1"]
    submit = ["job", "submit", "--address", head.dashboard, "--working-dir", ".", "--runtime-env-json", runtime_env]
    return head.ray(*submit, "--", "python", "launch/grpo.py", *recipe, *short), run_dir


def test_a_client_with_another_token_is_refused(head, tmp_path):
    (tmp_path / "other").write_text("0" * 64)
    done = head.ray("job", "list", "--address", head.dashboard, RAY_AUTH_TOKEN_PATH=str(tmp_path / "other"))
    assert done.returncode != 0
    assert "token" in (done.stdout + done.stderr).lower()


def test_a_submitted_job_trains_on_the_running_cluster(submitted):
    done, run_dir = submitted
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert "succeeded" in done.stdout
    assert [json.loads(line)["step"] for line in (run_dir / "metrics.jsonl").read_text().splitlines()] == [1]


def test_a_run_directory_inside_the_copy_of_the_code_is_refused_because_ray_removes_it(head, job_data, judge_url):
    recipe = ["tests/e2e/tiny_grpo.yaml", f"data.dir={job_data}", "trainer.default_local_dir=runs/lost", f"judge.base_url={judge_url}"]
    submit = ["job", "submit", "--address", head.dashboard, "--working-dir", "."]
    done = head.ray(*submit, "--", "python", "launch/grpo.py", *recipe)
    assert done.returncode != 0
    assert "which Ray removes; give trainer.default_local_dir as an absolute path" in done.stdout + done.stderr


def test_the_revision_that_was_stamped_at_submission_is_recorded(submitted):
    _, run_dir = submitted
    assert json.loads((run_dir / "provenance.json").read_text())["revision"] == "0123abcd+changes", "the copy that ran has no .git"


def test_a_job_that_is_stopped_gets_the_time_that_its_submission_asked_for(head, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW_TO_STOP)
    wait = json.dumps({"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "60"}})
    entry = ["--", "python", str(tmp_path / "slow.py"), str(tmp_path / "saved")]
    at = ["--address", head.dashboard]
    assert head.ray("job", "submit", *at, "--no-wait", "--submission-id", "slow", "--runtime-env-json", wait, *entry).returncode == 0
    deadline = time.monotonic() + 60
    while "listening" not in head.ray("job", "logs", *at, "slow").stdout:
        assert time.monotonic() < deadline
        time.sleep(0.5)
    stopped = head.ray("job", "stop", *at, "slow")
    assert stopped.returncode == 0, stopped.stderr
    assert (tmp_path / "saved").read_text() == "saved", "Ray's own limit of 3 s would have killed it"


@pytest.mark.parametrize(("nodes", "code", "words"), [(1, 0, ""), (2, 1, "error: 1 of 2 nodes joined")])
def test_waiting_for_nodes_ends_when_they_are_there_or_time_is_up(head, nodes, code, words):
    command = [sys.executable, str(ROOT / "launch" / "wait_for_nodes.py"), f"127.0.0.1:{head.gcs_port}", str(nodes), "--timeout", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=head.env)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
