"""The section `sft` of a recipe of launch/sft.py: which trainer runs, and what DeepSpeed's reads of the rest."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from napmem_rl.errors import ConfigError

if TYPE_CHECKING:
    from napmem_rl.config.sft_recipe import SftRecipe

FSDP2, DEEPSPEED = "fsdp2", "deepspeed"
ZERO3 = Path(__file__).resolve().parents[2] / "recipes" / "deepspeed" / "zero3.json"
_OF_VERL = ("model", "engine", "optim", "checkpoint", "profiler", "data", "trainer")  # verl's sections
DEEPSPEED_READS = frozenset(
    {f"model.{name}" for name in ("path", "enable_gradient_checkpointing")}
    | {f"data.{name}" for name in ("dir", "train_batch_size", "max_token_len_per_gpu")}
    | {f"optim.{name}" for name in ("lr", "lr_warmup_steps", "lr_warmup_steps_ratio", "weight_decay", "betas", "clip_grad", "lr_scheduler_type")}
    | {f"trainer.{name}" for name in ("total_epochs", "seed", "n_gpus_per_node", "experiment_name", "project_name")}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SftConfig:
    """Which trainer runs."""

    engine: str = FSDP2  # fsdp2 (verl's SFT trainer) | deepspeed (transformers' Trainer with ZeRO-3; the extra `deepspeed`)
    deepspeed: str | None = None  # JSON file of DeepSpeed's configuration; recipes/deepspeed/zero3.json unless set


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPlan:
    """How DeepSpeed gets through the rows: `micro` rows a rank at a time, `accumulate` times a step."""

    micro: int
    accumulate: int
    num_steps: int
    warmup_steps: int

    def as_dict(self) -> dict[str, int]:
        """Plain data."""
        return dataclasses.asdict(self)


def check_engine(sft: SftConfig, given: Mapping[str, str]) -> None:
    """Raise ConfigError for an unknown engine, a file that is not there, or a key that would do nothing.

    Args:
        sft: the section.
        given: for each key that a recipe or an argument sets, where.
    """
    if sft.engine not in (FSDP2, DEEPSPEED):
        where = given.get("sft.engine", "recipe")
        raise ConfigError.of(f"{where}, key sft.engine", "is none of the trainers", got=sft.engine, expected=f"{FSDP2} or {DEEPSPEED}")
    if sft.engine == FSDP2:
        if sft.deepspeed is not None:
            raise ConfigError.of(f"{given['sft.deepspeed']}, key sft.deepspeed", f"would do nothing: sft.engine is {FSDP2}", fix="Remove it.")
        return
    if not find_deepspeed_file(sft).is_file():
        raise ConfigError.of("key sft.deepspeed", "names no file", got=str(find_deepspeed_file(sft)), expected="DeepSpeed's configuration as JSON")
    for dotted, where in given.items():
        if dotted.split(".")[0] in _OF_VERL and dotted not in DEEPSPEED_READS:
            why = f"sft.engine is {DEEPSPEED}, which reads {', '.join(sorted(DEEPSPEED_READS))} and {find_deepspeed_file(sft).name}"
            raise ConfigError.of(f"{where}, key {dotted}", f"would do nothing: {why}", fix="Remove it.")


def find_deepspeed_file(sft: SftConfig) -> Path:
    """DeepSpeed's configuration."""
    return Path(sft.deepspeed).expanduser().absolute() if sft.deepspeed is not None else ZERO3


def plan_batches(recipe: SftRecipe, *, num_rows: int) -> BatchPlan:
    """As many rows at a time as `data.max_token_len_per_gpu` holds, each as long as the longest may be. Rows of an epoch that fill no batch are left out.

    Args:
        recipe: of the run.
        num_rows: demonstrations.

    Raises:
        ConfigError: the ranks do not divide the batch, or the rows hold no batch.
    """
    data, optim, trainer = recipe.verl.data, recipe.verl.optim, recipe.verl.trainer
    share, rest = divmod(data.train_batch_size, trainer.n_gpus_per_node)
    if rest:
        what = f"recipe {recipe.path}, key data.train_batch_size"
        raise ConfigError.of(what, "is not divided by trainer.n_gpus_per_node", got=data.train_batch_size, expected=f"a multiple of {trainer.n_gpus_per_node}")
    fitting = max(1, data.max_token_len_per_gpu // recipe.agent.max_context_tokens)
    micro = max(size for size in range(1, min(fitting, share) + 1) if share % size == 0)
    num_steps = num_rows // data.train_batch_size * trainer.total_epochs
    if num_steps == 0:
        raise ConfigError.of(f"recipe {recipe.path}", "too few demonstrations for one batch", got=num_rows, expected=f"at least {data.train_batch_size}")
    warmup = optim.lr_warmup_steps if optim.lr_warmup_steps > 0 else math.floor(optim.lr_warmup_steps_ratio * num_steps)  # as verl has it
    return BatchPlan(micro=micro, accumulate=share // micro, num_steps=num_steps, warmup_steps=warmup)


def training_arguments(recipe: Mapping[str, Any], plan: BatchPlan, *, is_cpu: bool) -> dict[str, Any]:
    """What transformers' Trainer gets of verl's keys.

    Args:
        recipe: verl's configuration as plain data.
        plan: see `plan_batches`.
        is_cpu: of the platform: float32 over gloo; else bfloat16.
    """
    optim = recipe["optim"]
    schedules = {"constant": "constant_with_warmup", "cosine": "cosine"}
    if optim["lr_scheduler_type"] not in schedules:
        raise ConfigError.of("key optim.lr_scheduler_type", "is none of the schedules", got=optim["lr_scheduler_type"], expected=" or ".join(schedules))
    return {
        "per_device_train_batch_size": plan.micro,
        "gradient_accumulation_steps": plan.accumulate,
        "max_steps": plan.num_steps,
        "warmup_steps": plan.warmup_steps,
        "learning_rate": float(optim["lr"]),
        "lr_scheduler_type": schedules[optim["lr_scheduler_type"]],
        "weight_decay": optim["weight_decay"],
        "adam_beta1": optim["betas"][0],
        "adam_beta2": optim["betas"][1],
        "max_grad_norm": optim["clip_grad"],
        "gradient_checkpointing": bool(recipe["model"]["enable_gradient_checkpointing"]),
        "seed": recipe["trainer"]["seed"],
        "bf16": not is_cpu,
        "use_cpu": is_cpu,
        "ddp_backend": "gloo" if is_cpu else None,
        "dataloader_drop_last": True,
        "remove_unused_columns": False,
        "save_strategy": "no",
        "logging_steps": 1,
        "report_to": [],
        "optim": "adamw_torch",
    }
