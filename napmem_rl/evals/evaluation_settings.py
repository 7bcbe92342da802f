"""What an evaluation directory was made with: written before the first answer, compared when a run goes on.

Only what decides answers must be the same. How many are asked at once, which metrics are taken and who judges may change: scores are made anew out of answers.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from napmem_rl.atomic import write_file
from napmem_rl.config.evaluation_recipe import EvaluationRecipe
from napmem_rl.config.provenance import find_revision, find_versions
from napmem_rl.config.tree import load_yaml, walk
from napmem_rl.errors import DataError
from napmem_rl.evals.prepared import Benchmark
from napmem_rl.evals.result_rows import SETTINGS
from napmem_rl.masking import mask_settings

FORMAT = 1
DECIDES_ANSWERS = "answers_depend_on"
_FREE = {  # of the sections, what does not decide an answer
    "policy": {"name", "base_url", "api_key_env", "timeout_s", "max_retries", "cache_dir"},
    "memory": {"banks", "writer", "encoder_device", "encoder_threads"},
    "agent": set(),
}
_FREE_OF_PACKETS = {  # the same, of the sections that an access to packets reads
    "memchain": {"num_answers", "invalid_actions", "candidates"},
    "answerer": {"base_url", "api_key_env", "timeout_s", "max_retries", "patience_s", "max_concurrency", "cache_dir"},
}
_MAX_SHOWN = 6


def build_settings(recipe: EvaluationRecipe, benchmarks: Sequence[Benchmark], *, name: str, facts: Mapping[str, Any], model_hash: str | None) -> dict[str, Any]:
    """The content of evaluation.yaml.

    Args:
        recipe: what is evaluated and how.
        benchmarks: on what.
        name: of the policy.
        facts: what the policy says of itself.
        model_hash: `fingerprint_weights` of a checkpoint; None where there is none.
    """
    decisive = _FREE if recipe.packets is None else _FREE | _FREE_OF_PACKETS
    sections = {section: _without(dataclasses.asdict(getattr(recipe, section)), free) for section, free in decisive.items()}
    if recipe.packets is not None and recipe.memchain.candidates is not None:
        sections["candidates_sha256"] = hashlib.sha256(Path(recipe.memchain.candidates).read_bytes()).hexdigest()
    given = {"samples": recipe.evaluation.samples, "seed": recipe.evaluation.seed, "limit": recipe.evaluation.limit}
    data = {
        benchmark.name: {
            "split": benchmark.split,
            "questions": len(benchmark.items),
            "data_sha256": benchmark.sha256,
            "banks_sha256": _hash_versions(benchmark),
        }
        for benchmark in benchmarks
    }
    return {
        "format": FORMAT,
        "policy": {"name": name, "facts": _plain(facts)},
        DECIDES_ANSWERS: {**sections, "evaluation": given, "prompt": facts.get("prompt"), "model_fingerprint": model_hash, "benchmarks": data},
        "recipe": _plain(recipe.sections()),
        "directories": {benchmark.name: str(benchmark.directory) for benchmark in benchmarks},
        "trained_in": str(recipe.trained_in) if recipe.trained_in else None,
        "revision": find_revision(),
        "versions": find_versions(),
    }


def settle(out: Path, settings: Mapping[str, Any]) -> bool:
    """Write the settings of a new directory, or see that those of an earlier run are the same; True where the run goes on.

    Raises:
        DataError: the directory was made with other settings, each of which is named, or holds something else.
    """
    path = out / SETTINGS
    if not path.is_file():
        if out.exists() and any(entry.name != ".lock" for entry in out.iterdir()):
            raise DataError.of(f"output {out}", f"holds something else: no {SETTINGS}", fix="Give a new or empty directory: --out DIR.")
        out.mkdir(parents=True, exist_ok=True)
        write_file(path, yaml.safe_dump(mask_settings(_plain(settings)), sort_keys=False, allow_unicode=True, width=120))
        return False
    before = load_yaml(path)
    if before.get("format") != FORMAT:
        raise DataError.of(f"evaluation {out}", "is of another format", got=before.get("format"), expected=str(FORMAT), fix="Give another --out.")
    changes = find_changes(before[DECIDES_ANSWERS], mask_settings(_plain(settings[DECIDES_ANSWERS])))
    if changes:
        shown = "; ".join(changes[:_MAX_SHOWN]) + (f"; and {len(changes) - _MAX_SHOWN} more" if len(changes) > _MAX_SHOWN else "")
        fix = "Answers of two settings must not mix: give another --out, or the settings of before."
        raise DataError.of(f"evaluation {out}", f"was made with other settings ({shown})", fix=fix)
    return True


def load_settings(out: Path) -> dict[str, Any]:
    """evaluation.yaml of a directory. Raises DataError where there is none."""
    if not (out / SETTINGS).is_file():
        raise DataError.of(f"directory {out}", f"is no evaluation: it holds no {SETTINGS}", fix="Give what launch/evaluate.py wrote.")
    return load_yaml(out / SETTINGS)


def find_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """"key: then → now" for each key that differs, sorted."""
    then, later = dict(walk(before)), dict(walk(now))
    return [f"{key}: {then.get(key)} → {later.get(key)}" for key in sorted({*then, *later}) if then.get(key) != later.get(key)]


def _hash_versions(benchmark: Benchmark) -> str:
    used = sorted({task.bank_id for task, _ in benchmark.items})
    return hashlib.sha256("\n".join(f"{bank_id} {benchmark.versions.get(bank_id)}" for bank_id in used).encode()).hexdigest()


def _without(section: Mapping[str, Any], free: set[str]) -> dict[str, Any]:
    return {name: value for name, value in section.items() if name not in free}


def _plain(value: Any) -> Any:
    """Data as YAML holds it: mappings, lists and scalars."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
