"""A model served beside training for judge and answer model, by verl's pool of reward models: `judge.kind: served`, `answerer.kind: served`.

verl starts `reward.reward_model` on GPUs of its own before the rollout servers (`verl.experimental.reward_loop.RewardModelManager`), one replica for each
`tensor_model_parallel_size` of them. Our reward workers ask the replicas themselves, in the OpenAI protocol. verl's own router is passed by: it answers
whatever a replica refuses with 500, so that a prompt that is too long could not be told from a server that is down.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from napmem_rl.backend.settings import SUBTREE
from napmem_rl.backend.vllm_cpu_name import check_vllm_cpu
from napmem_rl.config.recipe import Recipe
from napmem_rl.config.served_model import uses_served
from napmem_rl.errors import ConfigError, DataError
from napmem_rl.model_files import fingerprint_model

ROOT = "reward.reward_model"
CHAT_TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json")


def is_served(recipe: Recipe) -> bool:
    """Whether judge or answer model of a recipe is served beside training."""
    return uses_served({"system": recipe.system, "judge": {"kind": recipe.judge.kind}, "answerer": {"kind": recipe.answerer.kind}})


def check_served(recipe: Recipe) -> None:
    """Look at the model that is to be served, before anything starts.

    Raises:
        ConfigError: it is no model directory, has no chat template, its context is shorter than `max_model_len`, or its server cannot run here.
    """
    if not is_served(recipe):
        return
    path = Path(str(OmegaConf.select(recipe.verl, f"{ROOT}.model_path"))).expanduser()
    what = f"recipe {recipe.path}, key {ROOT}.model_path"
    if not (path / "config.json").is_file():
        raise ConfigError.of(what, "is no model directory", got=str(path), expected="a directory in the format of transformers, with a config.json")
    config = _read_json(path / "config.json")
    has_template = any((path / file).is_file() for file in CHAT_TEMPLATE_FILES)
    if not has_template and not (path / "tokenizer_config.json").is_file():
        raise ConfigError.of(what, "holds no tokenizer_config.json", got=str(path))
    if not has_template and not _read_json(path / "tokenizer_config.json").get("chat_template"):
        raise ConfigError.of(what, "has no chat template", got=str(path), fix="Serve an instruction-tuned model.")
    longest, asked = config.get("text_config", config).get("max_position_embeddings"), OmegaConf.select(recipe.verl, f"{ROOT}.rollout.max_model_len")
    if longest is not None and asked is not None and asked > longest:
        what = f"recipe {recipe.path}, key {ROOT}.rollout.max_model_len"
        raise ConfigError.of(what, "is more than the model's context", got=asked, expected=f"at most {longest}")
    if recipe.platform == "cpu" and OmegaConf.select(recipe.verl, f"{ROOT}.rollout.name") == "vllm":
        check_vllm_cpu(config)


def enable_served(config: DictConfig, recipe: Recipe) -> None:
    """Have verl serve the model in a pool of its own, where the recipe asks for it. Changes verl's config of a job in place.

    On the CPU platform GPUs are logical slots that Ray is told of: those of the pool come on top.
    """
    if not is_served(recipe):
        return
    model = config.reward.reward_model
    with open_dict(config):
        model.enable = model.enable_resource_pool = True
        slots = OmegaConf.select(config, "ray_kwargs.ray_init.num_gpus")
        if recipe.platform == "cpu" and slots == config.trainer.n_gpus_per_node:
            config.ray_kwargs.ray_init.num_gpus = slots + model.n_gpus_per_node * model.nnodes


def publish_served(config: DictConfig, manager: Any) -> None:
    """Write where verl serves the model into our sub-tree of its config, from which reward workers learn it.

    Args:
        config: of the job, which the agent-loop manager gets next.
        manager: verl's RewardModelManager; None where nothing is served.
    """
    if manager is None:
        return
    model = str(config.reward.reward_model.model_path)
    served = {"urls": [f"http://{address}/v1" for address in manager.server_addresses], "model": model, "name": name_model(Path(model))}
    with open_dict(config):
        config[SUBTREE].served = served


def name_model(model: Path) -> str:
    """What caches know a served model by: where it lies and what is in it."""
    return f"served {model} {fingerprint_model(model.expanduser())}"


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError.of(f"model file {path}", f"is not JSON ({error})") from error
