"""Recipes of launch/sft.py load, agree with the training recipe that follows them, and refuse what they do not know."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from napmem_rl.config.recipe import load_recipe
from napmem_rl.config.sft_recipe import load_sft_recipe
from napmem_rl.errors import ConfigError

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
GIVEN = {"memchain/sft.yaml": ("output=/o", "memory.encoder=/e", "teacher.model=t", "model.path=/m")}
SMOKE = RECIPES / "napmem" / "sft_smoke.yaml"


@pytest.mark.parametrize("path", sorted(RECIPES.rglob("*sft*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_sft_recipe_loads(path: Path) -> None:
    recipe = load_sft_recipe(path, ["data.dir=/data", *GIVEN.get(str(path.relative_to(RECIPES)), ())])
    assert recipe.verl.data.custom_cls.name == "DemonstrationDataset"
    assert recipe.verl.data.max_length == recipe.agent.max_context_tokens
    assert "hf_model" in recipe.verl.checkpoint.save_contents


def test_the_smoke_recipes_share_their_agent_section_and_hand_over_the_model() -> None:
    sft = load_sft_recipe(SMOKE, ["data.dir=/data"])
    grpo = load_recipe(RECIPES / "napmem" / "smoke_locomo.yaml", ["data.dir=/data"])
    assert dataclasses.asdict(sft.agent) == dataclasses.asdict(grpo.agent)
    assert str(sft.output) == grpo.verl.actor_rollout_ref.model.path == "/data/model"


def test_the_smoke_recipes_of_memchain_agree_and_hand_over_the_policy() -> None:
    sft = load_sft_recipe(RECIPES / "memchain" / "sft_smoke.yaml", ["data.dir=/data"])
    tmpo = load_recipe(RECIPES / "memchain" / "smoke.yaml", ["data.dir=/data"])
    assert (sft.agent, sft.memory.encoder, sft.memchain) == (tmpo.agent, tmpo.memory.encoder, tmpo.memchain)
    assert str(sft.output) == tmpo.verl.actor_rollout_ref.model.path and sft.system == tmpo.system == "memchain"


def test_supervised_training_of_memchain_has_the_papers_values() -> None:
    recipe = load_sft_recipe(RECIPES / "memchain" / "sft.yaml", ["data.dir=/data", *GIVEN["memchain/sft.yaml"]])
    assert (recipe.lora.rank, recipe.lora.alpha, recipe.lora.dropout, recipe.lora.target_modules) == (32, 64, 0.05, "all-linear")
    optim = recipe.verl.optim
    assert (optim.lr, optim.lr_warmup_steps_ratio, optim.clip_grad, recipe.verl.trainer.total_epochs, recipe.count) == (8e-5, 0.03, 1.0, 2, 5882)
    text = (RECIPES / "memchain" / "sft.yaml").read_text()
    for size, overrides in re.findall(r"^#   ([\d.]+B): (.+)$", text, flags=re.MULTILINE):
        other = load_sft_recipe(RECIPES / "memchain" / "sft.yaml", ["data.dir=/data", *GIVEN["memchain/sft.yaml"], *overrides.split()])
        assert size in other.verl.model.path and (other.lora, other.verl.optim) == (recipe.lora, recipe.verl.optim)


def test_the_cpu_platform_trains_in_float32_under_fsdp2_and_asks_for_our_plugin() -> None:
    recipe = load_sft_recipe(SMOKE, ["data.dir=/data"])
    assert recipe.verl.engine.strategy == "fsdp2" and recipe.verl.engine.mixed_precision.param_dtype == "fp32"
    assert recipe.env["VERL_PLATFORM"] == "cpu" and recipe.env["VERL_USE_EXTERNAL_MODULES"] == "napmem_rl.backend.plugin"
    assert "VERL_PLATFORM" not in load_sft_recipe(SMOKE, ["data.dir=/data", "platform=gpu"]).env


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("agent.max_tool_step=2", "Did you mean agent.max_tool_steps?"),
        ("trainer.total_epoch=2", "Did you mean trainer.total_epochs?"),
        ("demonstrations.count=0", "demonstrations.count.*got 0"),
        ("agent.tool_format=3", "section agent, key tool_format: has the wrong type"),
        ("platform=tpu", "none of the platforms"),
        ("platform=[1]", "none of the platforms; got .1."),
        ("data.max_length=64", "agent.max_context_tokens sets it"),
        ("trainer.nnodes=2", "runs on one node here; got 2"),
        ("memory.banks=[1]", "expected str or null"),
        ("data.max_token_len_per_gpu=1024", "does not hold one demonstration.*expected at least 2048"),
    ],
)
def test_a_wrong_key_or_value_is_named(override: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        load_sft_recipe(SMOKE, ["data.dir=/data", override])


def test_an_encoder_on_disk_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_sft_recipe(SMOKE, ["data.dir=/data", "memory.encoder=./e"]).memory.encoder == f"{tmp_path}/e"
    assert load_sft_recipe(SMOKE, ["data.dir=/data"]).memory.encoder == "minilm"


def test_what_is_left_open_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="leaves open data.dir"):
        load_sft_recipe(SMOKE)
