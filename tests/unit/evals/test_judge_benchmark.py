"""The benchmark of cached verdicts measures hits, and nothing but hits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from napmem_rl.evals.judge_benchmark import as_json, measure_hits, render_hits

ROOT = Path(__file__).parents[3]


def test_hits_are_measured_from_disk_and_memory_one_by_one_and_together(tmp_path: Path) -> None:
    times = measure_hits(count=20, concurrency=4, directory=tmp_path)
    assert [(one.place, one.concurrency, one.count) for one in times] == [("disk", 1, 20), ("memory", 1, 20), ("disk", 4, 20), ("memory", 4, 20)]
    assert all(0 < one.p50_ms <= one.p95_ms <= one.max_ms for one in times)
    assert len(render_hits(times).splitlines()) == 5 and as_json(times)[0]["place"] == "disk"
    assert list(tmp_path.iterdir()) == [], "what it wrote is removed"


def test_the_script_prints_json(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "launch" / "bench_judge.py"), "--json", "--count", "10", "--dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert [row["concurrency"] for row in json.loads(done.stdout)] == [1, 1, 64, 64]
