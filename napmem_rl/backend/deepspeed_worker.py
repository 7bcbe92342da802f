"""One process of a supervised run with DeepSpeed, started by torchrun: ``python -m napmem_rl.backend.deepspeed_worker CONFIG``.

transformers' Trainer does the work. Its loss is verl's: the mean over all learnt tokens of a step's batch, whatever rank or micro-batch they fell to.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from napmem_rl.backend.lora import add_adapter
from napmem_rl.backend.sft_dataset import DemonstrationDataset
from napmem_rl.config.sections import LoraConfig
from napmem_rl.config.sft_engine import BatchPlan, training_arguments
from napmem_rl.errors import ConfigError, report_errors

IGNORED = -100  # label of a token that is not learnt
SHARED_MEMORY_OP = "deepspeed_shm_comm"  # DeepSpeed's name of it


class PaddedBatch:
    """Collates demonstrations: padded on the right to the longest, attention and loss on their own tokens alone."""

    def __init__(self, pad_id: int) -> None:
        self._pad_id = pad_id

    def __call__(self, rows: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """`input_ids`, `attention_mask` and `labels`, each [B, L]."""
        longest = max(len(row["input_ids"]) for row in rows)

        def pad(row: torch.Tensor, value: int) -> torch.Tensor:
            return torch.nn.functional.pad(row, (0, longest - len(row)), value=value)

        labels = [row["input_ids"].masked_fill(row["loss_mask"] == 0, IGNORED) for row in rows]
        return {
            "input_ids": torch.stack([pad(row["input_ids"], self._pad_id) for row in rows]),
            "attention_mask": torch.stack([pad(torch.ones_like(row["input_ids"]), 0) for row in rows]),
            "labels": torch.stack([pad(row, IGNORED) for row in labels]),
        }


def train(config: Mapping[str, Any]) -> None:
    """Train and write the model, or the adapter, to `config["output"]`.

    Args:
        config: as `sft_training` wrote it: paths of `model`, `demonstrations`, `output` and `deepspeed`; `platform`, `plan`, verl's keys as `recipe`, `lora`.

    Raises:
        ConfigError: DeepSpeed is not installed.
    """
    is_cpu = config["platform"] == "cpu"
    if is_cpu:
        os.environ["DS_ACCELERATOR"] = "cpu"
    try:
        import deepspeed
    except ImportError as error:
        raise ConfigError.of("sft.engine", "needs the package deepspeed", fix="bash launch/install.sh cpu deepspeed, or sft.engine=fsdp2.") from error
    if is_cpu:  # else it compiles a transport through shared memory first, which takes a compiler and a minute; gloo does without
        deepspeed.ops.__compatible_ops__[SHARED_MEMORY_OP] = False
    from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

    settings = json.loads(Path(config["deepspeed"]).read_text(encoding="utf-8"))
    known = training_arguments(config["recipe"], BatchPlan(**config["plan"]), is_cpu=is_cpu)
    arguments = TrainingArguments(output_dir=f"{config['output']}.trainer", deepspeed=settings, **known)  # before the model: it is loaded in parts then
    tokenizer = AutoTokenizer.from_pretrained(config["model"])
    model = AutoModelForCausalLM.from_pretrained(config["model"], dtype=torch.float32 if is_cpu else torch.bfloat16, attn_implementation="sdpa")
    lora = LoraConfig(**config["lora"])
    if lora.rank:
        model = add_adapter(model, lora)
        if arguments.gradient_checkpointing:
            model.enable_input_require_grads()
    rows = DemonstrationDataset(config["demonstrations"], tokenizer, config["recipe"]["data"])
    pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    trainer = Trainer(model=model, args=arguments, train_dataset=rows, data_collator=PaddedBatch(pad_id))
    trainer.train()
    trainer.save_model(config["output"])
    if trainer.is_world_process_zero():
        tokenizer.save_pretrained(config["output"])


@report_errors
def main() -> int:
    """Train by the configuration in the file named on the command line."""
    from omegaconf import OmegaConf

    train(OmegaConf.to_container(OmegaConf.load(sys.argv[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
