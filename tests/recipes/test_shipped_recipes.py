"""Every recipe that ships loads, and says what it claims to say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from napmem_rl.config.recipe import Recipe, load_recipe
from napmem_rl.errors import ConfigError

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
OPEN = {
    "quickstart.yaml": ("data.dir=/d",),
    "quickstart_async.yaml": ("data.dir=/d",),
    "napmem/smoke_locomo.yaml": ("data.dir=/d",),
    "napmem/grpo.yaml": ("data.dir=/d", "actor_rollout_ref.model.path=/m", "memory.encoder=/e", "judge.model=j"),
    "napmem/async.yaml": ("data.dir=/d", "actor_rollout_ref.model.path=/m", "memory.encoder=/e", "judge.model=j"),
    "memchain/smoke.yaml": ("data.dir=/d",),
    "memchain/cpu.yaml": ("data.dir=/d",),
    "napmem/grpo_served.yaml": ("data.dir=/d", "actor_rollout_ref.model.path=/m", "memory.encoder=/e", "reward.reward_model.model_path=/j"),
    "memchain/tmpo_served.yaml": (
        *("data.dir=/d", "actor_rollout_ref.model.path=/m", "memory.encoder=/e", "judge.model=j"),
        "reward.reward_model.model_path=/f",
    ),
    "memchain/tmpo.yaml": ("data.dir=/d", "actor_rollout_ref.model.path=/m", "memory.encoder=/e", "judge.model=j", "answerer.model=f"),
    "napmem/grpo_lora.yaml": ("data.dir=/d", "actor_rollout_ref.model.path=/m", "memory.encoder=/e", "judge.model=j"),
}


def load(name: str) -> Recipe:
    return load_recipe(RECIPES / name, OPEN[name])


def test_the_list_of_grpo_recipes_is_complete() -> None:
    """Recipes of launch/sft.py start with `sft`, those of launch/evaluate.py lie in eval/, of launch/rmm.py in rmm/; all are loaded by their own tests."""
    others = {path for path in RECIPES.rglob("*.yaml") if "sft" in path.name or path.parent.name in ("eval", "rmm")}
    assert {str(path.relative_to(RECIPES)) for path in set(RECIPES.rglob("*.yaml")) - others} == set(OPEN)


@pytest.mark.parametrize("name", sorted(OPEN))
def test_a_shipped_recipe_loads_once_what_it_leaves_open_is_given(name: str) -> None:
    assert load(name).system == ("memchain" if name.startswith("memchain/") else "napmem")
    with pytest.raises(ConfigError) as caught:
        load_recipe(RECIPES / name)
    assert all(given.split("=")[0] in str(caught.value) for given in OPEN[name])


@pytest.mark.parametrize("name", sorted(OPEN))
def test_a_shipped_recipe_keeps_advantage_and_sampling_of_the_paper(name: str) -> None:
    verl = load(name).verl
    assert verl.algorithm.adv_estimator == "grpo" and verl.algorithm.norm_adv_by_std_in_grpo is name.startswith("memchain/")
    assert (verl.actor_rollout_ref.rollout.temperature, verl.actor_rollout_ref.rollout.top_p) == (1.0, 1)


def test_the_paper_recipe_holds_the_values_of_table_6() -> None:
    recipe = load("napmem/grpo.yaml")
    actor, rollout = recipe.verl.actor_rollout_ref.actor, recipe.verl.actor_rollout_ref.rollout
    assert (recipe.verl.data.train_batch_size, rollout.n, actor.optim.lr) == (8, 4, 1e-6)
    assert (actor.use_kl_loss, actor.kl_loss_coef, actor.entropy_coeff) == (True, 0.001, 0)
    assert recipe.agent.max_tool_steps + 1 == 5  # assistant turns
    assert (rollout.dtype, recipe.verl.trainer.total_epochs, recipe.verl.trainer.n_gpus_per_node, rollout.name) == ("bfloat16", 5, 8, "vllm")
    assert rollout.val_kwargs.top_p == 0.9
    assert recipe.judge.kind == "openai"


@pytest.mark.parametrize("name", ["memchain/smoke.yaml", "memchain/tmpo.yaml"])
def test_a_recipe_of_memchain_trains_with_equation_14(name: str) -> None:
    recipe = load(name)
    actor = recipe.verl.actor_rollout_ref.actor
    assert (actor.policy_loss.loss_mode, actor.loss_agg_mode, actor.use_kl_loss, actor.entropy_coeff) == ("tmpo", "seq-mean-token-mean", True, 0)
    assert (actor.clip_ratio_low, actor.clip_ratio_high, actor.kl_loss_coef) == (3e-4, 4e-4, 1e-3)
    assert (recipe.memchain.ablation, recipe.memchain.guided) == ("none", False)
    assert [notice for notice in recipe.notices if "answer" not in notice] == []


def test_the_recipe_of_memchain_says_which_values_are_ours() -> None:
    recipe, text = load("memchain/tmpo.yaml"), (RECIPES / "memchain" / "tmpo.yaml").read_text()
    verl = recipe.verl.actor_rollout_ref
    assert (verl.rollout.n, verl.actor.optim.lr, recipe.memchain.max_candidates, recipe.verl.trainer.n_gpus_per_node) == (8, 1e-6, 24, 8)
    for key in ("n: 8", "lr: 1.0e-6", "clip_ratio_low: 3.0e-4", "clip_ratio_high: 4.0e-4", "kl_loss_coef: 0.001", "entropy_coeff: 0", "num_answers: 4"):
        (line,) = [line for line in text.splitlines() if line.strip().startswith(key)]
        assert "# OURS" in line


def test_the_other_sizes_of_the_paper_are_overrides_that_change_no_value_of_the_optimisation() -> None:
    """The overrides stand in the recipe as comments; "the same data interface and core optimization settings" (appendix A.5)."""
    text = (RECIPES / "memchain" / "tmpo.yaml").read_text()
    lines = dict(re.findall(r"^#   ([\d.]+B): (.+)$", text, flags=re.MULTILINE))
    assert set(lines) == {"1.7B", "8B"}
    full = load("memchain/tmpo.yaml")
    for overrides in lines.values():
        other = load_recipe(RECIPES / "memchain" / "tmpo.yaml", [*OPEN["memchain/tmpo.yaml"], *overrides.split()])
        differing = {key.rsplit(".", 1)[-1] for key in other.changed if other.changed[key] != full.changed.get(key)}
        assert "path" in differing and differing <= {"path", "ppo_max_token_len_per_gpu", "gpu_memory_utilization"}
        assert other.sections() == full.sections()


SERVED = [("napmem/grpo_served.yaml", "napmem/grpo.yaml", "judge"), ("memchain/tmpo_served.yaml", "memchain/tmpo.yaml", "answerer")]


@pytest.mark.parametrize(("name", "base", "key"), SERVED)
def test_a_recipe_with_a_served_model_differs_in_who_is_asked_and_in_where_it_is_placed(name: str, base: str, key: str) -> None:
    served, plain = load(name), load(base)
    ours, theirs = served.sections(), plain.sections()
    assert ours[key] == theirs[key] | {"kind": "served", "model": None} and {**ours, key: 0} == {**theirs, key: 0}
    pool = served.verl.reward.reward_model
    assert (pool.n_gpus_per_node + served.verl.trainer.n_gpus_per_node, pool.nnodes) == (plain.verl.trainer.n_gpus_per_node, 1)
    assert (pool.rollout.name, pool.rollout.tensor_model_parallel_size, pool.rollout.free_cache_engine) == ("vllm", 1, False)


def test_the_lora_recipe_differs_in_adapters_rate_and_name_alone() -> None:
    full, lora = load("napmem/grpo.yaml"), load("napmem/grpo_lora.yaml")
    assert lora.sections() == full.sections()
    differing = {key for key in lora.changed if lora.changed.get(key) != full.changed.get(key)}
    assert differing == {
        "actor_rollout_ref.model.lora_rank",
        "actor_rollout_ref.model.lora_alpha",
        "actor_rollout_ref.actor.optim.lr",
        "actor_rollout_ref.rollout.load_format",
        "actor_rollout_ref.model.target_modules",
        "trainer.experiment_name",
        "trainer.default_local_dir",
    }


@pytest.mark.parametrize(("name", "base"), [("napmem/async.yaml", "napmem/grpo.yaml"), ("quickstart_async.yaml", "quickstart.yaml")])
def test_an_asynchronous_recipe_differs_in_mode_correction_and_name_alone(name: str, base: str) -> None:
    synchronous, asynchronous = load(base), load(name)
    assert asynchronous.sections() == synchronous.sections()
    differing = {key: asynchronous.changed.get(key) for key in asynchronous.changed if asynchronous.changed.get(key) != synchronous.changed.get(key)}
    assert {key: value for key, value in differing.items() if "name" not in key and "local_dir" not in key} == {
        "algorithm.rollout_correction.rollout_is": "token",
        "algorithm.rollout_correction.rollout_is_threshold": 2.0,
        "trainer.v1.trainer_mode": "colocate_async",
        "trainer.v1.colocate_async.num_warmup_batches": 1,
        "trainer.v1.sampler.max_off_policy_threshold": 3,
    }
    sampler = asynchronous.verl.trainer.v1.sampler
    assert (sampler.max_off_policy_strategy, asynchronous.verl.trainer.v1.colocate_async.num_warmup_batches) == ("wait", 1)
    correction = asynchronous.verl.algorithm.rollout_correction
    assert (correction.rollout_is_threshold, correction.bypass_mode, correction.rollout_rs) == (2.0, False, None)
    assert asynchronous.verl.actor_rollout_ref.rollout.calculate_log_probs


def test_the_quickstart_recipe_is_the_measured_one() -> None:
    verl = load("quickstart.yaml").verl
    assert (verl.data.train_batch_size, verl.actor_rollout_ref.rollout.n, verl.trainer.total_training_steps) == (16, 8, 90)
    assert verl.actor_rollout_ref.actor.use_kl_loss is False and verl.actor_rollout_ref.actor.loss_agg_mode == "token-mean"
    assert verl.actor_rollout_ref.actor.optim.lr_warmup_steps == 0  # warm-up would make the first step's rate 0


def test_the_page_on_algorithms_gives_the_rates_of_the_recipes() -> None:
    page = (RECIPES.parent / "docs" / "algorithms.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith("| learning rate ")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert [float(cells[1]), float(cells[3])] == [load(name).verl.actor_rollout_ref.actor.optim.lr for name in ("napmem/grpo.yaml", "quickstart.yaml")]
