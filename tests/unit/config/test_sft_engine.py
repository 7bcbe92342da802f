"""Which trainer a supervised run takes, what DeepSpeed's reads of a recipe, and how it gets through the rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from napmem_rl.config.sft_engine import ZERO3, BatchPlan, plan_batches, training_arguments
from napmem_rl.config.sft_recipe import SftRecipe, load_sft_recipe
from napmem_rl.errors import ConfigError

PAPER = Path(__file__).resolve().parents[3] / "recipes" / "memchain" / "sft.yaml"
GIVEN = ("data.dir=/d", "output=/o", "memory.encoder=/e", "teacher.model=t", "model.path=/m")


def load(*overrides: str) -> SftRecipe:
    return load_sft_recipe(PAPER, [*GIVEN, *overrides])


def test_the_papers_recipe_runs_by_either_trainer() -> None:
    assert load().sft.engine == "fsdp2"
    recipe = load("sft.engine=deepspeed")
    assert recipe.deepspeed_file == ZERO3
    settings = json.loads(ZERO3.read_text())
    assert settings["zero_optimization"]["stage"] == 3 and settings["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"]


def test_the_papers_values_reach_deepspeeds_trainer() -> None:
    """5882 packets in batches of 32 for two epochs are 2 x 183 steps, 3% of them warm-up: 10. Two rows of 8192 tokens fit 16384, four a rank: two at a time."""
    recipe = load("sft.engine=deepspeed")
    plan = plan_batches(recipe, num_rows=5882)
    assert plan == BatchPlan(micro=2, accumulate=2, num_steps=366, warmup_steps=10)
    from omegaconf import OmegaConf

    known = training_arguments(OmegaConf.to_container(recipe.verl), plan, is_cpu=False)
    assert (known["learning_rate"], known["max_grad_norm"], known["max_steps"], known["warmup_steps"]) == (8e-5, 1.0, 366, 10)
    assert known["per_device_train_batch_size"] * known["gradient_accumulation_steps"] * 8 == 32 and known["bf16"]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (("sft.engine=zero",), "key sft.engine: is none of the trainers; got 'zero'; expected fsdp2 or deepspeed"),
        (("sft.deepspeed=x.json",), "key sft.deepspeed: would do nothing: sft.engine is fsdp2"),
        (("sft.engine=deepspeed", "sft.deepspeed=/nowhere.json"), "key sft.deepspeed: names no file"),
        (("sft.engine=deepspeed", "engine.strategy=fsdp2"), "key engine.strategy: would do nothing: sft.engine is deepspeed"),
        (("sft.engine=deepspeed", "optim.num_cycles=1.0"), "key optim.num_cycles: would do nothing"),
        (("sft.engin=deepspeed",), "Did you mean sft.engine?"),
    ],
)
def test_what_does_not_fit_the_trainer_is_refused(overrides: tuple[str, ...], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(*overrides)
    assert expected in str(caught.value)


@pytest.mark.parametrize(("overrides", "rows", "expected"), [(("data.train_batch_size=30",), 100, "is not divided by"), ((), 31, "too few demonstrations")])
def test_rows_that_make_no_batch_are_refused(overrides: tuple[str, ...], rows: int, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        plan_batches(load("sft.engine=deepspeed", *overrides), num_rows=rows)


def test_a_schedule_that_the_trainer_does_not_have_is_named() -> None:
    from omegaconf import OmegaConf

    recipe = OmegaConf.to_container(load("sft.engine=deepspeed").verl)
    recipe["optim"]["lr_scheduler_type"] = "wsd"
    with pytest.raises(ConfigError, match="optim.lr_scheduler_type: is none of the schedules"):
        training_arguments(recipe, BatchPlan(micro=1, accumulate=1, num_steps=1, warmup_steps=0), is_cpu=True)
