"""Recipes of supervised training: sparse YAML over verl's SFT configuration and a few sections of ours.

Layers, lowest first: verl's `sft_trainer_engine` and ours · the platform · the recipe · `key=value` arguments. Ours:

- `platform: cpu | gpu`; `agent`, `memory`: as in a training recipe, and to be the same as in the one that follows
- `data.dir`: a directory that launch/prepare_data.py has written; demonstrations come from its train split alone
- `system: napmem | memchain`: whose episodes are demonstrated; of MemChain `memchain`, `teacher` (who writes packets)
- `lora`: adapters instead of all weights (`rank` above 0)
- `sft.engine: fsdp2 | deepspeed`: verl's SFT trainer, or transformers' with DeepSpeed
- `demonstrations.count`: how many to make; `demonstrations.practice_steps`: of reading practice before, for `model.path: tiny` alone
- `output`: directory for the trained model in Hugging Face form
- `model.path: smollm2` stands for the converted SmolLM2-135M-Instruct, `model.path: tiny` for a small untrained policy of MemChain's smoke test
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from napmem_rl.config.sections import PACKET_ABLATIONS, AgentConfig, LoraConfig, MemChainConfig, MemoryConfig, TeacherConfig
from napmem_rl.config.sft_engine import SftConfig, check_engine, find_deepspeed_file
from napmem_rl.config.tree import Tree, absolute, is_path, load_yaml, merge, parse_override, resolve, select, walk
from napmem_rl.errors import ConfigError

DATASET = {"path": "pkg://napmem_rl.backend.sft_dataset", "name": "DemonstrationDataset"}
OPEN_SUBTREES = ("model.override_config", "engine.mixed_precision", "engine.wrap_policy", "optim.override_optimizer_config", "profiler")
SECTIONS: dict[str, type] = {
    "agent": AgentConfig,
    "memory": MemoryConfig,
    "memchain": MemChainConfig,
    "teacher": TeacherConfig,
    "lora": LoraConfig,
    "sft": SftConfig,
}
SYSTEMS = ("napmem", "memchain")
TINY = "tiny"  # as model.path: a small policy that the run makes itself
PLATFORMS: dict[str, Tree] = {
    "cpu": {
        "engine": {"strategy": "fsdp2", "use_torch_compile": False, "mixed_precision": {"param_dtype": "fp32", "reduce_dtype": "fp32"}},
        "model": {"enable_gradient_checkpointing": False, "override_config": {"attn_implementation": "napmem_varlen"}},
        "trainer": {"device": "cpu"},
    },
    "gpu": {"engine": {"strategy": "fsdp2"}},
}
SHARED: Tree = {  # on every platform
    "data": {"custom_cls": DATASET, "num_workers": 0, "use_dynamic_bsz": True},
    "checkpoint": {"save_contents": ["model", "hf_model"]},
    "trainer": {"logger": ["console"], "project_name": "napmem", "experiment_name": "sft", "resume_mode": "disable", "n_gpus_per_node": 1},
}


@dataclass(frozen=True, kw_only=True)
class SftRecipe:
    """A resolved recipe. `verl` is what verl's SFT trainer takes; `data.train_files` is set when the demonstrations are made."""

    path: Path
    system: str
    platform: str
    data_dir: Path
    output: Path
    count: int
    practice_steps: int
    agent: AgentConfig
    memory: MemoryConfig
    memchain: MemChainConfig
    teacher: TeacherConfig
    lora: LoraConfig
    sft: SftConfig
    verl: DictConfig

    @property
    def deepspeed_file(self) -> Path:
        """DeepSpeed's configuration, for `sft.engine: deepspeed`."""
        return find_deepspeed_file(self.sft)

    def lora_dict(self) -> dict[str, Any]:
        """The section as plain data."""
        return dataclasses.asdict(self.lora)

    @property
    def env(self) -> dict[str, str]:
        """Environment of the trainer's processes."""
        return {"VERL_USE_EXTERNAL_MODULES": "napmem_rl.backend.plugin", "TOKENIZERS_PARALLELISM": "false"} | (
            {"VERL_PLATFORM": "cpu"} if self.platform == "cpu" else {}
        )


def load_sft_recipe(path: str | Path, overrides: Sequence[str] = ()) -> SftRecipe:
    """Read, check and resolve a recipe of `launch/sft.py`.

    Raises:
        ConfigError: file missing or malformed, unknown key (the nearest is named), wrong type of ours, something left open. The message names the key.
    """
    path = Path(path)
    layers = [(f"recipe {path}", load_yaml(path)), *((f"argument {text!r}", parse_override(text)) for text in overrides)]
    for source, layer in layers:
        _check_keys(layer, source)
    platform = "gpu"
    for source, layer in layers:
        platform = layer.get("platform", platform)
        if not isinstance(platform, str) or platform not in PLATFORMS:
            raise ConfigError.of(f"{source}, key platform", "is none of the platforms", got=platform, expected=" or ".join(PLATFORMS))
    tree = merge(merge(_defaults(), SHARED), PLATFORMS[platform])
    for source, layer in layers:
        merge(tree, layer)
        if select(layer, "data.max_length") is not None:
            what = f"{source}, key data.max_length"
            raise ConfigError.of(what, "would do nothing: agent.max_context_tokens sets it", fix="Remove it.")
        if select(layer, "trainer.nnodes") not in (None, 1):
            got = select(layer, "trainer.nnodes")
            raise ConfigError.of(f"{source}, key trainer.nnodes", "does not fit supervised training, which runs on one node here", got=got, expected="1")
    missing = [dotted for dotted, value in walk(tree) if value == "???"]
    if missing:
        raise ConfigError.of(f"recipe {path}", f"leaves open {', '.join(missing)}", fix=f"Give it: {' '.join(f'{dotted}=…' for dotted in missing)}")
    recipe = _build(path, platform, resolve(tree, f"recipe {path}"))
    check_engine(recipe.sft, {dotted: source for source, layer in layers for dotted, _ in walk(layer)})
    return recipe


def _build(path: Path, platform: str, tree: Tree) -> SftRecipe:
    given = tree.pop("demonstrations")
    count = _whole_number(given["count"], f"recipe {path}, key demonstrations.count", "demonstrations", least=1)
    practice_steps = _whole_number(given["practice_steps"], f"recipe {path}, key demonstrations.practice_steps", "steps", least=0)
    if practice_steps and select(tree, "model.path") != TINY:
        what = f"recipe {path}, key demonstrations.practice_steps"
        raise ConfigError.of(what, "would do nothing: only the tiny policy practises", got=practice_steps, expected=f"0, or model.path={TINY}")
    system = tree.pop("system")
    if system not in SYSTEMS:
        raise ConfigError.of(f"recipe {path}, key system", "is none of the memory systems", got=system, expected=" or ".join(SYSTEMS))
    sections = {name: _section(cls, tree.pop(name), f"recipe {path}, section {name}") for name, cls in SECTIONS.items()}
    if sections["memchain"].ablation not in PACKET_ABLATIONS:
        what, got = f"recipe {path}, key memchain.ablation", sections["memchain"].ablation
        raise ConfigError.of(what, "is none of the ablations", got=got, expected=" or ".join(PACKET_ABLATIONS))
    for name in ("guided", "retry_turn_tokens"):
        if getattr(sections["memchain"], name):
            raise ConfigError.of(f"recipe {path}, key memchain.{name}", "does not fit training", fix="Remove it: launch/evaluate.py takes it.")
    if sections["lora"].rank < 0:
        raise ConfigError.of(f"recipe {path}, key lora.rank", "is negative", got=sections["lora"].rank, expected="0 for all weights, or a rank")
    data_dir, output = Path(absolute(tree["data"].pop("dir"))), Path(absolute(tree.pop("output")))
    sections["memory"] = _with_absolute_paths(sections["memory"])
    tree.pop("platform")
    tree["data"]["max_length"] = longest = sections["agent"].max_context_tokens
    limit = tree["data"]["max_token_len_per_gpu"] or 0
    if tree["data"]["use_dynamic_bsz"] and longest > limit * tree["engine"]["ulysses_sequence_parallel_size"]:
        what = f"recipe {path}, key data.max_token_len_per_gpu"
        raise ConfigError.of(what, "does not hold one demonstration of agent.max_context_tokens", got=limit, expected=f"at least {longest}")
    numbers = {"count": count, "practice_steps": practice_steps}
    return SftRecipe(path=path, system=system, platform=platform, data_dir=data_dir, output=output, verl=OmegaConf.create(tree), **numbers, **sections)


def _whole_number(value: Any, what: str, of: str, *, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError.of(what, f"is not a number of {of}", got=value, expected=f"an integer from {least}")
    return value


def _with_absolute_paths(memory: MemoryConfig) -> MemoryConfig:
    banks = absolute(memory.banks) if memory.banks else None
    encoder = absolute(memory.encoder) if is_path(memory.encoder) else memory.encoder
    rerank = absolute(memory.rerank) if memory.rerank else None
    return dataclasses.replace(memory, banks=banks, encoder=encoder, rerank=rerank)


def _section(cls: type, values: Mapping[str, Any], what: str) -> Any:
    """A section of ours, each value of the type of its default."""
    for field in dataclasses.fields(cls):
        default, value = field.default, values[field.name]
        if default is None and value is not None and not isinstance(value, str):
            raise ConfigError.of(f"{what}, key {field.name}", "has the wrong type", got=value, expected="str or null")
        if default is not None and (type(value) is not type(default)) and not (isinstance(default, float) and type(value) is int):
            raise ConfigError.of(f"{what}, key {field.name}", "has the wrong type", got=value, expected=type(default).__name__)
    return cls(**values)


def _defaults() -> Tree:
    ours = {name: dataclasses.asdict(cls()) for name, cls in SECTIONS.items()}
    given = {"platform": "gpu", "system": "napmem", "output": "???", "demonstrations": {"count": 64, "practice_steps": 0}, "data": {"dir": "???"}}
    return merge(merge(OmegaConf.to_container(_compose(), resolve=False), {"engine": {"mixed_precision": None}}), merge(ours, given))


@functools.cache
def _compose() -> DictConfig:
    spec = importlib.util.find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError.of("package verl", "is not installed", fix="Install the project with one of its extras: cpu or gpu.")
    GlobalHydra.instance().clear()
    with initialize_config_dir(config_dir=str(Path(spec.submodule_search_locations[0], "trainer", "config")), version_base=None):
        return compose("sft_trainer_engine")


@functools.cache
def _known() -> tuple[str, ...]:
    return tuple(dotted for dotted, _ in walk(_defaults()))


def _check_keys(layer: Mapping[str, Any], source: str) -> None:
    for dotted, _ in walk(layer):
        if dotted in _known() or any(dotted == root or dotted.startswith(f"{root}.") for root in OPEN_SUBTREES):
            continue
        nearest = difflib.get_close_matches(dotted, _known(), n=1)
        raise ConfigError.of(f"{source}, key {dotted}", "is not a known key", fix=f"Did you mean {nearest[0]}?" if nearest else None)
