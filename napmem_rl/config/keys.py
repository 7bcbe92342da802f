"""Which keys a recipe may hold, of which type, and which known key a wrong one was probably meant to be."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any

from napmem_rl.config.sections import SECTIONS
from napmem_rl.config.tree import Tree, compose_verl_defaults, merge, resolve, walk
from napmem_rl.errors import ConfigError

# Keys that verl reads but does not list in its YAML files, with its defaults.
UNLISTED: Tree = {
    "actor_rollout_ref": {
        "actor": {"fsdp_config": {"mixed_precision": None}},
        "ref": {"fsdp_config": {"mixed_precision": None}},
        "rollout": {"agent": {"agent_loop_manager_class": None}},
    },
}

# Below these any key is allowed: verl hands them on unread.
OPEN_SUBTREES: tuple[str, ...] = (
    "actor_rollout_ref.model.override_config",
    "actor_rollout_ref.actor.fsdp_config.mixed_precision",
    "actor_rollout_ref.actor.fsdp_config.wrap_policy",
    "actor_rollout_ref.actor.optim.override_optimizer_config",
    "actor_rollout_ref.ref.fsdp_config.mixed_precision",
    "actor_rollout_ref.ref.fsdp_config.wrap_policy",
    "actor_rollout_ref.rollout.engine_kwargs",
    "actor_rollout_ref.rollout.checkpoint_engine.engine_kwargs",
    "critic.model.override_config",
    "critic.optim.override_optimizer_config",
    "data.apply_chat_template_kwargs",
    "data.mm_processor_kwargs",
    "global_profiler.global_tool_config",
    "ray_kwargs.ray_init",
    "trainer.v1.sampler.sampler_kwargs",
)

# verl's YAML gives these an integer although a fraction is meant.
FRACTIONS: frozenset[str] = frozenset(
    {
        "actor_rollout_ref.actor.entropy_coeff",
        "actor_rollout_ref.rollout.over_sample_rate",
        "actor_rollout_ref.rollout.top_p",
        "actor_rollout_ref.rollout.val_kwargs.temperature",
        "trainer.v1.colocate_async.num_warmup_batches",
        "trainer.v1.separate_async.num_warmup_batches",
    }
)

# Types of keys whose default is null: they too may be null, and other such keys may be anything.
NULLABLE: dict[str, type] = (
    {f"actor_rollout_ref.actor.{name}": int for name in ("ppo_micro_batch_size", "ppo_micro_batch_size_per_gpu")}
    | {f"actor_rollout_ref.{part}.log_prob_micro_batch_size{end}": int for part in ("ref", "rollout") for end in ("", "_per_gpu")}
    | {f"actor_rollout_ref.model.{name}": str for name in ("hf_config_path", "tokenizer_path", "custom_chat_template", "lora_adapter_path")}
    | {f"actor_rollout_ref.rollout.{name}": str for name in ("quantization", "agent.agent_loop_config_path", "agent.agent_loop_manager_class")}
    | {f"algorithm.rollout_correction.{name}": str for name in ("rollout_is", "rollout_rs")}
    | {f"data.{name}": int for name in ("seed", "gen_batch_size", "val_batch_size")}
    | {"cold_start": str, "job.keep_checkpoints": int, "job.best_metric": str}
    | {f"data.{name}": str for name in ("dir", "tokenizer", "custom_cls.path", "custom_cls.name")}
    | {f"trainer.{name}": int for name in ("total_training_steps", "max_actor_ckpt_to_keep", "max_critic_ckpt_to_keep")}
    | {f"trainer.{name}": str for name in ("rollout_data_dir", "validation_data_dir", "resume_from_path", "checkpoint_callback_class", "default_hdfs_dir")}
    | {f"trainer.v1.sampler.custom_sampler.{name}": str for name in ("path", "name")}
)

# One value or a list of them.
ONE_OR_MANY: frozenset[str] = frozenset({"actor_rollout_ref.model.target_modules", "data.train_files", "data.val_files", "data.held_out", "trainer.logger"})


def section_defaults() -> Tree:
    """Our sections and the single keys that are ours as a tree of defaults."""
    tree: Tree = {name: {field.name: field.default for field in dataclasses.fields(section)} for name, section in SECTIONS.items()}
    return tree | {"system": "napmem", "platform": "gpu", "cold_start": None, "data": {"dir": None, "held_out": None}}


def build_defaults() -> Tree:
    """The lowest layer of every recipe: verl's configuration and our sections, interpolations unresolved."""
    return merge(merge(compose_verl_defaults(), UNLISTED), section_defaults())


@functools.cache
def _known() -> dict[str, Any]:
    """Every dotted key a recipe may hold: leaves with their defaults, branches with None."""
    tree = resolve(build_defaults(), "verl's defaults")
    known: dict[str, Any] = {}
    for dotted, value in walk(tree):
        if dotted.rsplit(".", 1)[-1] == "_target_":
            continue
        known[dotted] = value
        parts = dotted.split(".")
        known |= {".".join(parts[:depth]): None for depth in range(1, len(parts)) if ".".join(parts[:depth]) not in known}
    return known


@functools.cache
def _branches() -> frozenset[str]:
    return frozenset(key.rsplit(".", depth)[0] for key in _known() for depth in range(1, key.count(".") + 1))


def is_known(dotted: str) -> bool:
    """True for a key, or a section of keys, that verl or one of our sections has."""
    return dotted in _known()


def is_open(dotted: str) -> bool:
    """True for a key inside (or at) a subtree whose keys verl hands on unread."""
    return any(dotted == root or dotted.startswith(f"{root}.") for root in OPEN_SUBTREES)


def _children(prefix: str) -> list[str]:
    start = f"{prefix}." if prefix else ""
    return sorted({key[len(start) :].split(".", 1)[0] for key in _known() if key.startswith(start)})


def _walk_to_nearest(dotted: str) -> str | None:
    """Correct the key part by part, from the top. None where a part resembles none of its siblings."""
    prefix = ""
    for part in dotted.split("."):
        siblings = _children(prefix)
        close = [part] if part in siblings else difflib.get_close_matches(part, siblings, n=1, cutoff=0.6)
        if not close:
            return None
        prefix = f"{prefix}.{close[0]}" if prefix else close[0]
    return prefix


def is_different(dotted: str, value: Any) -> bool:
    """True where a key of verl has another value than verl's own default."""
    is_ours = dotted.split(".")[0] in SECTIONS or dotted in ("system", "platform", "cold_start", "data.dir", "data.held_out")
    return not is_ours and (dotted not in _known() or _known()[dotted] != value)


def nearest_key(dotted: str) -> str | None:
    """The known key that `dotted` was probably meant to be, or None where nothing comes near.

    Three tries: each part corrected among its siblings; the same last parts elsewhere; the whole key against all known ones.
    """
    walked = _walk_to_nearest(dotted)
    if walked is not None:
        return walked
    best = max(_known(), key=lambda key: _common_tail(dotted, key))
    if _common_tail(dotted, best)[0] > 0:
        return best
    found = difflib.get_close_matches(dotted, list(_known()), n=1, cutoff=0.6)
    return found[0] if found else None


def _common_tail(wrong: str, known: str) -> tuple[int, int]:
    """How many last parts two keys share; among equals the shorter known key wins."""
    pairs = zip(reversed(wrong.split(".")), reversed(known.split(".")), strict=False)
    shared = next((index for index, (left, right) in enumerate(pairs) if left != right), min(wrong.count("."), known.count(".")) + 1)
    return shared, -len(known)


def check_keys(layer: Mapping[str, Any], source: str) -> None:
    """Raise ConfigError for the first key of `layer` that no section and no verl config knows."""
    for dotted, _ in walk_strings(layer, source):
        if is_known(dotted) or is_open(dotted):
            continue
        nearest = nearest_key(dotted)
        fix = f"Did you mean {nearest}?" if nearest else "docs/recipes.md lists the keys of ours; the others are verl's."
        raise ConfigError.of(f"{source}, key {dotted}", "is not a known key", fix=fix)


def walk_strings(layer: Mapping[str, Any], source: str, prefix: str = "") -> list[tuple[str, Any]]:
    """`walk` that refuses keys which are no strings, or hold a dot."""
    leaves: list[tuple[str, Any]] = []
    for key, value in layer.items():
        if is_open(prefix.removesuffix(".")) and prefix:
            leaves.append((f"{prefix}{key}", value))
        elif not isinstance(key, str) or "." in key:
            raise ConfigError.of(
                f"{source}, key {prefix}{key}", "is not a plain name", got=key, expected="nested keys (a: {b: 1}) rather than dotted ones (a.b: 1)"
            )
        elif isinstance(value, Mapping) and value:
            leaves += walk_strings(value, source, f"{prefix}{key}.")
        else:
            leaves.append((f"{prefix}{key}", value))
    return leaves


def _expected_types(dotted: str, default: Any) -> tuple[type, ...] | None:
    """The types a value may have; None where any will do."""
    section, _, name = dotted.partition(".")
    if section in SECTIONS and name in {field.name for field in dataclasses.fields(SECTIONS[section])}:
        hint = typing.get_type_hints(SECTIONS[section])[name]
        kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    elif dotted in NULLABLE:
        kinds = (NULLABLE[dotted], types.NoneType)
    elif default is None or dotted in ONE_OR_MANY:
        return None
    else:
        kinds = (str if default == "???" else type(default), types.NoneType)
    return (*kinds, int) if float in kinds else (*kinds, float) if dotted in FRACTIONS else kinds


def check_type(dotted: str, value: Any, source: str) -> None:
    """Raise ConfigError where the type of a (resolved) value does not fit its key, or a scalar stands for a whole section."""
    if is_open(dotted) or value == "???":
        return
    if dotted in _branches() and not isinstance(value, Mapping):
        raise ConfigError.of(f"{source}, key {dotted}", "is a section", got=value, expected=f"keys below it, such as {dotted}.{_children(dotted)[0]}")
    expected = _expected_types(dotted, _known()[dotted])
    if expected is None or dotted in _branches():
        return
    is_stray_bool = isinstance(value, bool) and bool not in expected
    if isinstance(value, expected) and not is_stray_bool:
        return
    names = " or ".join("null" if kind is types.NoneType else kind.__name__ for kind in dict.fromkeys(expected))
    raise ConfigError.of(f"{source}, key {dotted}", f"has a value of type {type(value).__name__}", got=value, expected=names)
