"""Recipes: sparse YAML over verl's configuration and our sections.

Layers, lowest first: verl's defaults and ours · the platform (platform_cpu.yaml, platform_gpu.yaml beside this file) · the recipe's `base` · the recipe ·
`key=value` arguments. A recipe holds verl's own top-level keys (actor_rollout_ref, algorithm, data, trainer, …) and ours:

- `system: napmem | memchain`, `platform: cpu | gpu` (gpu unless said: a CPU-only head node must never pick the CPU by itself), `base: other.yaml`
- `cold_start: other.yaml`: a recipe of launch/sft.py, relative to this one, that makes `actor_rollout_ref.model.path` out of `data.dir` where it is missing
- `memory`, `agent`, `reward`, `judge`, `memchain`, `answerer`, `report`, `job`: the dataclasses of `sections.py`. `reward` shares its name with verl's
  section, whose own reward loop does not run here: its other keys are refused, and `reward.num_workers` counts OUR workers.
- `data.dir`: a prepared directory. It stands for data.train_files=<dir>/train.parquet, data.val_files=<dir>/dev.parquet and memory.banks=<dir>/banks
  unless those are set, and other values may point into it: `${data.dir}/model`.
- `data.held_out`: prepared directories (one or a list) that are for evaluation: training on what shares a message with their questions' users is refused

`???` as a value means that the user must give one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from napmem_rl.atomic import write_file
from napmem_rl.config import keys, provenance, refusals
from napmem_rl.config.sections import SECTIONS, AgentConfig, AnswererConfig, JobConfig, JudgeConfig, MemChainConfig, MemoryConfig, ReportConfig, RewardConfig
from napmem_rl.config.tree import Tree, absolute, is_path, load_yaml, merge, parse_override, resolve, select, walk
from napmem_rl.errors import ConfigError
from napmem_rl.masking import mask_settings

PLATFORMS = ("cpu", "gpu")
MODEL_PATH = "actor_rollout_ref.model.path"
# Made absolute, so that no worker's directory matters
PATHS = (
    "data.dir",
    "data.train_files",
    "data.val_files",
    "data.held_out",
    "memory.banks",
    "memory.rerank",
    "judge.cache_dir",
    "memchain.candidates",
    "answerer.cache_dir",
    "report.dir",
    "trainer.default_local_dir",
)
# A path, or a name of something else (a model of a hub, one of our encoders): made absolute where it looks like a path, or is one
PATHS_OR_NAMES = (MODEL_PATH, *(f"actor_rollout_ref.model.{name}" for name in ("tokenizer_path", "hf_config_path", "lora_adapter_path")), "memory.encoder")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A recipe with every default filled in and every interpolation resolved.

    `verl` is what verl's trainer takes (our keys taken out); `changed` holds each dotted key that the platform, the recipe or an argument set.
    """

    path: Path
    overrides: tuple[str, ...]
    system: str
    platform: str
    data_dir: Path | None
    cold_start: Path | None
    memory: MemoryConfig
    agent: AgentConfig
    reward: RewardConfig
    judge: JudgeConfig
    memchain: MemChainConfig
    answerer: AnswererConfig
    report: ReportConfig
    job: JobConfig
    verl: DictConfig
    changed: Mapping[str, Any] = field(repr=False)
    notices: tuple[str, ...] = ()
    held_out: tuple[Path, ...] = ()

    @property
    def env(self) -> dict[str, str]:
        """Environment of every process of the job, also the driver's before it imports verl (`ray_kwargs.ray_init.runtime_env.env_vars`)."""
        return dict(OmegaConf.select(self.verl, "ray_kwargs.ray_init.runtime_env.env_vars") or {})

    def sections(self) -> dict[str, Any]:
        """Our part as plain data."""
        named = {name: dataclasses.asdict(getattr(self, name)) for name in SECTIONS}
        paths = {"cold_start": str(self.cold_start) if self.cold_start else None, "data": {"dir": str(self.data_dir) if self.data_dir else None}}
        paths["data"]["held_out"] = [str(path) for path in self.held_out] or None
        return {"system": self.system, "platform": self.platform} | paths | named

    @property
    def model_path(self) -> Path:
        """Where the policy lies, if it is a directory."""
        return Path(OmegaConf.select(self.verl, MODEL_PATH)).expanduser()

    def needs_cold_start(self) -> bool:
        """Whether the policy is to be made first, by the recipe `cold_start`."""
        return self.cold_start is not None and not self.model_path.exists()

    def resolved_yaml(self) -> str:
        """The whole configuration: our sections, then verl's; keys and passwords are masked."""
        return _dump({"recipe": str(self.path), "overrides": list(self.overrides), "napmem": self.sections(), "verl": OmegaConf.to_container(self.verl)})

    def find_changes(self, resolved: Path) -> tuple[str, ...]:
        """How this configuration differs from an earlier `resolved_yaml` written to a file: "key: then → now" for each key, sorted."""
        then, now = (yaml.safe_load(text) for text in (resolved.read_text(encoding="utf-8"), self.resolved_yaml()))
        before, after = ({dotted: value for part in ("napmem", "verl") for dotted, value in walk(tree[part])} for tree in (then, now))
        keys_of_both = sorted({*before, *after})
        return tuple(f"{key}: {before.get(key)} → {after.get(key)}" for key in keys_of_both if before.get(key) != after.get(key))

    def summary_yaml(self) -> str:
        """Our sections in full and, of verl's keys, those that differ from verl's own defaults."""
        settings = OmegaConf.to_container(self.verl)
        differing = {dotted: select(settings, dotted) for dotted in self.changed if keys.is_different(dotted, select(settings, dotted))}
        return _dump({"napmem": self.sections(), "verl": dict(sorted(differing.items()))})

    def find_missing_paths(self) -> tuple[str, ...]:
        """What the recipe points to and is not there, one sentence each."""
        return tuple(f"{dotted}: {path} does not exist" for dotted, path in self._paths() if not path.exists())

    def check_paths(self) -> None:
        """Raise ConfigError naming everything the recipe points to that is not there."""
        missing = self.find_missing_paths()
        if missing:
            raise ConfigError.of(f"recipe {self.path}", "; ".join(missing), fix="Prepare the data first (launch/prepare_data.py), or correct the path.")

    def _paths(self) -> Iterator[tuple[str, Path]]:
        for dotted in ("data.train_files", "data.val_files"):
            value = OmegaConf.select(self.verl, dotted)
            for path in (Path(name).expanduser() for name in ([value] if isinstance(value, str) else value or [])):
                if not (self.needs_cold_start() and path.is_relative_to(self.model_path)):  # rows that the cold start writes beside the policy
                    yield dotted, path
        if self.memory.banks is not None:
            yield "memory.banks", Path(self.memory.banks)
        if self.memory.rerank is not None:
            yield "memory.rerank", Path(self.memory.rerank)
        if self.memchain.candidates is not None:
            yield "memchain.candidates", Path(self.memchain.candidates)
        for dotted in PATHS_OR_NAMES:
            name = self.memory.encoder if dotted == "memory.encoder" else OmegaConf.select(self.verl, dotted)
            if name and is_path(name) and not (dotted == MODEL_PATH and self.needs_cold_start()):
                yield dotted, Path(name)
        if self.cold_start is not None:
            yield "cold_start", self.cold_start
        yield from (("data.held_out", path) for path in self.held_out)

    def save_resolved(self, directory: Path, bank_versions: Mapping[str, str]) -> None:
        """Write resolved.yaml and provenance.json (revision, package versions, bank versions) into `directory`, each at once or not at all."""
        write_file(directory / "resolved.yaml", self.resolved_yaml())
        provenance.save_provenance(directory / "provenance.json", bank_versions)


@dataclass(frozen=True, slots=True)
class _Layer:
    source: str  # "recipe recipes/quickstart.yaml"
    tree: Tree


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read, check and resolve a recipe.

    Args:
        path: the YAML file.
        overrides: `key=value` arguments, later ones winning; the value is YAML.

    Raises:
        ConfigError: the file is missing or malformed; a key is unknown (the nearest one is named), would do nothing, or has a value of the wrong type
            or one that must not run; a `???` was left open. The message names the file or argument, the key and what to do.
    """
    path = Path(path)
    layers = [*_read_layers(path, ()), *(_Layer(f"argument {text!r}", parse_override(text)) for text in overrides)]
    for layer in layers:
        keys.check_keys(layer.tree, layer.source)
    platform = _read_platform(layers)
    settings = _merge_layers([_platform_layer(platform), *layers], f"recipe {path}")
    _check_layers(layers, settings, f"recipe {path}")
    return _build(path, tuple(overrides), settings, [_platform_layer(platform), *layers])


def _read_layers(path: Path, including: tuple[Path, ...]) -> list[_Layer]:
    """The recipe and, before it, what its `base` leads to."""
    here = path.resolve()
    if here in including:
        chain = " -> ".join(str(step) for step in (*including, here))
        raise ConfigError.of(f"recipe {including[0]}, key base", f"leads back to itself ({chain})")
    tree = load_yaml(path)
    base = tree.pop("base", None)
    if base is None:
        return [_Layer(f"recipe {path}", tree)]
    if not isinstance(base, str):
        raise ConfigError.of(f"recipe {path}, key base", "is not a file name", got=base, expected="another recipe, relative to this one")
    if not (path.parent / base).is_file():
        raise ConfigError.of(f"recipe {path}, key base", "names no file", got=base, expected=f"a recipe in {path.parent}")
    return [*_read_layers(path.parent / base, (*including, here)), _Layer(f"recipe {path}", tree)]


def _read_platform(layers: Sequence[_Layer]) -> str:
    chosen = keys.section_defaults()["platform"]
    for layer in layers:
        chosen = layer.tree.get("platform", chosen)
        if chosen not in PLATFORMS:
            raise ConfigError.of(f"{layer.source}, key platform", "is none of the platforms", got=chosen, expected=" or ".join(PLATFORMS))
    return chosen


def _platform_layer(platform: str) -> _Layer:
    path = Path(__file__).with_name(f"platform_{platform}.yaml")
    layer = _Layer(f"platform defaults {path.name}", load_yaml(path))
    keys.check_keys(layer.tree, layer.source)
    return layer


def _merge_layers(layers: Sequence[_Layer], recipe: str) -> Tree:
    """All layers over verl's defaults, `data.dir` spelled out, interpolations resolved, paths absolute. Raises ConfigError where a value is left open."""
    tree = keys.build_defaults()
    given: set[str] = set()
    for layer in layers:
        for dotted, value in walk(layer.tree):
            if isinstance(select(tree, dotted), dict) and value is None:
                raise ConfigError.of(f"{layer.source}, key {dotted}", "is a section", expected="keys below it, or no mention of it")
            given.add(dotted)
        merge(tree, layer.tree)
    _check_open(tree, given, recipe)
    source = layers[-1].source
    directory = tree["data"]["dir"]
    if isinstance(directory, str) and "${" in directory:
        directory = select(resolve(tree, source), "data.dir")
    if isinstance(directory, str) and directory != "???":
        tree["data"]["dir"] = absolute(directory)
        for dotted, name in (("data.train_files", "train.parquet"), ("data.val_files", "dev.parquet"), ("memory.banks", "banks")):
            if dotted not in given:
                section, _, key = dotted.partition(".")
                tree[section][key] = f"{absolute(directory)}/{name}"
    settings = resolve(tree, source)
    for dotted in (*PATHS, *PATHS_OR_NAMES):
        parent, _, key = dotted.rpartition(".")
        section, value = select(settings, parent), select(settings, dotted)
        if isinstance(value, list):
            section[key] = [absolute(name) if isinstance(name, str) else name for name in value]
        elif isinstance(value, str) and value != "???" and (dotted in PATHS or is_path(value)):
            section[key] = absolute(value)
    return settings


def _check_open(tree: Tree, given: set[str], recipe: str) -> None:
    """Raise ConfigError where a key that somebody set is `???`, or points into `data.dir` and there is none."""
    still_open = sorted(dotted for dotted in given if select(tree, dotted) == "???")
    if still_open:
        raise ConfigError.of(recipe, f"leaves open {', '.join(still_open)}", fix=f"Give it: {' '.join(f'{dotted}=…' for dotted in still_open)}")
    inside = sorted(dotted for dotted in given if "${data.dir}" in str(select(tree, dotted)))
    if inside and tree["data"]["dir"] is None:
        raise ConfigError.of(f"{recipe}, key data.dir", f"is missing, and {', '.join(inside)} points into it", fix="Give data.dir=DIR.")


def _check_layers(layers: Sequence[_Layer], settings: Tree, source: str) -> None:
    """Types, keys without effect and values that must not run. Faults are laid at the layer that set the key last."""
    owner = {dotted: layer.source for layer in layers for dotted, _ in walk(layer.tree)}
    for dotted, where in owner.items():
        keys.check_type(dotted, select(settings, dotted), where)
    if not {"data.dir", "data.train_files"} & set(owner):
        raise ConfigError.of(source, "names no data", fix="Give data.dir=DIR, a directory that launch/prepare_data.py has written.")
    if MODEL_PATH not in owner:
        raise ConfigError.of(source, "names no model", fix=f"Give {MODEL_PATH}=PATH.")
    for dotted, where in owner.items():
        refusals.check_has_effect(dotted, settings, where)
    refusals.check_values(settings, source)


def _build(path: Path, overrides: tuple[str, ...], settings: Tree, layers: Sequence[_Layer]) -> Recipe:
    owned = [dotted for layer in layers for dotted, _ in walk(layer.tree)] + ["data.train_files", "data.val_files"]
    changed = {dotted: select(settings, dotted) for dotted in owned}
    notices = refusals.notices_of(settings)
    data_dir, held_out = settings["data"].pop("dir"), settings["data"].pop("held_out") or []
    ours = {name: settings.pop(name) for name in SECTIONS if name != "reward"}
    fields = {f.name for f in dataclasses.fields(RewardConfig)}
    ours["reward"] = {name: settings["reward"].pop(name) for name in fields}
    settings["reward"]["num_workers"] = 1  # of verl's own reward loop, which stays idle
    verl = OmegaConf.create({key: value for key, value in settings.items() if key not in ("system", "platform", "cold_start")})
    OmegaConf.set_struct(verl, True)
    return Recipe(
        path=path,
        overrides=overrides,
        system=settings["system"],
        platform=settings["platform"],
        data_dir=Path(data_dir) if data_dir else None,
        cold_start=path.parent / settings["cold_start"] if settings["cold_start"] else None,
        verl=verl,
        changed=changed,
        notices=notices,
        held_out=tuple(Path(name) for name in ([held_out] if isinstance(held_out, str) else held_out)),
        **{name: section(**ours[name]) for name, section in SECTIONS.items()},
    )


def _dump(tree: Mapping[str, Any]) -> str:
    return yaml.safe_dump(mask_settings(tree), sort_keys=False, allow_unicode=True, width=120)
