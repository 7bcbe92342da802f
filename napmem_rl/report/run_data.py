"""What a run directory holds, read for people: metrics by step, settings, provenance, summary.

Nothing that cannot be read is passed over in silence: each such line or file becomes a `Problem`, which the page shows.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from napmem_rl.errors import DataError
from napmem_rl.masking import mask_settings
from napmem_rl.memory.storage import BANKS_VARIABLE

METRICS_FILE, TRAJECTORIES_DIR = "metrics.jsonl", "trajectories"
SETTINGS_FILE, PROVENANCE_FILE, SUMMARY_FILE = "resolved.yaml", "provenance.json", "summary.json"
TRAINING_DIR = "grpo"  # of a quickstart's run directory
STEP_MARK = "training/global_step"  # verl writes it with every training step, and not with a validation before one
_ASIDE = re.compile(r"metrics\.(\d+)\.jsonl")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """Something of the run that could not be used: a file, the line (counting from 1) if it is one line of it, and what is wrong."""

    file: str
    line: int | None
    text: str


@dataclass(kw_only=True, slots=True)
class Metrics:
    """Values by step and name. A value that was not logged, or was not finite, is absent.

    `starts` are the first steps of every start of the job but the first; `num_not_finite` counts NaN and infinity by metric name.
    """

    by_step: dict[int, dict[str, float]] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    num_not_finite: dict[str, int] = field(default_factory=dict)

    @property
    def steps(self) -> list[int]:
        """All steps that have a line, in order."""
        return sorted(self.by_step)

    def column(self, name: str) -> list[float | None]:
        """The values of one metric, one for each of `steps`; None where it is absent."""
        return [self.by_step[step].get(name) for step in self.steps]

    def names(self) -> list[str]:
        """Every metric that was logged at least once, sorted."""
        return sorted({name for values in self.by_step.values() for name in values})


@dataclass(kw_only=True, slots=True)
class RunData:
    """One run. `name` is what its directory is called; `settings` are our sections, `verl` verl's; both are empty where there is no resolved.yaml."""

    name: str
    run_dir: Path
    trajectories_dir: Path
    metrics: Metrics
    settings: dict[str, Any]
    verl: dict[str, Any]
    provenance: dict[str, Any]
    summary: dict[str, Any] | None
    problems: list[Problem]

    def setting(self, dotted: str, default: Any = None) -> Any:
        """A value of resolved.yaml, e.g. ``napmem.memory.banks`` or ``verl.trainer.total_training_steps``."""
        section, _, rest = dotted.partition(".")
        value: Any = {"napmem": self.settings, "verl": self.verl}[section]
        for key in rest.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return default if value is None else value

    def find_banks(self, given: Path | None = None) -> Path | None:
        """The run's banks: the given directory, this machine's copy, where the recipe says, or beside a quickstart's training; None if none exists."""
        local, named = os.environ.get(BANKS_VARIABLE), self.setting("napmem.memory.banks")
        if given is not None:
            return given if given.is_dir() else None
        places = [*(Path(place) for place in (local, named) if isinstance(place, str) and place), self.run_dir.parent / "data" / "banks"]
        return next((place for place in places if place.is_dir()), None)


def load_run(directory: Path) -> RunData:
    """Read all of a run but its trajectories.

    Args:
        directory: a run directory, or that of a quickstart, whose training is in `grpo/`.

    Raises:
        DataError: there is no run.
    """
    directory = Path(directory)
    run_dir = _find_training(directory)
    problems: list[Problem] = []
    resolved = _load_mapping(run_dir / SETTINGS_FILE, problems)
    settings = resolved.get("napmem") if isinstance(resolved.get("napmem"), dict) else {}
    report = settings.get("report") if isinstance(settings.get("report"), dict) else {}
    elsewhere = report.get("dir")
    summary = _load_mapping(directory / SUMMARY_FILE, problems) if (directory / SUMMARY_FILE).exists() else None
    return RunData(
        name=directory.resolve().name,
        run_dir=run_dir,
        trajectories_dir=Path(elsewhere) if isinstance(elsewhere, str) else run_dir / TRAJECTORIES_DIR,
        metrics=load_metrics(run_dir, problems),
        settings=settings,
        verl=resolved.get("verl") if isinstance(resolved.get("verl"), dict) else {},
        provenance=_load_mapping(run_dir / PROVENANCE_FILE, problems),
        summary=summary,
        problems=problems,
    )


def load_metrics(run_dir: Path, problems: list[Problem]) -> Metrics:
    """Merge the metrics of all starts of a job by step; where two starts logged a step, the later one counts.

    Args:
        run_dir: holds metrics.jsonl, and metrics.1.jsonl, metrics.2.jsonl, … of earlier starts.
        problems: what could not be read is added here.
    """
    metrics = Metrics()
    aside = sorted((int(match[1]), path) for path in run_dir.glob("metrics.*.jsonl") if (match := _ASIDE.fullmatch(path.name)))
    files = [path for _, path in aside] + ([run_dir / METRICS_FILE] if (run_dir / METRICS_FILE).exists() else [])
    for number, path in enumerate(files):
        steps = []
        fresh: dict[int, dict[str, float]] = {}
        for step, values in _read_metric_lines(path, metrics, problems):
            if STEP_MARK in values:
                steps.append(step)
            fresh.setdefault(step, {}).update(values)
        for step, values in fresh.items():
            earlier = {} if STEP_MARK in values else metrics.by_step.get(step, {})
            metrics.by_step[step] = earlier | values
        if number and steps and metrics.by_step:
            metrics.starts.append(min(steps))
    return metrics


def read_lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Line number (from 1), byte offset and content of each line, without holding the file in memory."""
    offset = 0
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                yield number, offset, line
            offset += len(line)


def _read_metric_lines(path: Path, metrics: Metrics, problems: list[Problem]) -> Iterator[tuple[int, dict[str, float]]]:
    for number, _, line in read_lines(path):
        try:
            row = json.loads(line)
            step, data = int(row["step"]), dict(row["data"])
        except (ValueError, TypeError, KeyError) as error:
            problems.append(Problem(file=path.name, line=number, text=f"is no line of metrics ({type(error).__name__}: {error})"))
            continue
        values = {}
        for name, value in data.items():
            if isinstance(value, bool | int | float) and math.isfinite(value):
                values[str(name)] = float(value)
            elif value is None or isinstance(value, float):  # the logger writes NaN and infinity as null
                metrics.num_not_finite[str(name)] = metrics.num_not_finite.get(str(name), 0) + 1
        yield step, values


def _find_training(directory: Path) -> Path:
    for place in (directory, directory / TRAINING_DIR):
        if any((place / name).exists() for name in (METRICS_FILE, TRAJECTORIES_DIR, SETTINGS_FILE)):
            return place
    fix = "Give the directory that the run printed; it holds resolved.yaml, metrics.jsonl and trajectories/."
    problem = "holds no run" if directory.is_dir() else "does not exist"
    raise DataError.of(f"run directory {directory}", problem, fix=fix)


def _load_mapping(path: Path, problems: list[Problem]) -> dict[str, Any]:
    """A YAML or JSON file that holds a mapping; empty, and told in `problems`, where it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
        value = json.loads(text) if path.suffix == ".json" else yaml.load(text, Loader=_LOADER)
    except FileNotFoundError:
        problems.append(Problem(file=path.name, line=None, text="is missing"))
        return {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        problems.append(Problem(file=path.name, line=None, text=f"cannot be read ({type(error).__name__}: {error})"))
        return {}
    if not isinstance(value, dict):
        problems.append(Problem(file=path.name, line=None, text="holds no mapping"))
        return {}
    return mask_settings(value)  # also of a run from before they were masked when they were written
