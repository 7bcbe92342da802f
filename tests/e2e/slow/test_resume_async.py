"""An asynchronous job that was killed goes on: prompts in flight at the checkpoint are neither trained twice nor left out, and no row gets too old."""

from __future__ import annotations

import json
import math
import os
import signal
from pathlib import Path

import psutil
import pytest

from napmem_rl.data.rows import save_rows
from napmem_rl.schema import AnswerKey, Task

pytestmark = pytest.mark.slow

CITY_OF = {"ana": "oslo", "ben": "rome", "cleo": "lima", "dan": "bern"}
BATCH, NUM_STEPS = 4, 8
IN_FLIGHT = BATCH  # num_warmup_batches of the recipe: 1
MAX_STALENESS = 2  # max_off_policy_threshold of the recipe, less one
KILLED_AFTER = 3


def write_distinct_questions(path: Path) -> dict[str, int]:
    """Rows that differ in what they ask. Returns the number of the row by its question."""
    people, cities = list(CITY_OF), list(CITY_OF.values())
    pairs, numbers = [], {}
    for number in range(BATCH * (NUM_STEPS + 4)):
        person, rest = people[number % 4], number // 4
        question = f"where does {person} live ? {cities[rest % 4]} {cities[rest // 4 % 4]}"
        task = Task(task_id=f"train-{number:02}", bank_id=person, question=question, category="fact", needs_memory=True, asked_at="2024-04-01T00:00:00")
        pairs.append((task, AnswerKey(task_id=task.task_id, references=(CITY_OF[person],), evidence_ids=("msg:1",))))
        numbers[question] = number
    save_rows(path, pairs, data_source="tiny")
    return numbers


def read_trained(directory: Path, numbers: dict[str, int]) -> dict[int, list[int]]:
    """Rows of the data set that each step trained on, by step; verl wrote them down after the update."""
    trained = {}
    for path in directory.glob("*.jsonl"):
        inputs = {json.loads(line)["input"] for line in path.read_text().splitlines()}
        trained[int(path.stem)] = sorted(number for question, number in numbers.items() if any(question in text for text in inputs))
    return trained


def kill(job) -> None:
    """SIGKILL the driver, and wait until all that it started has ended."""
    started = psutil.Process(job.process.pid).children(recursive=True)
    os.kill(job.process.pid, signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL
    _, alive = psutil.wait_procs(started, timeout=120)
    assert alive == []


def test_a_killed_asynchronous_job_trains_each_prompt_once_and_leaves_none_out(start_job, tmp_path: Path):
    numbers = write_distinct_questions(tmp_path / "train.parquet")
    run_dir = tmp_path / "run"
    overrides = [f"data.train_files={tmp_path / 'train.parquet'}", "trainer.save_freq=2", f"trainer.rollout_data_dir={tmp_path / 'trained'}"]
    killed = start_job(run_dir, *overrides, name="tiny_async.yaml")
    killed.wait_for_step(KILLED_AFTER)
    kill(killed)
    saved = killed.whole_steps()[-1]
    assert saved >= 2

    again = start_job(run_dir, *overrides, name="tiny_async.yaml")
    assert again.wait(300) == 0, again.output()[-3000:]
    assert f"resuming from {run_dir / f'global_step_{saved}'}" in again.output()
    metrics = again.metrics()
    assert sorted(metrics) == list(range(1, NUM_STEPS + 1))
    assert all(metrics[step]["napmem/staleness_max"] <= MAX_STALENESS for step in metrics)
    assert all(math.isfinite(metrics[step]["actor/grad_norm"]) and metrics[step]["napmem/abstained"] == 0 for step in metrics)

    trained = read_trained(tmp_path / "trained", numbers)
    assert {step: len(rows) for step, rows in trained.items()} == dict.fromkeys(range(1, NUM_STEPS + 1), BATCH)
    episodes = [json.loads(line) for path in (run_dir / "trajectories").glob("step_*.jsonl") for line in path.read_text().splitlines()]
    assert len({(line["task_id"], line["sample"]) for line in episodes}) == len(episodes), "an episode that ran again is there twice"
    rows = [row for step in sorted(trained) for row in trained[step]]
    assert len(set(rows)) == len(rows), "a prompt was trained twice"
    assert max(rows) < BATCH * NUM_STEPS + IN_FLIGHT, "the job that went on took prompts beyond those that an undisturbed one takes"
    due = set(range(BATCH * (NUM_STEPS - MAX_STALENESS) + IN_FLIGHT))  # handed out so early that the threshold holds a step back for them
    assert due <= set(rows), "a prompt was left out"
