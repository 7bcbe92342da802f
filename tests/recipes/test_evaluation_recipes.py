"""Recipes of launch/evaluate.py: the shipped ones load and say what they claim; a wrong key, value or name is refused with the nearest right one."""

from __future__ import annotations

from pathlib import Path

import pytest

from napmem_rl.config.evaluation_recipe import list_shipped, load_evaluation_recipe
from napmem_rl.errors import ConfigError

NAMES = [
    "full_context",
    "navigate",
    "no_memory",
    "no_upper_levels",
    "oracle",
    "passive_bm25",
    "passive_dense",
    "passive_rrf",
    "records_only",
    "topics",
    "untrained",
]
PACKETS = ["memchain", "memchain_candidates", "memchain_extractive"]  # whose sections have tests of their own


def test_the_baselines_that_the_paper_compares_with_ship() -> None:
    assert list_shipped() == sorted([*NAMES, *PACKETS])


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_recipe_loads_once_a_model_is_named(name: str) -> None:
    recipe = load_evaluation_recipe(name, ["policy.model=m", "policy.base_url=http://127.0.0.1:1/v1"])
    assert recipe.policy.model == "m" and recipe.num_workers == 0
    with pytest.raises(ConfigError, match="policy.model: is missing"):
        load_evaluation_recipe(name)


def test_shipped_recipes_differ_in_how_they_reach_memory() -> None:
    loaded = {name: load_evaluation_recipe(name, ["policy.model=m"]) for name in NAMES}
    assert {name: recipe.policy.access for name, recipe in loaded.items()} == {
        "full_context": "full",
        "navigate": "navigate",
        "no_memory": "none",
        "no_upper_levels": "navigate",
        "oracle": "oracle",
        "passive_bm25": "passive",
        "passive_dense": "passive",
        "passive_rrf": "passive",
        "records_only": "records",
        "topics": "topics",
        "untrained": "navigate",
    }
    assert [loaded[f"passive_{ranking}"].memory.ranking for ranking in ("bm25", "dense", "rrf")] == ["bm25", "dense", "rrf"]
    assert [name for name in NAMES if not loaded[name].policy.upper_levels] == ["no_upper_levels"]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("policy.acess=none", "Did you mean policy.access"),
        ("evaluation.sample=2", "Did you mean evaluation.samples"),
        ("polcy.access=none", "Did you mean policy?"),
        ("top_k=5", "is not a known key"),
        ("policy.access=passiv", "Did you mean passive"),
        ("policy.engine=vlm", "Did you mean vllm"),
        ("policy.top_k=many", "has the wrong type; got 'many'; expected int"),
        ("policy.upper_levels=1", "has the wrong type"),
        ("policy.api_key_env=", "has the wrong type; expected str. For an empty text, quoted from the shell: 'policy.api_key_env=\"\"'."),
        ("evaluation.metrics=recall", "has the wrong type"),
        ("evaluation.limit=0", "evaluation.limit: is too small; got 0; expected at least 1"),
        ("policy.adapter=mem", "key policy.adapter: is unknown; got 'mem'"),
        ("memory.banks=/b", "would do nothing"),
        ("policy=3", "key policy: is a section"),
    ],
)
def test_a_wrong_key_or_value_is_named(override: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        load_evaluation_recipe("no_memory", ["policy.model=m", override])


def test_a_name_that_is_nothing_tells_the_nearest_recipe() -> None:
    with pytest.raises(ConfigError, match="Did you mean passive_rrf"):
        load_evaluation_recipe("pasive_rrf")


@pytest.mark.parametrize(
    ("name", "overrides", "key"),
    [
        ("navigate", ["policy.engine=extractive"], "engine"),
        ("no_memory", ["policy.model=m", "policy.adapter=mem0"], "adapter"),
        ("no_memory", ["policy.model=m", "policy.upper_levels=false"], "upper_levels"),
        ("no_memory", ["policy.model=m", "policy.engine=vllm", "policy.cache_dir=c"], "cache_dir"),
    ],
)
def test_keys_of_the_policy_that_do_not_go_together_are_refused_when_a_recipe_is_loaded(name: str, overrides: list[str], key: str) -> None:
    with pytest.raises(ConfigError, match=f"argument .*, key policy.{key}: "):
        load_evaluation_recipe(name, overrides)


def test_a_run_directory_brings_its_episodes_and_searches_with_it(tmp_path: Path) -> None:
    trained = "napmem:\n  data: {dir: /d}\n  agent: {max_tool_steps: 2}\n  memory: {top_k: 7, banks: /d/banks, writer: rules}\n"
    (tmp_path / "resolved.yaml").write_text(trained)
    model = tmp_path / "global_step_4" / "actor" / "huggingface"
    model.mkdir(parents=True)
    for given in (tmp_path, model):
        recipe = load_evaluation_recipe(str(given), ["agent.max_calls_per_turn=1"])
        assert (recipe.agent.max_tool_steps, recipe.memory.top_k, recipe.agent.max_calls_per_turn) == (2, 7, 1)
        assert recipe.memory.banks is None and recipe.trained_in == tmp_path / "resolved.yaml"
        assert recipe.policy.model == str(given) and recipe.policy.engine in ("vllm", "transformers")
        assert recipe.num_workers == int(recipe.policy.engine == "transformers")


def test_a_recipe_file_names_benchmarks_and_lists(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("policy: {access: oracle, engine: extractive}\nevaluation: {metrics: [recall], samples: 2}\nbenchmarks: {chats: /data/chats:dev}\n")
    recipe = load_evaluation_recipe(str(path))
    assert recipe.evaluation.metrics == ("recall",) and recipe.benchmarks == {"chats": "/data/chats:dev"}
    path.write_text("benchmarks: {a/b: /data}\n")
    with pytest.raises(ConfigError, match="benchmarks.a/b: is no benchmark"):
        load_evaluation_recipe(str(path))
