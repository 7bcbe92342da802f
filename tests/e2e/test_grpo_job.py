"""What a finished GRPO job must have done; see conftest.py for the job."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch
import yaml
from log_prob_checks import assert_log_probs_agree
from safetensors.torch import load_file

from napmem_rl.backend.run_checkpoints import seal_checkpoint
from napmem_rl.cli import main


def test_the_job_ends_well_and_says_where_its_run_directory_is(finished_job):
    assert finished_job.exit_code == 0, finished_job.output[-4000:]
    assert f"run directory: {finished_job.run_dir}" in finished_job.output


def test_every_step_is_in_the_metrics_file(finished_job):
    assert [entry["step"] for entry in finished_job.metrics()] == [1, 2]


def test_rollout_and_learner_log_probs_agree_before_and_after_an_update(finished_job):
    assert_log_probs_agree(finished_job.metrics())


def test_the_ratio_is_one_on_the_first_minibatch_of_a_step(finished_job):
    for entry in finished_job.metrics():
        assert abs(entry["actor/ppo_kl"]) <= 1e-6
        assert entry["actor/pg_clipfrac"] == 0


def test_each_step_samples_from_the_weights_of_the_step_before(finished_job):
    assert [entry["napmem/weight_version"] for entry in finished_job.metrics()] == [0, 1]
    versions = {line["step"]: line["policy_version"] for line in finished_job.trajectories("step")}
    assert versions == {1: 0, 2: 1}
    assert {line["policy_version"] for line in finished_job.trajectories("val")} == {2}


def test_a_judge_without_a_verdict_costs_its_group_and_is_counted(finished_job):
    lines = finished_job.trajectories("step")
    for entry in finished_job.metrics():
        foggy = [line for line in lines if line["step"] == entry["step"] and "fog" in line["question"]]
        abstained = [line for line in foggy if line["abstained"]]
        assert len(foggy) == 4 and len(abstained) >= 3, "the tiny policy mostly answers; otherwise this test shows nothing"
        assert all(line["reward"] is None for line in abstained)
        assert entry["napmem/abstained"] == entry["napmem/abstained/judge"] == len(abstained)
        assert entry["napmem/dropped_groups"] == 1
        assert entry["napmem/kept_groups"] == 3
        assert entry["napmem/num_questions"] == 12


def test_trajectories_of_training_and_validation_are_written_whole(finished_job):
    lines = finished_job.trajectories("step")
    assert sorted((line["task_id"], line["sample"]) for line in lines) == sorted((f"train-{i}", k) for i in range(8) for k in range(4))
    called = [line for line in lines if any(turn["calls"] for turn in line["turns"])]
    assert called, "some episodes must have used a tool"
    assert any("rec:1" in call["text"] for line in called for turn in line["turns"] for call in turn["calls"])
    assert {line["judge"] for line in lines} == {"judge/napmem-judge-2"}
    assert len(finished_job.trajectories("val")) == 4


def test_facts_of_the_episodes_are_among_the_metrics(finished_job):
    for entry in finished_job.metrics():
        trained = [line for line in finished_job.trajectories("step") if line["step"] == entry["step"] and "fog" not in line["question"]]
        assert entry["napmem/reward"] == sum(line["reward"] for line in trained) / 12
        assert entry["napmem/correctness"] == sum(line["terms"]["correct"] for line in trained) / 12
        assert {"napmem/appropriate_use", "napmem/format", "napmem/calls_per_question", "napmem/zero_variance_groups", "napmem/truncated/turn"} <= set(entry)


def test_validation_reports_reward_and_what_it_abstained_from(finished_job):
    last = finished_job.metrics()[-1]
    assert -1 <= last["val-core/tiny/reward/mean@1"] <= 1
    assert last["val/abstained"] == sum(1 for line in finished_job.trajectories("val") if line["abstained"])
    assert "val-core/tiny/acc/mean@1" not in last, "verl would count an abstention as a wrong answer"


def test_the_checkpoint_loads_in_transformers_and_says_what_it_was_made_from(finished_job):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    checkpoint = finished_job.run_dir / "global_step_2"
    export = checkpoint / "actor" / "huggingface"
    model = AutoModelForCausalLM.from_pretrained(export)
    trained = model.state_dict()
    assert str(model.dtype) == "torch.float32", "verl's export claims bfloat16 whatever the weights are"
    before = AutoModelForCausalLM.from_pretrained(finished_job.data_dir / "model").state_dict()
    assert AutoTokenizer.from_pretrained(export).chat_template
    assert trained.keys() == before.keys()
    assert any((trained[name] - before[name]).abs().max() > 0 for name in before)
    resolved = yaml.safe_load((checkpoint / "resolved.yaml").read_text())
    assert resolved["napmem"]["agent"]["max_tool_steps"] == 2
    assert '"ana"' in (checkpoint / "provenance.json").read_text()


def test_the_best_checkpoint_is_named_and_exported_whole_or_merged_from_its_shards(finished_job, tmp_path):
    best = json.loads((finished_job.run_dir / "best.json").read_text())
    assert best["step"] == 2 and best["value"] == finished_job.metrics()[-1]["val-core/tiny/reward/mean@1"]
    copied = load_file(export(finished_job.run_dir, tmp_path / "copied", "--best") / "model.safetensors")
    trained = load_file(finished_job.run_dir / "global_step_2" / "actor" / "huggingface" / "model.safetensors")
    assert copied.keys() == trained.keys() and all(torch.equal(copied[name], trained[name]) for name in trained)
    run_dir = tmp_path / "shards"
    shutil.copytree(finished_job.run_dir / "global_step_2", run_dir / "global_step_2")
    (run_dir / "global_step_2" / "actor" / "huggingface" / "model.safetensors").unlink()
    seal_checkpoint(run_dir / "global_step_2", step=2, bank_versions={})
    merged = load_file(export(run_dir, tmp_path / "merged") / "model.safetensors")
    assert merged.keys() == trained.keys() and all(torch.equal(merged[name], trained[name].bfloat16()) for name in trained)


def export(run_dir: Path, out: Path, *options: str) -> Path:
    """launch/export.py as a user starts it."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, str(root / "launch" / "export.py"), str(run_dir), "--out", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": str(root)})
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "config.json").read_text())["dtype"] in ("float32", "bfloat16") and (out / "provenance.json").is_file()
    return out


def test_no_key_of_the_judge_is_written_anywhere(finished_job):
    files = [path for path in Path(finished_job.run_dir).rglob("*") if path.suffix in (".json", ".jsonl", ".yaml")]
    assert not [path for path in files if "secret" in path.read_text()]
    assert "secret" not in finished_job.output


def test_the_job_leaves_a_page_with_all_its_episodes(finished_job):
    page = (finished_job.run_dir / "report.html").read_text()
    assert f"report: {finished_job.run_dir / 'report.html'}" in finished_job.output
    assert all(json.dumps(line["task_id"])[1:-1] in page for line in finished_job.trajectories("step"))
    assert "Log-prob mismatch" in page and '"msg:1":{"level":"raw"' in page


def test_an_offline_wandb_run_lies_in_the_run_directory_with_the_trajectories_as_a_table(finished_job):
    (offline,) = (finished_job.run_dir / "wandb").glob("offline-run-*")
    assert f"wandb sync {offline}" in finished_job.output
    (path,) = (offline / "files" / "media" / "table").glob("trajectories_*.table.json")
    table = json.loads(path.read_text())
    assert len(table["data"]) == len(finished_job.trajectories("step")) + len(finished_job.trajectories("val"))


def test_its_episodes_are_replayed_token_by_token_and_sampled_again_from_their_seeds(finished_job, capsys):
    first = [line for line in finished_job.trajectories("step") if line["step"] == 1]
    assert len(first) == 16
    for line in first:
        assert replay(finished_job, line, capsys)["result"] == "equal"
    again = [replay(finished_job, line, capsys, "--model")["result"] for line in first[:8]]
    assert again.count("equal") >= 7, "one engine, the same weights and seeds; batches may round one of them otherwise"
    for line in finished_job.trajectories("val"):
        assert replay(finished_job, line, capsys, kind="--validation")["result"] == "equal"
        assert replay(finished_job, line, capsys, "--model", kind="--validation")["result"] == "equal", "greedy, by the checkpoint of step 2"


def replay(finished_job, line, capsys, *arguments, kind="--train"):
    place = [kind, "--step", str(line["step"]), "--sample", str(line["sample"])]
    status = main(["replay", str(finished_job.run_dir), line["task_id"], *place, *arguments, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert status == {"equal": 0, "differs": 1, "cannot": 2}[found["result"]], found
    return found
