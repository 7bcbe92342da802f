"""A cluster of two nodes (two raylets on this machine): what the preflight refuses, and a real job with a learner and a rollout server on each node."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from grpo_launch import ROOT, build_launch

RECIPE = Path(__file__).with_name("tiny_grpo.yaml")


@dataclass(frozen=True)
class TwoNodes:
    """The cluster's address; where node 2 has its own copy of the banks; Ray's ids of the nodes; process of node 2's raylet."""

    address: str
    local_banks: Path
    head_id: str
    second_id: str
    second_pid: int

    def train(self, data: Path, run_dir: Path, judge_url: str, *overrides: str) -> subprocess.CompletedProcess[str]:
        """launch/grpo.py on this cluster, one learner on each node."""
        places = ["trainer.nnodes=2", "trainer.n_gpus_per_node=1", f"data.dir={data}", f"trainer.default_local_dir={run_dir}", f"judge.base_url={judge_url}"]
        launch = build_launch(str(RECIPE), *places, *overrides, RAY_ADDRESS=self.address)
        return subprocess.run(**launch, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    """Two raylets, eight CPUs and one GPU slot each; the second was started with NAPMEM_BANKS_DIR."""
    from ray.cluster_utils import Cluster

    local_banks = tmp_path_factory.mktemp("node_two") / "banks"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")  # for this process, the raylets it starts and the jobs: all on this machine
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.delenv("RAY_ADDRESS", raising=False)
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 8, "num_gpus": 1, "include_dashboard": False})
        try:
            patch.setenv("NAPMEM_BANKS_DIR", str(local_banks))
            second = cluster.add_node(num_cpus=8, num_gpus=1)
            patch.delenv("NAPMEM_BANKS_DIR")
            raylet = second.all_processes["raylet"][0].process
            yield TwoNodes(cluster.address, local_banks, cluster.head_node.node_id, second.node_id, raylet.pid)
        finally:
            cluster.shutdown()


@pytest.fixture(scope="module")
def finished(two_nodes: TwoNodes, job_data: Path, judge_url: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """The job of two nodes, once node 2 has its banks."""
    shutil.rmtree(two_nodes.local_banks, ignore_errors=True)
    shutil.copytree(job_data / "banks", two_nodes.local_banks, ignore=shutil.ignore_patterns("index"))
    run_dir = tmp_path_factory.mktemp("two_nodes") / "run"
    return two_nodes.train(job_data, run_dir, judge_url, "actor_rollout_ref.rollout.agent.num_workers=2"), run_dir


def test_banks_that_are_absent_or_differ_on_the_second_node_are_named_with_all_else_that_is_wrong(two_nodes, job_data, judge_url, tmp_path):
    shutil.copytree(job_data / "banks" / "ana", two_nodes.local_banks / "ana")
    shutil.copytree(job_data / "banks" / "ben", two_nodes.local_banks / "ben")
    records = two_nodes.local_banks / "ben" / "records.jsonl"
    records.write_text(records.read_text().replace("lives in", "lived in"))
    done = two_nodes.train(job_data, tmp_path / "run", judge_url, "trainer.n_gpus_per_node=2", "job.start_timeout_s=3")
    assert done.returncode == 2, done.stderr[-3000:]
    error = done.stderr[done.stderr.index("error: cluster:") :]
    node = rf"node \S+ \([\d.]+, {two_nodes.second_id[:8]}\): banks in {re.escape(str(two_nodes.local_banks))}: "
    assert re.search(node + "2 of 4 missing: cleo, dan", error), error
    assert re.search(node + r"1 of 4 of another content: ben \([0-9a-f]{16}, expected [0-9a-f]{16}\)", error), error
    assert "placement: asked for trainer.nnodes=2 groups of trainer.n_gpus_per_node=2 GPUs" in error and "room for 0" in error
    assert two_nodes.head_id[:8] in error.split("room for 0")[1].splitlines()[0], "each node's free GPUs are shown"
    assert error.startswith("error: cluster: 3 point(s)"), error
    assert "waiting for the cluster, 0 of 3 s" in done.stderr


def test_a_job_of_two_nodes_takes_its_steps_with_a_rollout_server_on_each(finished, two_nodes):
    done, run_dir = finished
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    steps = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in steps] == [1, 2]
    for entry in steps:
        assert 0 < entry["data"]["napmem/logprob_gap_max"] <= 1e-4, "both servers must sample from the learners' weights"
    ranks = sorted(path.name for path in (run_dir / "global_step_2" / "actor").glob("model_world_size_2_rank_*.pt"))
    assert ranks == ["model_world_size_2_rank_0.pt", "model_world_size_2_rank_1.pt"]


def test_the_second_node_reads_its_own_copy_of_the_banks(finished, two_nodes):
    assert list(two_nodes.local_banks.glob("*/index/*/vectors.npy")), "vectors are left beside the bank that was searched"


CHECK_TWICE = """
import json, os, signal, sys
import ray
from napmem_rl.backend.cluster_check import check_cluster
from napmem_rl.backend.preflight import check_inputs
from napmem_rl.backend.settings import JobSettings
from napmem_rl.backend.train import build_config
from napmem_rl.config.recipe import load_recipe
from napmem_rl.errors import ConfigError

address, second_pid, path, *overrides = sys.argv[1:]
recipe = load_recipe(path, overrides)
inputs = check_inputs(recipe)
config = build_config(recipe, inputs)
JobSettings.from_config(config).bank_versions_file.write_text(json.dumps(dict(inputs.bank_versions)))
ray.init(address=address, logging_level="ERROR", runtime_env={"env_vars": {"JUDGE_KEY": "secret"}})
check_cluster(config, num_steps=2, wait_s=30, answer_s=60)
print("both answer")
os.kill(int(second_pid), signal.SIGSTOP)
try:
    check_cluster(config, num_steps=2, wait_s=0, answer_s=5)
except ConfigError as error:
    print(error)
finally:
    os.kill(int(second_pid), signal.SIGCONT)
"""


def test_a_node_that_does_not_answer_is_named_when_its_time_is_up(finished, two_nodes, job_data, judge_url, tmp_path):
    """A driver of its own, as every job has one: what other tests left of Ray in this process stays out of it."""
    overrides = [f"data.dir={job_data}", f"trainer.default_local_dir={tmp_path}", f"judge.base_url={judge_url}", "trainer.n_gpus_per_node=1"]
    command = [sys.executable, "-c", CHECK_TWICE, two_nodes.address, str(two_nodes.second_pid), str(RECIPE), *overrides]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "JUDGE_KEY": "secret"})
    assert done.returncode == 0, done.stderr[-3000:]
    said = done.stdout[done.stdout.index("both answer") :]
    assert re.search(rf"1 point.*\n  - node .*{two_nodes.second_id[:8]}\): did not look at its inputs within 5 s", said), said
