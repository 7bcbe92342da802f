"""What a recipe may say of the model that verl serves beside training (`reward.reward_model`) for judge and answer model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from napmem_rl.config.tree import select
from napmem_rl.llm.served import SERVED

ROOT = "reward.reward_model"
OWN_ENDPOINT = tuple((section, key) for section in ("judge", "answerer") for key in ("base_url", "model"))  # a served model has its own


def uses_served(settings: Mapping[str, Any]) -> bool:
    """Whether somebody asks the served model. Only MemChain has an answer model."""
    return settings["judge"]["kind"] == SERVED or (settings["system"] == "memchain" and settings["answerer"]["kind"] == SERVED)


def has_both(section: str, key: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a section asks the served model and names an endpoint too. A recipe over another one says `model: null` where that names one."""
    return lambda settings: settings[section]["kind"] == SERVED and settings[section][key] is not None


def find_faults(settings: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(key, what is wrong, what would be right) for values of a recipe that serves a model; nothing where none is served."""
    if not uses_served(settings):
        return
    model, rollout = select(settings, ROOT), select(settings, f"{ROOT}.rollout")
    if not model["model_path"]:
        yield f"{ROOT}.model_path", "is not given, and judge.kind or answerer.kind is served", "the directory of the model to serve"
    for name in ("n_gpus_per_node", "nnodes"):
        if model[name] <= 0:
            yield f"{ROOT}.{name}", "is not positive", "a number above 0"
    gpus = model["n_gpus_per_node"] * model["nnodes"]
    size = rollout["tensor_model_parallel_size"] * rollout["data_parallel_size"] * rollout["pipeline_model_parallel_size"]
    if size <= 0 or gpus % size:
        yield f"{ROOT}.rollout.tensor_model_parallel_size", f"does not divide the {gpus} GPUs of the pool into replicas", f"a divisor of {gpus}"
    if rollout["free_cache_engine"]:
        yield f"{ROOT}.rollout.free_cache_engine", "would put the model to sleep, and nobody would wake it", "false"
    if rollout["name"] not in ("vllm", "transformers") or (rollout["name"] == "transformers" and settings["platform"] != "cpu"):
        yield f"{ROOT}.rollout.name", "is none of the servers", "vllm, or transformers on the cpu platform"
    needed = settings["agent"]["max_turn_tokens"] + (settings["answerer"]["max_tokens"] if settings["system"] == "memchain" else 0)
    if rollout["max_model_len"] is not None and rollout["max_model_len"] < needed:
        yield f"{ROOT}.rollout.max_model_len", "does not hold one turn of the policy and a reply to it", f"at least {needed}, and room for instructions"
