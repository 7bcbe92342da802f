"""The `judge` section alone: of a training or an evaluation recipe whose other sections need not be complete, and what in it must not run."""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from napmem_rl.config.refusals import check_has_effect
from napmem_rl.config.sections import JUDGE_PROTOCOLS, SECTIONS, JudgeConfig
from napmem_rl.config.tree import Tree, absolute, load_yaml, merge
from napmem_rl.errors import ConfigError

_KNOWN_SECTIONS = {*SECTIONS, "base", "platform", "policy", "evaluation", "benchmarks", "data", "trainer", "actor_rollout_ref", "algorithm"}
_FIELDS = {field.name: field.default for field in dataclasses.fields(JudgeConfig)}


def load_judge_section(path: Path, overrides: Mapping[str, Any] | None = None) -> JudgeConfig:
    """The judge that a recipe names, defaults filled in.

    Args:
        path: a YAML file; what its `base` leads to comes first. Other sections are not looked at.
        overrides: values over those of the file.

    Raises:
        ConfigError: a missing or malformed file, an unknown key, a value of the wrong type or one that must not run.
    """
    given = merge(_read_section(path, ()), overrides or {})
    return build_judge_section(given, f"recipe {path}")


def build_judge_section(given: Mapping[str, Any], source: str) -> JudgeConfig:
    """A section out of the keys that are given, checked as in a recipe; `source` is how errors name where they stand. Raises ConfigError."""
    for name, value in given.items():
        _check_key(name, value, f"{source}, key judge.{name}")
    settings = {"judge": {**_FIELDS, **given}}
    for name in given:
        check_has_effect(f"judge.{name}", settings, source)
    config = JudgeConfig(**settings["judge"])
    _check_values(config, source)
    return dataclasses.replace(config, cache_dir=absolute(config.cache_dir)) if config.cache_dir is not None else config


def _read_section(path: Path, including: tuple[Path, ...]) -> Tree:
    here = path.resolve()
    if here in including:
        raise ConfigError.of(f"recipe {including[0]}, key base", "leads back to itself")
    tree = load_yaml(path)
    near = difflib.get_close_matches("judge", [str(name) for name in tree if name != "judge"], n=1, cutoff=0.75)
    if near:
        raise ConfigError.of(f"recipe {path}, key {near[0]}", "is not a known key", fix="Did you mean judge?")
    if not set(tree) & _KNOWN_SECTIONS:
        raise ConfigError.of(f"recipe {path}", "holds no section of a recipe", got=sorted(map(str, tree)), expected=", ".join(sorted(_KNOWN_SECTIONS)))
    section, base = tree.get("judge") or {}, tree.get("base")
    if not isinstance(section, dict):
        raise ConfigError.of(f"recipe {path}, key judge", "is a section", got=section, expected="keys below it")
    below = _read_section(path.parent / base, (*including, here)) if isinstance(base, str) else {}
    return merge(below, section)


def _check_key(name: str, value: Any, where: str) -> None:
    if name not in _FIELDS:
        near = difflib.get_close_matches(str(name), _FIELDS, n=1)
        raise ConfigError.of(where, "is not a known key", fix=f"Did you mean judge.{near[0]}?" if near else f"Keys of judge: {', '.join(_FIELDS)}.")
    hint = typing.get_type_hints(JudgeConfig)[name]
    kinds = typing.get_args(hint) or (hint,)
    is_number = float in kinds and isinstance(value, int)
    if isinstance(value, bool) or not (isinstance(value, kinds) or is_number):
        raise ConfigError.of(where, "has the wrong type", got=value, expected=" or ".join(kind.__name__ for kind in kinds).replace("NoneType", "null"))
    if value == "???":
        raise ConfigError.of(where, "is left open", fix=f"Give --{name.replace(chr(95), chr(45))} beside the recipe.")


def _check_values(config: JudgeConfig, source: str) -> None:
    faults = (
        ("protocol", config.protocol not in JUDGE_PROTOCOLS, "is none of the choices", " or ".join(JUDGE_PROTOCOLS)),
        ("timeout_s", config.timeout_s <= 0, "is not positive", "a number above 0"),
        ("max_concurrency", config.max_concurrency <= 0, "is not positive", "a number above 0"),
        ("max_retries", config.max_retries < 0, "is negative", "0 or more"),
        ("temperature", config.temperature < 0, "is negative", "0 or more"),
    )
    for name, is_fault, problem, expected in faults:
        if is_fault:
            raise ConfigError.of(f"{source}, key judge.{name}", problem, got=getattr(config, name), expected=expected)
