"""Recipes of RMM's online learning: `launch/rmm.py RECIPE [key=value …]`. Layers, lowest first: our defaults · the recipe · arguments."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from napmem_rl.config.tree import Tree, absolute, is_path, load_yaml, merge, parse_override
from napmem_rl.errors import ConfigError
from napmem_rl.memory.writer_settings import LLMSettings
from napmem_rl.retrieval.rerank_learner import RerankSettings

SYSTEM = "rmm"


@dataclass(frozen=True, kw_only=True, slots=True)
class RmmData:
    """What is lived through: a directory that launch/prepare_data.py has written."""

    dir: str = "???"
    split: str = "train"  # whose questions are asked


@dataclass(frozen=True, kw_only=True, slots=True)
class RmmMemory:
    """How the topic memories are searched."""

    encoder: str = "minilm"  # hashing | minilm | path of an embedding model
    encoder_threads: int = 1
    ranking: str = "dense"  # dense, as in the paper | fused | rrf


@dataclass(frozen=True, kw_only=True, slots=True)
class RmmOnline:
    """Who writes, answers and learns, and how."""

    out: str = "runs/rmm"  # banks, states, answers, summary; an earlier run there is gone on with
    scope: str = "user"  # user | domain (the whole data set) | global
    writer: str = "rules"  # of topic memories: rules | llm
    answerer: str = "llm"  # answers and cites: llm | simulated (cites gold evidence, flipped with `flip`; answers nothing)
    flip: float = 0.1  # for answerer simulated
    is_learning: bool = True  # False ranks deterministically
    workers: int = 2  # Ray actors that live through users; 0: this process alone, without Ray
    save_every: int = 1  # answers between two saves of a state
    max_staleness: int = 4  # updates that may lie between a draw and its citations; later ones are left out and counted
    max_users: int | None = None  # the first so many


SECTIONS: dict[str, type] = {"data": RmmData, "memory": RmmMemory, "rerank": RerankSettings, "online": RmmOnline, "llm": LLMSettings}
_CHOICES = {
    "online.scope": ("user", "domain", "global"),
    "online.writer": ("rules", "llm"),
    "online.answerer": ("llm", "simulated"),
    "memory.ranking": ("dense", "fused", "rrf"),
}


@dataclass(frozen=True, kw_only=True)
class RmmRecipe:
    """A recipe with every default filled in."""

    path: Path
    data: RmmData
    memory: RmmMemory
    rerank: RerankSettings
    online: RmmOnline
    llm: LLMSettings = field(default_factory=LLMSettings)

    @property
    def asks_model(self) -> bool:
        """Whether a language model takes part."""
        return "llm" in (self.online.writer, self.online.answerer)


def load_rmm_recipe(path: str | Path, overrides: Sequence[str] = ()) -> RmmRecipe:
    """Read, check and resolve a recipe.

    Raises:
        ConfigError: no such file, an unknown key (the nearest is named), a value of the wrong type, or one that would do nothing.
    """
    path = Path(path)
    tree: Tree = {name: {one.name: _default(one) for one in dataclasses.fields(cls)} for name, cls in SECTIONS.items()}
    layers = [(f"recipe {path}", load_yaml(path)), *((f"argument {text!r}", parse_override(text)) for text in overrides)]
    for where, layer in layers:
        layer = {name: value for name, value in layer.items() if not (name == "system" and value == SYSTEM)}
        _check_layer(layer, where)
        merge(tree, layer)
    tree["online"]["out"] = absolute(tree["online"]["out"])
    tree["data"]["dir"] = tree["data"]["dir"] if tree["data"]["dir"] == "???" else absolute(tree["data"]["dir"])
    if is_path(tree["memory"]["encoder"]):
        tree["memory"]["encoder"] = absolute(tree["memory"]["encoder"])
    recipe = RmmRecipe(path=path, **{name: cls(**tree[name]) for name, cls in SECTIONS.items()})
    _check_values(recipe, tree)
    return recipe


def _default(one: dataclasses.Field[Any]) -> Any:
    return str(one.default) if isinstance(one.default, str) else one.default


def _check_layer(layer: Mapping[str, Any], where: str) -> None:
    known = [f"{name}.{one.name}" for name, cls in SECTIONS.items() for one in dataclasses.fields(cls)]
    for section, values in layer.items():
        if section not in SECTIONS or not isinstance(values, Mapping):
            raise ConfigError.of(f"{where}, key {section}", "is not a section", expected=", ".join(SECTIONS))
        types = {one.name: one for one in dataclasses.fields(SECTIONS[section])}
        for name, value in values.items():
            dotted = f"{section}.{name}"
            if name not in types:
                near = difflib.get_close_matches(dotted, known, n=1, cutoff=0.4)
                raise ConfigError.of(f"{where}, key {dotted}", "is not a known key", fix=f"Did you mean {near[0]}?" if near else None)
            if not _fits(value, str(types[name].type)):
                raise ConfigError.of(f"{where}, key {dotted}", "is of the wrong type", got=value, expected=str(types[name].type))


def _fits(value: Any, kind: str) -> bool:
    """Whether a value is of a field's type, as it is written: str, int, float or bool, perhaps None."""
    kinds = [part.strip() for part in kind.split("|")]
    if value is None:
        return "None" in kinds
    if isinstance(value, bool):
        return "bool" in kinds
    if isinstance(value, int):
        return "int" in kinds or "float" in kinds
    return type(value).__name__ in kinds


def _check_values(recipe: RmmRecipe, tree: Tree) -> None:
    what = f"recipe {recipe.path}"
    if recipe.data.dir == "???":
        raise ConfigError.of(f"{what}, key data.dir", "is missing", fix="Give it: data.dir=DIR, written by launch/prepare_data.py.")
    for dotted, allowed in _CHOICES.items():
        section, _, name = dotted.partition(".")
        if tree[section][name] not in allowed:
            raise ConfigError.of(f"{what}, key {dotted}", "is none of the choices", got=tree[section][name], expected=" or ".join(allowed))
    online = recipe.online
    for name, low in (("workers", 0), ("save_every", 1), ("max_staleness", 0), ("max_users", 1)):
        value = getattr(online, name)
        if value is not None and value < low:
            raise ConfigError.of(f"{what}, key online.{name}", f"is below {low}", got=value)
    if not 0 <= online.flip < 0.5:
        raise ConfigError.of(f"{what}, key online.flip", "is no probability below one half", got=online.flip)
    if recipe.asks_model and not recipe.llm.model:
        fix = "Give llm.model and llm.base_url, or online.answerer=simulated and online.writer=rules."
        raise ConfigError.of(f"{what}, key llm.model", "is missing", fix=fix)
    if not recipe.asks_model and recipe.llm.model:
        raise ConfigError.of(f"{what}, key llm.model", "would do nothing: no language model is asked", fix="Remove it.")
    if recipe.memory.encoder == "none":
        raise ConfigError.of(f"{what}, key memory.encoder", "is none, but a reranker needs vectors", expected="hashing, minilm or a model directory")
