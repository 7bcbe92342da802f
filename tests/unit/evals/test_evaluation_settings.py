"""What may differ when a run goes on, what may not, and the refusal to evaluate on what was trained on."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest
from prepared_maker import make_messages, write_prepared

from napmem_rl.config.evaluation_recipe import EvaluationRecipe, load_evaluation_recipe
from napmem_rl.data.overlap import Fingerprints, keep_training_fingerprints, load_fingerprints
from napmem_rl.errors import DataError
from napmem_rl.evals.evaluation_guard import check_training_overlap, describe_oracle_gaps
from napmem_rl.evals.evaluation_settings import build_settings, load_settings, settle
from napmem_rl.evals.prepared import Benchmark, load_split


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Benchmark:
    data = write_prepared(tmp_path_factory.mktemp("settings") / "things", users=2, questions=4)
    prints = Fingerprints()
    for user in range(2):
        prints.add(f"user-{user}", f"group-{user}", make_messages(user))
    prints.save(data / "fingerprints.parquet")
    return load_split(data, "test", name="things")


def build(benchmark: Benchmark, *overrides: str, model_hash: str | None = None) -> dict:
    recipe = load_evaluation_recipe("passive_bm25", ["policy.engine=extractive", *overrides])
    return build_settings(recipe, [benchmark], name="p", facts={"prompt": "v1", "tools": ("a",)}, model_hash=model_hash)


def test_a_run_goes_on_with_what_decides_no_answer_changed(benchmark: Benchmark, tmp_path: Path) -> None:
    assert settle(tmp_path / "out", build(benchmark)) is False
    changed = ("evaluation.max_concurrency=3", "evaluation.metrics=[recall]", "policy.timeout_s=5", "evaluation.workers=2", "judge.max_retries=1")
    assert settle(tmp_path / "out", build(benchmark, *changed)) is True
    assert load_settings(tmp_path / "out")["recipe"]["evaluation"]["max_concurrency"] == 64, "the file says what the run began with"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("policy.top_k=3", "policy.top_k: 20 → 3"),
        ("memory.ranking=rrf", "memory.ranking: bm25 → rrf"),
        ("evaluation.samples=2", "evaluation.samples: 1 → 2"),
        ("agent.max_tool_steps=1", "agent.max_tool_steps: 4 → 1"),
    ],
)
def test_what_decides_answers_must_stay_and_is_named(benchmark: Benchmark, tmp_path: Path, override: str, said: str) -> None:
    settle(tmp_path / "out", build(benchmark))
    with pytest.raises(DataError, match=said):
        settle(tmp_path / "out", build(benchmark, override))


def test_other_data_other_banks_and_another_model_are_refused(benchmark: Benchmark, tmp_path: Path) -> None:
    settle(tmp_path / "out", build(benchmark, model_hash="m1"))
    for other, model_hash, said in (
        (dataclasses.replace(benchmark, sha256="other"), "m1", "data_sha256"),
        (dataclasses.replace(benchmark, versions={**benchmark.versions, "user-1": "f" * 16}), "m1", "banks_sha256"),
        (benchmark, "m2", "model_fingerprint: m1 → m2"),
    ):
        with pytest.raises(DataError, match=said):
            settle(tmp_path / "out", build(other, model_hash=model_hash))


def test_a_directory_that_holds_something_else_is_left_alone(benchmark: Benchmark, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="holds something else"):
        settle(tmp_path, build(benchmark))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def trained_on(run_dir: Path, benchmark: Benchmark, banks: set[str]) -> EvaluationRecipe:
    """A model in a run directory that was trained on these banks."""
    model = run_dir / "global_step_1" / "actor" / "huggingface"
    model.mkdir(parents=True)
    keep_training_fingerprints(run_dir, load_fingerprints(benchmark.directory, banks), base=run_dir)
    return load_evaluation_recipe(str(model), ["policy.engine=transformers"])


def test_a_policy_is_not_evaluated_on_users_that_it_was_trained_on(benchmark: Benchmark, tmp_path: Path) -> None:
    recipe = trained_on(tmp_path / "run", benchmark, {"user-1"})
    with pytest.raises(DataError, match=r"benchmark things: shares \d+ messages with what the policy was trained on: user-1"):
        check_training_overlap(recipe, [benchmark])
    only_other = dataclasses.replace(benchmark, items=tuple(item for item in benchmark.items if item[0].bank_id == "user-0"))
    assert "no message of a benchmark is among" in check_training_overlap(recipe, [only_other])


def test_the_run_s_recipe_names_the_training_data_where_the_run_kept_no_fingerprints(benchmark: Benchmark, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(benchmark.directory, data)
    (data / "test.parquet").rename(data / "train.parquet")
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "resolved.yaml").write_text(f"napmem:\n  data: {{dir: {data}}}\n")
    with pytest.raises(DataError, match=r"shares \d+ messages"):
        check_training_overlap(load_evaluation_recipe(str(run_dir), ["policy.engine=transformers"]), [benchmark])


def test_where_nothing_tells_what_was_trained_on_that_is_said(benchmark: Benchmark, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    recipe = load_evaluation_recipe(str(tmp_path / "model"), ["policy.engine=transformers"])
    assert "no run directory says" in check_training_overlap(recipe, [benchmark])
    endpoint = load_evaluation_recipe("no_memory", ["policy.model=m"])
    assert "behind the endpoint was trained on is not known" in check_training_overlap(endpoint, [benchmark])


def test_an_oracle_without_evidence_is_told_and_other_policies_are_not(benchmark: Benchmark) -> None:
    oracle, other = (load_evaluation_recipe(name, ["policy.engine=extractive"]) for name in ("oracle", "passive_bm25"))
    assert describe_oracle_gaps(oracle, [benchmark]) == "", "unanswerable questions have no evidence to read"
    (task, key), *rest = benchmark.items
    gap = dataclasses.replace(benchmark, items=((task, dataclasses.replace(key, evidence_ids=())), *rest))
    assert "reads nothing for 1 of 6 questions" in describe_oracle_gaps(oracle, [gap]) and describe_oracle_gaps(other, [gap]) == ""
