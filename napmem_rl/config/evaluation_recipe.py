"""Recipes of an evaluation: who answers, over which memory, judged by whom, on which benchmarks.

Layers, lowest first: our defaults · what a trained model's own run says of `agent` and `memory` · the recipe · `key=value` arguments. Sections: `policy`,
`memory`, `agent`, `judge`, `evaluation`, and `benchmarks: {name: DIR or DIR:split}`, each DIR written by launch/prepare_data.py. `memory.banks` and
`memory.writer` have no effect here: banks lie in the benchmark's directory, written already.

What is evaluated may be given as a recipe file, as the name of a recipe in recipes/eval, or as a directory: a HuggingFace model, a verl checkpoint, or a run.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib.util
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from napmem_rl.config.evaluation_sections import PACKETS, EvaluationConfig, PacketSections, PolicyConfig
from napmem_rl.config.policy_refusals import check_packets, check_policy
from napmem_rl.config.sections import AgentConfig, AnswererConfig, JudgeConfig, MemChainConfig, MemoryConfig
from napmem_rl.config.tree import Tree, absolute, is_path, load_yaml, merge, parse_override, select
from napmem_rl.errors import ConfigError

SECTIONS: dict[str, type] = {
    "policy": PolicyConfig,
    "memory": MemoryConfig,
    "agent": AgentConfig,
    "judge": JudgeConfig,
    "memchain": MemChainConfig,
    "answerer": AnswererConfig,
    "evaluation": EvaluationConfig,
}
BENCHMARKS = "benchmarks"
SHIPPED = Path(__file__).resolve().parents[2] / "recipes" / "eval"
RESOLVED = "resolved.yaml"  # what a training run leaves beside its checkpoints
_IDLE = {  # and why
    "memory.banks": "banks lie in each benchmark's directory",
    "memory.writer": "banks lie in each benchmark's directory",
    "memchain.num_answers": "an evaluation asks for one answer",
    "memchain.invalid_actions": "an evaluation pays no reward",
}
_OF_PACKETS = ("memchain", "answerer")
_PATHS = ("policy.cache_dir", "memory.rerank", "judge.cache_dir", "memchain.candidates", "answerer.cache_dir", "evaluation.audit")
_TRAINING = "training run "
_MAX_UP = 4  # RUN/global_step_8/actor/huggingface


@dataclass(frozen=True, kw_only=True)
class EvaluationRecipe:
    """A recipe with every default filled in. `trained_in` is the resolved recipe of the run that made the model, where there is one."""

    source: str  # what was asked for, in words
    policy: PolicyConfig
    memory: MemoryConfig
    agent: AgentConfig
    judge: JudgeConfig
    memchain: MemChainConfig
    answerer: AnswererConfig
    evaluation: EvaluationConfig
    benchmarks: Mapping[str, str] = field(default_factory=dict)
    trained_in: Path | None = None

    def sections(self) -> dict[str, Any]:
        """All sections as plain data."""
        return {name: dataclasses.asdict(getattr(self, name)) for name in SECTIONS} | {BENCHMARKS: dict(self.benchmarks)}

    @property
    def packets(self) -> PacketSections | None:
        """MemChain's sections, for the accesses that read them."""
        return PacketSections(memchain=self.memchain, answerer=self.answerer) if self.policy.access in PACKETS else None

    @property
    def num_workers(self) -> int:
        """Ray actors that run attempts; unless set, one where the model computes in the worker, and none where a server does or nothing has to."""
        given = self.evaluation.workers
        return given if given is not None else int(self.policy.engine == "transformers")


def load_evaluation_recipe(source: str, overrides: Sequence[str] = ()) -> EvaluationRecipe:
    """Read, check and resolve what is to be evaluated.

    Args:
        source: a recipe file, the name of a recipe in recipes/eval, or a directory that holds a model, a checkpoint or a run.
        overrides: `key=value` arguments, later ones winning; the value is YAML.

    Raises:
        ConfigError: nothing of that name; an unknown key (the nearest is named), a value of the wrong type or one that would do nothing.
    """
    layers, trained_in = _read_layers(source)
    layers += [(f"argument {text!r}", parse_override(text)) for text in overrides]
    tree: Tree = {name: dataclasses.asdict(cls()) for name, cls in SECTIONS.items()} | {BENCHMARKS: {}}
    for where, layer in layers:
        _check_layer(layer, where)
        merge(tree, layer)
    what = layers[-1][0]
    _make_paths_absolute(tree)
    sections = {name: _build_section(cls, tree[name]) for name, cls in SECTIONS.items()}
    recipe = EvaluationRecipe(source=source, benchmarks=dict(tree[BENCHMARKS] or {}), trained_in=trained_in, **sections)
    check_policy(recipe.policy, what)
    for where, layer in layers:
        idle = [section for section in _OF_PACKETS if section in layer] if recipe.packets is None and not where.startswith(_TRAINING) else []
        if idle:
            problem = f"would do nothing beside policy.access {recipe.policy.access}"
            raise ConfigError.of(f"{where}, key {idle[0]}", problem, fix=f"Set policy.access={' or '.join(PACKETS)}, or remove it.")
    if recipe.packets is not None:
        check_packets(recipe.policy, recipe.packets, what)
    _check_numbers(recipe.evaluation, what)
    return recipe


def list_shipped() -> list[str]:
    """Names of the recipes in recipes/eval."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def find_resolved(directory: Path) -> Path | None:
    """The resolved recipe of the training run that a directory is, or lies in, or was exported from."""
    directory = directory.resolve()
    for place in (directory, *directory.parents[:_MAX_UP]):
        if (place / RESOLVED).is_file():
            return place / RESOLVED
    return None


def _read_layers(source: str) -> tuple[list[tuple[str, Tree]], Path | None]:
    """The layers that `source` stands for, and the training run's resolved recipe."""
    path, shipped = Path(source).expanduser(), SHIPPED / f"{source}.yaml"
    if path.is_dir():
        engine = "vllm" if importlib.util.find_spec("vllm") is not None else "transformers"
        model: Tree = {"policy": {"model": str(path.resolve()), "engine": engine}}
        resolved = find_resolved(path)
        own = [] if resolved is None else [(f"{_TRAINING}{resolved}", _read_training(resolved))]
        return [*own, (f"model {path}", model)], resolved
    if not path.exists() and "/" not in source and shipped.is_file():
        path = shipped
    if not path.exists():
        near = difflib.get_close_matches(source, list_shipped(), n=1)
        fix = f"Did you mean {near[0]}?" if near else f"Recipes that ship: {', '.join(list_shipped())}."
        raise ConfigError.of(f"policy {source}", "is neither a recipe file, nor a directory, nor a recipe that ships", fix=fix)
    layers = [(f"recipe {path}", load_yaml(path))]
    named = select(layers[0][1], "policy.model")
    resolved = find_resolved(Path(named).expanduser()) if isinstance(named, str) and is_path(named) else None
    return layers, resolved


def _read_training(resolved: Path) -> Tree:
    """What a run says of episodes and searches, so that what is evaluated is what was trained."""
    trained = load_yaml(resolved).get("napmem", {})
    is_memchain = trained.get("system") == "memchain"
    names = ("agent", "memory", *(_OF_PACKETS if is_memchain else ()))
    kept = {name: dict(trained[name]) for name in names if isinstance(trained.get(name), dict)}
    for dotted in _IDLE:
        section, _, name = dotted.partition(".")
        kept.get(section, {}).pop(name, None)
    return kept | ({"policy": {"access": "packet"}} if is_memchain else {})


def _check_layer(layer: Mapping[str, Any], where: str) -> None:
    """Refuse unknown keys and values of the wrong type."""
    for section, values in layer.items():
        if section not in (*SECTIONS, BENCHMARKS):
            raise _unknown(where, str(section))
        if not isinstance(values, Mapping):
            raise ConfigError.of(f"{where}, key {section}", "is a section", got=values, expected="keys below it")
        for name, value in values.items():
            _check_value(f"{section}.{name}", value, where)


def _check_value(dotted: str, value: Any, where: str) -> None:
    section, _, name = dotted.partition(".")
    if section == BENCHMARKS:
        if not isinstance(value, str) or "/" in name or name in ("", ".", ".."):
            raise ConfigError.of(f"{where}, key {dotted}", "is no benchmark", got=value, expected="a plain name with the directory of a prepared benchmark")
        return
    if dotted not in _known():
        raise _unknown(where, dotted)
    if dotted in _IDLE:
        raise ConfigError.of(f"{where}, key {dotted}", f"would do nothing: {_IDLE[dotted]}", fix="Remove it.")
    hint = typing.get_type_hints(SECTIONS[section])[name]
    if not _fits(value, hint):
        expected = str(hint) if typing.get_args(hint) else hint.__name__
        fix = f"For an empty text, quoted from the shell: '{dotted}=\"\"'." if value is None and hint is str else None
        raise ConfigError.of(f"{where}, key {dotted}", "has the wrong type", got=value, expected=expected.replace("None", "null"), fix=fix)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a YAML value may stand for a field of this type."""
    if isinstance(hint, types.UnionType):
        return any(_fits(value, kind) for kind in typing.get_args(hint))
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return isinstance(value, list | tuple) and all(_fits(item, inner[0]) for item in value)
    if origin is dict:
        return isinstance(value, Mapping) and all(_fits(key, inner[0]) and _fits(item, inner[1]) for key, item in value.items())
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is hint or (hint is types.NoneType and value is None)


def _known() -> list[str]:
    return [f"{name}.{field.name}" for name, cls in SECTIONS.items() for field in dataclasses.fields(cls)]


def _unknown(where: str, dotted: str) -> ConfigError:
    """An error that names the nearest key: the whole one, or the same last part under another section."""
    names = [*_known(), *SECTIONS, BENCHMARKS]
    tail = dotted.rpartition(".")[2]
    near = difflib.get_close_matches(dotted, names, n=1, cutoff=0.7) or [name for name in names if name.rpartition(".")[2] == tail]
    near = near or difflib.get_close_matches(dotted, names, n=1, cutoff=0.4)
    return ConfigError.of(f"{where}, key {dotted}", "is not a known key", fix=f"Did you mean {near[0]}?" if near else f"Sections: {', '.join(SECTIONS)}.")


def _make_paths_absolute(tree: Tree) -> None:
    for dotted in _PATHS:
        section, _, name = dotted.partition(".")
        if tree[section][name] is not None:
            tree[section][name] = absolute(tree[section][name])
    if tree["policy"]["engine"] != "endpoint" and tree["policy"]["model"] and is_path(tree["policy"]["model"]):
        tree["policy"]["model"] = absolute(tree["policy"]["model"])
    if is_path(tree["memory"]["encoder"]):
        tree["memory"]["encoder"] = absolute(tree["memory"]["encoder"])
    models = tree["evaluation"]["metric_models"]
    tree["evaluation"]["metric_models"] = {name: absolute(path) for name, path in models.items()} if models else None


def _build_section(cls: type, values: Mapping[str, Any]) -> Any:
    return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def _check_numbers(evaluation: EvaluationConfig, where: str) -> None:
    least = {"samples": 1, "max_concurrency": 1, "workers": 0, "limit": 1}
    for name, low in least.items():
        value = getattr(evaluation, name)
        if value is not None and value < low:
            raise ConfigError.of(f"{where}, key evaluation.{name}", "is too small", got=value, expected=f"at least {low}")
