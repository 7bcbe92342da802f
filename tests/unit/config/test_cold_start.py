"""`cold_start`: a recipe that can make the policy it starts from."""

from __future__ import annotations

from pathlib import Path

import pytest

from napmem_rl.config.recipe import load_recipe
from napmem_rl.errors import ConfigError

RECIPE = "platform: cpu\ncold_start: sft.yaml\ndata: {dir: DIR}\nactor_rollout_ref: {model: {path: '${data.dir}/model'}, rollout: {n: 2}}\n"


def write_recipe(tmp_path: Path, text: str = RECIPE) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(text.replace("DIR", str(tmp_path / "data")))
    (tmp_path / "sft.yaml").write_text("platform: cpu\n")
    return path


def test_a_missing_policy_is_made_first_and_is_no_missing_path(tmp_path: Path) -> None:
    recipe = load_recipe(write_recipe(tmp_path))
    assert recipe.needs_cold_start() and recipe.cold_start == tmp_path / "sft.yaml" and recipe.model_path == tmp_path / "data" / "model"
    assert not any("model" in problem for problem in recipe.find_missing_paths())


def test_a_policy_that_is_there_is_used(tmp_path: Path) -> None:
    (tmp_path / "data" / "model").mkdir(parents=True)
    assert not load_recipe(write_recipe(tmp_path)).needs_cold_start()


def test_without_cold_start_a_missing_policy_is_a_missing_path(tmp_path: Path) -> None:
    recipe = load_recipe(write_recipe(tmp_path, RECIPE.replace("cold_start: sft.yaml\n", "")))
    assert not recipe.needs_cold_start()
    assert any(problem.startswith("actor_rollout_ref.model.path") for problem in recipe.find_missing_paths())


def test_a_cold_start_recipe_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = write_recipe(tmp_path)
    (tmp_path / "sft.yaml").unlink()
    assert f"cold_start: {tmp_path / 'sft.yaml'} does not exist" in load_recipe(path).find_missing_paths()


def test_cold_start_must_be_a_file_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cold_start"):
        load_recipe(write_recipe(tmp_path, RECIPE.replace("sft.yaml", "3")))
