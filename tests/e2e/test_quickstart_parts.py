"""The quickstart around its GRPO job, in small: world, two cold starts on two ranks, evaluation of both policies, scripts, table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from napmem_rl.backend.local_policy import build_token_counter, evaluate_checkpoint
from napmem_rl.backend.quickstart_sft import ColdStart, run_cold_starts
from napmem_rl.backend.quickstart_world import Split, World, build_world, generate_split
from napmem_rl.config.recipe import load_recipe
from napmem_rl.data.rows import load_rows
from napmem_rl.data.world_demos import CLEAN, SLOPPY
from napmem_rl.evals.metrics import Metric, aggregate
from napmem_rl.evals.report import BeforeAfter, Reference, build_summary, render_table
from napmem_rl.evals.scripts import SCRIPTS, choose_best_script, run_script
from napmem_rl.retrieval.encoder import load_encoder

ROOT = Path(__file__).resolve().parents[2]
TRAIN, TEST = Split(name="train", num_users=3, num_questions=12), Split(name="test", num_users=2, num_questions=6)
SEED, STEPS = 5, 6


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built world and two trained policies."""
    directory = tmp_path_factory.mktemp("quickstart")
    recipe = load_recipe(ROOT / "recipes" / "quickstart.yaml", [f"data.dir={directory}", "memory.encoder=hashing"])
    progress: list[tuple[int, int]] = []
    build_world((TRAIN, TEST), SEED, directory, recipe.memory, num_workers=2, on_progress=lambda built, total: progress.append((built, total)))
    assert progress[-1] == (5, 5)
    shared = {"split": TRAIN, "seed": SEED, "steps": STEPS, "num_demonstrations": 12, "data_dir": directory, "num_ranks": 2}
    sloppy = ColdStart(name="sloppy", habits=SLOPPY, out_dir=directory / "model", memory=recipe.memory, agent=recipe.agent, **shared)
    clean = replace(sloppy, name="clean", habits=CLEAN, out_dir=directory / "model_clean", start_from=directory / "model")
    results = run_cold_starts([sloppy, clean], on_wait=lambda: None, poll_s=1.0)
    assert set(results) == {"sloppy", "clean"} and all(result["loss"] > 0 for result in results.values())
    return directory


@pytest.fixture(scope="module")
def world(data_dir: Path) -> World:
    """The held-out users."""
    recipe = load_recipe(ROOT / "recipes" / "quickstart.yaml", [f"data.dir={data_dir}", "memory.encoder=hashing"])
    return World(data_dir, generate_split(TEST, SEED), recipe.memory, recipe.agent, load_encoder("hashing"))


def test_rows_and_banks_of_the_splits_share_no_user(data_dir: Path) -> None:
    users = [{task.bank_id for task, _ in load_rows(data_dir / f"{name}.parquet")} for name in ("train", "test")]
    assert len(users[0]) == 3 and len(users[1]) == 2 and not users[0] & users[1]
    assert {path.name for path in (data_dir / "banks").iterdir()} == users[0] | users[1]


def test_progress_and_the_second_policy_follow_the_first(data_dir: Path) -> None:
    lines = [json.loads(line) for line in (data_dir / "model_clean.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == STEPS
    weights = [(data_dir / name / "model.safetensors").read_bytes() for name in ("model", "model_clean")]
    assert weights[0] != weights[1]


def test_both_policies_are_evaluated_on_the_same_questions_and_repeat(data_dir: Path, world: World) -> None:
    agent = load_recipe(ROOT / "recipes" / "quickstart.yaml", [f"data.dir={data_dir}"]).agent
    runs = [evaluate_checkpoint(data_dir / "model", world, agent, temperature=1.0, seed=1)[1] for _ in range(2)]
    assert [row[Metric.REWARD] for row in runs[0]] == [row[Metric.REWARD] for row in runs[1]]
    _, clean = evaluate_checkpoint(data_dir / "model_clean", world, agent, temperature=0.0, seed=1)
    pairs = [BeforeAfter(mode=mode, before=runs[0], after=clean) for mode in ("sampled", "greedy")]
    toolboxes = world.toolbox_builder(build_token_counter(data_dir / "model"))
    best = choose_best_script(world.items, build_toolbox=toolboxes, agent=agent)
    reference = run_script(SCRIPTS[best], world.items, build_toolbox=toolboxes, agent=agent)
    assert aggregate(reference)[Metric.REWARD] > 0.3, "a perfect reader with the best script must do well"
    summary = build_summary(pairs, [Reference(name=best, mode="fixed", facts=reference)], control="control")
    assert {"sampled", "greedy", "needs_memory", "correctness", "references", "by_type"} <= set(summary)
    assert set(summary["greedy"]) == {"before", "after", "gain", "gain_low", "gain_high"}
    assert best in render_table(pairs, [Reference(name=best, mode="fixed", facts=reference)], judge="lexical")
