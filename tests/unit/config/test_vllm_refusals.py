"""vLLM as rollout server on the CPU platform: which of its settings count there, and what a start without it says."""

from __future__ import annotations

from pathlib import Path

import pytest

import napmem_rl.backend.vllm_cpu_name as vllm_cpu_name
from napmem_rl.backend.vllm_cpu_name import check_vllm_cpu, find_head_size
from napmem_rl.config.recipe import Recipe, load_recipe
from napmem_rl.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
ROLLOUT = "actor_rollout_ref.rollout"


def load(*overrides: str) -> Recipe:
    return load_recipe(ROOT / "recipes" / "quickstart.yaml", ["data.dir=/data", f"{ROLLOUT}.name=vllm", *overrides])


def test_settings_of_vllm_are_taken_on_the_cpu_platform_once_vllm_is_the_server() -> None:
    recipe = load(f"{ROLLOUT}.enforce_eager=false", f"{ROLLOUT}.engine_kwargs.vllm.kv_cache_memory_bytes=1000000", f"{ROLLOUT}.max_num_batched_tokens=4096")
    rollout = recipe.verl.actor_rollout_ref.rollout
    assert (rollout.name, rollout.enforce_eager, rollout.engine_kwargs.vllm.kv_cache_memory_bytes) == ("vllm", False, 1000000)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (f"{ROLLOUT}.gpu_memory_utilization=0.5", "kv_cache_memory_bytes bounds its cache"),
        (f"{ROLLOUT}.free_cache_engine=true", "vLLM holds no GPU memory"),
        (f"{ROLLOUT}.enable_chunked_prefill=true", "every request has a seed"),
        (f"{ROLLOUT}.data_parallel_size=2", "does not run on the cpu platform"),
        (f"{ROLLOUT}.engine_kwargs.vllm.tensor_parallel_size=2", "one engine process serves a replica"),
        (f"{ROLLOUT}.name=sglang", "expected transformers or vllm"),
    ],
)
def test_settings_that_mean_nothing_to_vllm_on_the_cpu_are_refused(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(override)


def test_the_same_settings_are_taken_where_vllm_runs_on_gpus() -> None:
    given = ["data.dir=/data", "actor_rollout_ref.model.path=/model", "judge.model=judge", "memory.encoder=hashing"]
    recipe = load_recipe(ROOT / "recipes" / "napmem" / "grpo.yaml", [*given, f"{ROLLOUT}.gpu_memory_utilization=0.6"])
    assert recipe.verl.actor_rollout_ref.rollout.gpu_memory_utilization == 0.6


def test_a_start_without_vllm_cpu_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"torch": "2.13.0+cpu"}
    monkeypatch.setattr(vllm_cpu_name, "find_version", installed.get)
    with pytest.raises(ConfigError, match="not installed. Install it with `bash launch/install.sh vllm-cpu`"):
        check_vllm_cpu({})
    installed["vllm"] = "0.24.0"
    with pytest.raises(ConfigError, match="another build; got '0.24.0'"):
        check_vllm_cpu({})


def test_a_torch_that_is_no_cpu_build_and_heads_without_a_kernel_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"vllm-cpu": "0.28.0", "torch": "2.13.0"}
    monkeypatch.setattr(vllm_cpu_name, "find_version", installed.get)
    with pytest.raises(ConfigError, match="CPU build of torch"):
        check_vllm_cpu({})
    installed["torch"] = "2.13.0+cpu"
    with pytest.raises(ConfigError, match="no kernel for attention heads of this size; got 24"):
        check_vllm_cpu({"hidden_size": 48, "num_attention_heads": 2})
    check_vllm_cpu({"hidden_size": 128, "num_attention_heads": 4})


@pytest.mark.parametrize(
    ("config", "size"),
    [({}, None), ({"hidden_size": 576, "num_attention_heads": 9}, 64), ({"hidden_size": 1024, "num_attention_heads": 16, "head_dim": 128}, 128)],
)
def test_the_width_of_a_head_is_read_from_the_config_also_below_text_config(config: dict[str, int], size: int | None) -> None:
    assert find_head_size(config) == find_head_size({"text_config": config}) == size
