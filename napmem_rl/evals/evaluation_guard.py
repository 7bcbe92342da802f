"""What must be known before figures are believed: a policy is not evaluated on what it was trained on, and an oracle without evidence is no ceiling."""

from __future__ import annotations

from pathlib import Path

from napmem_rl.config.evaluation_recipe import EvaluationRecipe
from napmem_rl.config.tree import load_yaml, select
from napmem_rl.data.overlap import FINGERPRINTS, find_asked_banks, find_training_fingerprints, load_fingerprints
from napmem_rl.errors import DataError
from napmem_rl.evals.prepared import Benchmark
from napmem_rl.schema import AnswerKind

_MAX_BANKS = 3


def check_training_overlap(recipe: EvaluationRecipe, benchmarks: list[Benchmark]) -> str:
    """Compare the messages that the policy was trained on with those of every bank that a question asks.

    Returns:
        What could be checked, in words.

    Raises:
        DataError: they share a message. It names the benchmark, how many, and some banks.
    """
    if recipe.policy.engine in ("endpoint", "extractive"):
        return "" if recipe.policy.engine == "extractive" else "what the model behind the endpoint was trained on is not known"
    training = find_training(recipe)
    if training is None:
        return "what the policy was trained on is not known: no run directory says"
    left_out = [benchmark.name for benchmark in benchmarks if not (benchmark.directory / FINGERPRINTS).is_file()]
    for benchmark in benchmarks:
        if benchmark.name in left_out:  # generated users, whose sentences come from the same templates, or a directory that was written by hand
            continue
        asked = load_fingerprints(benchmark.directory, {task.bank_id for task, _ in benchmark.items})
        shared = training.keys() & asked.keys()
        if shared:
            banks = sorted({f"{asked[number]} (trained on as {training[number]})" for number in shared})
            shown = ", ".join(banks[:_MAX_BANKS]) + (" …" if len(banks) > _MAX_BANKS else "")
            fix = "Evaluate on users that were not trained on."
            raise DataError.of(f"benchmark {benchmark.name}", f"shares {len(shared)} messages with what the policy was trained on: {shown}", fix=fix)
    said = f"no message of a benchmark is among the {len(training):,} that the policy was trained on"
    return f"{said}; not compared, for want of fingerprints: {', '.join(left_out)}" if left_out else said


def describe_oracle_gaps(recipe: EvaluationRecipe, benchmarks: list[Benchmark]) -> str:
    """How many questions that have an answer the oracle reads nothing for, because their gold evidence is not known; "" where there are none."""
    if recipe.policy.access != "oracle":
        return ""
    items = [(task, key) for benchmark in benchmarks for task, key in benchmark.items if key.kind is not AnswerKind.UNANSWERABLE and task.needs_memory]
    num_unknown = sum(not key.evidence_ids for _, key in items)
    if not num_unknown:
        return ""
    return f"the oracle reads nothing for {num_unknown} of {len(items)} questions, whose gold evidence is not known: with them its scores are no ceiling"


def find_training(recipe: EvaluationRecipe) -> dict[int, str] | None:
    """Fingerprints of all messages that training could read, with a bank of each; None where nothing tells."""
    found = find_training_fingerprints(Path(recipe.policy.model or "."))
    if found is not None or recipe.trained_in is None:
        return found
    data_dir = select(load_yaml(recipe.trained_in), "napmem.data.dir")
    if not isinstance(data_dir, str) or not (Path(data_dir) / FINGERPRINTS).is_file():
        return None
    return load_fingerprints(Path(data_dir), find_asked_banks(Path(data_dir), ("train",)))
