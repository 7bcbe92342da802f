"""MemChain's job with its answer model and its judge served beside training, on the CPU: one model in verl's pool of reward models, over HTTP.

The served model was taught to say one verdict whatever it is asked: as judge it finds every answer correct, as answer model it answers with that text.
"""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest
from finished_job import FinishedJob
from grpo_launch import build_launch
from packet_job import learn_packets, write_packet_data

VERDICT = json.dumps({"verdict": "correct", "reason": "equal"})
RECIPE = """
platform: cpu
system: memchain
agent: {max_turn_tokens: 64, max_context_tokens: 256}
memory: {encoder: hashing}
memchain: {max_candidates: 2, num_answers: 2}
answerer: {kind: served, max_retries: 0, patience_s: 5, max_tokens: 8}
judge: {kind: served, max_retries: 0}
reward: {reward_model: {model_path: "${data.dir}/served", rollout: {max_model_len: 1024, max_num_seqs: 8}}}
data: {dir: "???", train_batch_size: 4, shuffle: false, seed: 7}
actor_rollout_ref:
  model: {path: "${data.dir}/model"}
  actor:
    ppo_mini_batch_size: 4
    policy_loss: {loss_mode: tmpo}
    loss_agg_mode: seq-mean-token-mean
    use_kl_loss: false
    optim: {lr: 1.0e-4, lr_warmup_steps: 0}
  rollout: {n: 4, val_kwargs: {temperature: 0}}
algorithm: {norm_adv_by_std_in_grpo: true}
trainer: {experiment_name: served, n_gpus_per_node: 1, total_epochs: 1, total_training_steps: 2, val_before_train: false, test_freq: -1, save_freq: -1}
"""


@pytest.fixture(scope="module")
def served_job(tmp_path_factory: pytest.TempPathFactory) -> FinishedJob:
    """The job, run once."""
    directory = tmp_path_factory.mktemp("served_data")
    write_all(directory)
    run_dir = directory / "run"
    arguments = [str(directory / "recipe.yaml"), f"data.dir={directory}", f"trainer.default_local_dir={run_dir}"]
    done = subprocess.run(**build_launch(*arguments, script="tmpo.py"), capture_output=True, text=True, timeout=900)
    return FinishedJob(run_dir, directory, done.stdout + done.stderr, done.returncode, 0.0)


def write_all(directory: Path) -> None:
    """Recipe, banks, rows, a policy that mostly writes packets, and the model that is served."""
    from napmem_rl.config.sections import AgentConfig

    (directory / "recipe.yaml").write_text(RECIPE)
    rows = write_packet_data(directory, num_train=8)
    learn_packets(directory / "model", rows, AgentConfig(max_turn_tokens=64, max_context_tokens=256))
    write_served(directory / "served")


def write_served(path: Path) -> None:
    """A model whose every reply is the verdict."""
    from napmem_rl.backend.tiny_policy import build_model, build_tokenizer, save_policy

    tokenizer = build_tokenizer(["question references answer evidence"], max_length=1024, plain=[VERDICT])
    save_policy(build_model(tokenizer, seed=0, width=16, layers=1, heads=2, ffn=32), tokenizer, path)
    rng, last = random.Random(0), tokenizer.convert_tokens_to_ids("<|assistant|>")
    reply = [tokenizer.convert_tokens_to_ids(VERDICT), tokenizer.eos_token_id]
    examples = [[rng.randrange(len(tokenizer)) for _ in range(rng.randrange(5, 60))] for _ in range(16)]
    fit(path, [([*prompt, last, *reply], [*([0] * (len(prompt) + 1)), 1, 1]) for prompt in examples], steps=60)


def fit(path: Path, examples: list, *, steps: int) -> None:
    """Train the model of a directory in place."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="sdpa")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(steps):
        loss = sum(
            model(input_ids=torch.tensor([ids]), labels=torch.tensor([[token if is_learnt else -100 for token, is_learnt in zip(ids, mask, strict=True)]])).loss
            for ids, mask in (examples[(4 * step + index) % len(examples)] for index in range(4))
        )
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(path)


def test_the_job_with_a_served_model_ends_well(served_job: FinishedJob) -> None:
    assert served_job.exit_code == 0, served_job.output[-4000:]
    assert "one model judges its own answers" in served_job.output


def test_packets_are_paid_by_what_the_served_model_answers_and_judges(served_job: FinishedJob) -> None:
    lines = served_job.trajectories("step")
    scored = [line for line in lines if line["terms"].get("correctness")]
    assert len(lines) == 32 and scored, "packets with evidence were answered and judged correct"
    assert {line["terms"]["correctness"] for line in scored} == {1.0} and all(line["reward"] > 0.5 for line in scored)
    assert {line["judge"].partition("/napmem-judge")[0] for line in lines} == {str(served_job.data_dir / "served")}
    assert [line["abstained"] for line in lines] == [None] * 32


def test_the_learner_saw_both_steps(served_job: FinishedJob) -> None:
    metrics = served_job.metrics()
    assert [entry["step"] for entry in metrics] == [1, 2]
    assert all(entry["napmem/abstained"] == 0 for entry in metrics)
