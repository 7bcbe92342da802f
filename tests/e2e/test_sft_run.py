"""launch/sft.py for real, on a tiny policy and packets of fixed rules: adapters of the paper's size through verl, and through DeepSpeed where it is there."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest
from grpo_launch import build_launch
from packet_job import write_packet_data

RECIPE = """
platform: cpu
system: memchain
output: "???"
agent: {max_turn_tokens: 64, max_context_tokens: 256}
memory: {encoder: none}
memchain: {max_candidates: 2}
teacher: {kind: gold}
lora: {rank: 32, alpha: 64, dropout: 0.05, target_modules: all-linear}
demonstrations: {count: 16}
model: {path: "${data.dir}/model"}
data: {dir: "???", train_batch_size: 8, max_token_len_per_gpu: 512}
optim: {lr: 8.0e-5, lr_warmup_steps_ratio: 0.03, clip_grad: 1.0}
trainer: {experiment_name: tiny_sft, total_epochs: 2, n_gpus_per_node: 2}
"""
needs_deepspeed = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed: bash launch/install.sh cpu deepspeed")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sft_data")
    write_packet_data(directory, num_train=16)
    (directory / "sft.yaml").write_text(RECIPE)
    return directory


def run_sft(data: Path, output: Path, *overrides: str) -> str:
    arguments = [str(data / "sft.yaml"), f"data.dir={data}", f"output={output}", *overrides]
    done = subprocess.run(**build_launch(*arguments, script="sft.py"), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def compute_logits(model, ids):
    return model.eval()(input_ids=ids).logits.detach()


def check_merged(base: Path, output: Path) -> None:
    """The plain model of `output` says what base and adapter say together, and not what the base says."""
    import peft
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(output)
    ids = torch.tensor([tokenizer("where does ana live ? i live in oslo")["input_ids"]])
    adapted = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, attn_implementation="sdpa"), output / "adapter")
    config = adapted.peft_config["default"]
    assert (config.r, config.lora_alpha) == (32, 64)
    merged, plain = (AutoModelForCausalLM.from_pretrained(path, attn_implementation="sdpa") for path in (output, base))
    assert not [name for name, _ in merged.named_parameters() if "lora" in name]
    assert torch.allclose(compute_logits(merged, ids), compute_logits(adapted, ids), atol=1e-5)
    assert (compute_logits(merged, ids) - compute_logits(plain, ids)).abs().max() > 1e-4


def test_adapters_of_the_papers_size_are_trained_through_verl_and_merged_into_a_plain_model(data: Path, tmp_path: Path) -> None:
    said = run_sft(data, tmp_path / "out")
    assert "packets: 16 of 16 train questions" in said and "through verl" in said
    check_merged(data / "model", tmp_path / "out")
    facts = json.loads((tmp_path / "out" / "sft.json").read_text())
    assert (
        facts["demonstrations"] == 16 and (tmp_path / "out" / "packets.parquet").is_file() and (tmp_path / "out" / "adapter" / "adapter_config.json").is_file()
    )


@needs_deepspeed
def test_the_same_run_through_deepspeed_with_zero_3_on_two_ranks(data: Path, tmp_path: Path) -> None:
    assert "through DeepSpeed" in run_sft(data, tmp_path / "out", "sft.engine=deepspeed")
    check_merged(data / "model", tmp_path / "out")


@needs_deepspeed
def test_all_weights_are_trained_by_deepspeed_as_by_verl(data: Path, tmp_path: Path) -> None:
    """Two steps over the same sixteen rows in one batch, so that their order plays no part: both must end at the same weights."""
    import torch
    from transformers import AutoModelForCausalLM

    same = ("lora.rank=0", "data.train_batch_size=16", "optim.lr=1e-3", "optim.weight_decay=0.0", "optim.lr_warmup_steps_ratio=0.0")
    run_sft(data, tmp_path / "verl", *same)
    run_sft(data, tmp_path / "deepspeed", *same, "sft.engine=deepspeed")
    base, ours, theirs = (
        dict(AutoModelForCausalLM.from_pretrained(path).named_parameters()) for path in (data / "model", tmp_path / "verl", tmp_path / "deepspeed")
    )
    moved = max((ours[name] - base[name]).abs().max().item() for name in base)
    apart = max((ours[name] - theirs[name]).abs().max().item() for name in base)
    assert moved > 1e-3 and apart < 1e-4 * max(1.0, moved / 1e-3), f"weights moved by {moved:.2g} and are {apart:.2g} apart"
    assert torch.isfinite(next(iter(theirs.values()))).all()
