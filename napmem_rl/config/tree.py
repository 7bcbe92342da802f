"""Configuration as plain trees: read YAML strictly, compose verl's defaults, walk dotted keys.

Nothing here imports verl: its YAML files are found through the import system and composed by hydra, which takes under a second and loads no torch.
"""

from __future__ import annotations

import copy
import functools
import importlib.util
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from napmem_rl.errors import ConfigError

Tree = dict[str, Any]
FLOAT = re.compile(r"^[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)[eE][-+]?\d+$")


class StrictLoader(yaml.SafeLoader):
    """YAML that refuses a key given twice and reads 1e-6 as the number it is (YAML 1.1 reads a string)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build one mapping; raises a YAMLError for a key given twice."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is given twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


StrictLoader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+.0123456789"))


def parse_yaml(text: str, what: str) -> Any:
    """One YAML document as plain data. Raises ConfigError naming `what` and the line at fault."""
    try:
        return yaml.load(text, Loader=StrictLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise ConfigError.of(f"{what}{where}", f"is not valid YAML ({getattr(error, 'problem', None) or error})") from error


def load_yaml(path: Path) -> Tree:
    """A YAML file whose top level is a mapping; an empty file is an empty mapping."""
    if not path.is_file():
        raise ConfigError.of(
            f"recipe {path}", "no such file" if not path.exists() else "is not a file", fix="Recipes that ship with the project lie in recipes/."
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError.of(f"recipe {path}", f"cannot be read ({error})") from error
    tree = parse_yaml(text, f"recipe {path}")
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError.of(f"recipe {path}", "does not hold a mapping", got=type(tree).__name__, expected="keys with values")
    return tree


def parse_override(text: str) -> Tree:
    """`a.b=value` as the tree {a: {b: value}}; the value is YAML, so `null`, `[1, 2]` and `1e-6` mean what they mean in a recipe."""
    key, sign, value = text.partition("=")
    key = key.strip()
    if not sign or not key:
        raise ConfigError.of(f"argument {text!r}", "is not an override", expected="key=value, e.g. trainer.total_training_steps=2")
    if key[0] in "+~":
        raise ConfigError.of(
            f"argument {text!r}", f"starts with {key[0]!r}", expected="key=value", fix=f"Drop the {key[0]!r}: known keys need none, unknown ones are refused."
        )
    tree: Any = parse_yaml(value, f"argument {text!r}")
    for part in reversed(key.split(".")):
        tree = {part: tree}
    return tree


def walk(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf as (dotted key, value). An empty mapping counts as a leaf."""
    for key, value in tree.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from walk(value, f"{dotted}.")
        else:
            yield dotted, value


def select(tree: Mapping[str, Any], dotted: str) -> Any:
    """The value at a dotted key, or None where a part of it is absent."""
    node: Any = tree
    for part in dotted.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return None
        node = node[part]
    return node


@functools.cache
def _composed() -> Tree:
    spec = importlib.util.find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError.of("package verl", "is not installed", fix="Install the project with one of its extras: cpu or gpu.")
    directory = Path(spec.submodule_search_locations[0], "trainer", "config")
    GlobalHydra.instance().clear()
    with initialize_config_dir(config_dir=str(directory), version_base=None):
        return OmegaConf.to_container(compose("ppo_trainer"), resolve=False)


def compose_verl_defaults() -> Tree:
    """verl's own PPO/GRPO configuration, interpolations unresolved. Composed once a process; each caller gets its own copy."""
    return copy.deepcopy(_composed())


def merge(base: Tree, layer: Mapping[str, Any]) -> Tree:
    """`layer` over `base`, mapping by mapping; lists and scalars replace. Changes and returns `base`."""
    for key, value in layer.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            merge(base[key], value)
        else:
            base[key] = copy.deepcopy(value)
    return base


def resolve(tree: Tree, what: str) -> Tree:
    """The tree with every `${...}` replaced by what it stands for. Raises ConfigError for one that leads nowhere."""
    try:
        return OmegaConf.to_container(OmegaConf.create(tree), resolve=True)
    except OmegaConfBaseException as error:
        where = getattr(error, "full_key", None)
        raise ConfigError.of(f"{what}, key {where}" if where else what, f"an interpolation cannot be resolved ({str(error).splitlines()[0]})") from error


def is_path(name: str) -> bool:
    """True for what looks like a path, or is a directory seen from where the command runs; otherwise it names a model of a hub or one of our encoders."""
    return name[:1] in ("/", ".", "~") or Path(name).is_dir()


def absolute(path: str) -> str:
    """The path without `~`, counted from where the command runs."""
    return str(Path(path).expanduser().absolute())
