"""Two jobs at once on one cluster, each with its own queue: neither sees the other's rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from grpo_launch import ROOT
from metric_checks import assert_equal_metrics

pytestmark = pytest.mark.slow

NUM_STEPS = 8


def test_jobs_that_share_a_cluster_train_as_if_each_were_alone(start_job, tmp_path: Path, monkeypatch):
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 16, "num_gpus": 2, "include_dashboard": False})
    try:
        jobs = [start_job(tmp_path / name, "trainer.n_gpus_per_node=1", ray_address=cluster.address) for name in ("first", "second")]
        for job in jobs:
            assert job.wait(400) == 0, job.output()[-3000:]
        first, second = (job.metrics() for job in jobs)
        assert sorted(first) == list(range(1, NUM_STEPS + 1))
        assert_equal_metrics(first, second)
        one, other = ([path.stat().st_mtime for path in job.run_dir.glob("global_step_*/checkpoint.json")] for job in jobs)
        assert max(min(one), min(other)) < min(max(one), max(other)), "they trained at the same time"
    finally:
        cluster.shutdown()
