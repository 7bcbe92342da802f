"""launch/evaluate.py over a cluster of two nodes: killed, gone on with, and then losing a node, it ends with the answers of one process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from grpo_launch import ROOT
from prepared_maker import write_prepared

from napmem_rl.backend.scripted_endpoint import MODEL, serve_scripted
from napmem_rl.evals.answer_log import load_answers

pytest.importorskip("ray")
pytestmark = pytest.mark.slow


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two raylets on this machine."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.delenv("RAY_ADDRESS", raising=False)
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        try:
            yield made
        finally:
            made.shutdown()


def wait_until(is_so: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 240
    while not is_so() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert is_so(), process.communicate(timeout=10)[0] if process.poll() is not None else "it takes too long"


def test_killed_gone_on_with_and_then_short_of_a_node_it_ends_as_one_process_does(cluster: Any, tmp_path: Path) -> None:
    second = cluster.add_node(num_cpus=2)
    data = write_prepared(tmp_path / "things", users=3, questions=6)
    answers = tmp_path / "out" / "things-test" / "answers.jsonl"

    def start(out: Path, *more: str) -> subprocess.Popen[str]:
        asks = ["passive_bm25", f"policy.model={MODEL}", f"policy.base_url={url}", "policy.api_key_env=''", "evaluation.max_concurrency=2", *more]
        command = [sys.executable, str(ROOT / "launch" / "evaluate.py"), *asks, "--on", str(data), "--out", str(out)]
        env = {**os.environ, "RAY_ADDRESS": cluster.address, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)

    def count() -> int:
        return answers.read_bytes().count(b"\n") if answers.exists() else 0

    with serve_scripted(latency_s=0.5) as url:
        first = start(tmp_path / "out", "evaluation.workers=2")
        wait_until(lambda: count() >= 4, first)
        first.kill()
        assert "over 2 workers on 2 nodes" in first.communicate()[0]
        before = count()
        again = start(tmp_path / "out", "evaluation.workers=2")
        wait_until(lambda: count() >= before + 3, again)
        cluster.remove_node(second, allow_graceful=False)
        text = again.communicate(timeout=300)[0]
        assert again.returncode == 0 and "going on with the answers that are there" in text and "0 could not be asked" in text, text
        alone = start(tmp_path / "alone")
        assert alone.wait(timeout=300) == 0
    assert int(re.search(r"([\d,]+) attempts, 2 at a time", text)[1]) == 18 - before, "only what was missing was asked"
    found, wanted = (load_answers(out / "things-test" / "answers.jsonl") for out in (tmp_path / "out", tmp_path / "alone"))
    assert count() == 18 and {key: (row.seed, row.trajectory["final_answer"]) for key, row in found.items()} == {
        key: (row.seed, row.trajectory["final_answer"]) for key, row in wanted.items()
    }
