"""Every shipped recipe passes verl's own validation, and names nothing that is not there."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from napmem_rl.config.recipe import Recipe, load_recipe

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
GIVEN = ("data.dir=/d", "actor_rollout_ref.model.path=/m", "memory.encoder=hashing")
GRPO = sorted(path for path in RECIPES.rglob("*.yaml") if "sft" not in path.name and path.parent.name not in ("eval", "rmm"))
JUDGE = dict.fromkeys(("grpo.yaml", "grpo_lora.yaml", "async.yaml"), ("judge.model=j",)) | {
    "tmpo.yaml": ("judge.model=j", "answerer.model=f"),
    "tmpo_served.yaml": ("judge.model=j", "reward.reward_model.model_path=/f"),
    "grpo_served.yaml": ("reward.reward_model.model_path=/f",),
}


def load(path: Path) -> Recipe:
    return load_recipe(path, (*GIVEN, *JUDGE.get(path.name, ())))


@pytest.fixture(scope="module", params=GRPO, ids=lambda path: path.stem)
def recipe(request: pytest.FixtureRequest) -> Recipe:
    return load(request.param)


def test_the_sections_of_a_shipped_recipe_build_verls_own_configurations(recipe: Recipe) -> None:
    from verl.utils.config import omega_conf_to_dataclass

    rollout = omega_conf_to_dataclass(recipe.verl.actor_rollout_ref.rollout)
    actor = omega_conf_to_dataclass(recipe.verl.actor_rollout_ref.actor)
    actor.validate(recipe.verl.trainer.n_gpus_per_node, recipe.verl.data.train_batch_size)
    assert (rollout.n, actor.strategy, actor.engine.strategy) == (recipe.verl.actor_rollout_ref.rollout.n, "fsdp2", "fsdp2")
    assert rollout.max_model_len == recipe.agent.max_context_tokens


def test_the_modules_a_recipe_names_exist(recipe: Recipe) -> None:
    rollout = recipe.verl.actor_rollout_ref.rollout
    modules = [rollout.agent.agent_loop_manager_class.rsplit(".", 1)[0], recipe.env["VERL_USE_EXTERNAL_MODULES"]]
    modules.append(recipe.verl.trainer.v1.sampler.custom_sampler.path.removeprefix("pkg://"))
    assert [name for name in modules if importlib.util.find_spec(name) is None] == []


def test_verl_still_ignores_what_the_refusals_say_it_ignores() -> None:
    """Keys refused because verl's v1 trainer never reads them; a new verl that does read one must move it off the list."""
    package = Path(importlib.util.find_spec("verl").submodule_search_locations[0])
    readers = [*(package / "trainer" / "ppo" / "v1").glob("*.py"), *(package / "experimental" / "agent_loop").glob("*.py"), package / "trainer" / "main_ppo.py"]
    text = "\n".join(path.read_text() for path in readers)
    assert [name for name in ("over_sample_rate", "use_pf_ppo", "esi_redundant_time", "reward_fn_key", "val_kwargs.do_sample") if name in text] == []
