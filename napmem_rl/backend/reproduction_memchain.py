"""`launch/reproduce.py memchain`: MemChain's proof seed by seed, each kept, then the table in docs/reproduce.md."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from napmem_rl.atomic import write_file
from napmem_rl.backend.memchain_proof import BASE, CLEAN, FULL, SFT, TMPO, Report, SeedRun, Variant, build_base, build_seed, measure_fixed, run_variant
from napmem_rl.config.recipe import load_recipe
from napmem_rl.config.sections import PACKET_ABLATIONS
from napmem_rl.evals.memchain_table import AFTER, BEFORE, MODES, render_rows, render_table, summarise_gains, summarise_row
from napmem_rl.evals.metrics import BANK_ID
from napmem_rl.evals.reproduce import replace_between

BEGIN, END = "<!-- memchain: begin -->", "<!-- memchain: end -->"
ABLATION_MARKERS = ("<!-- memchain ablations: begin -->", "<!-- memchain ablations: end -->")
ABLATIONS = (  # variant, the stage whose policy counts, name of the row
    (FULL, TMPO, "full"),
    *((Variant(name=name, common=(f"memchain.ablation={name}",)), TMPO, name.replace("_", " ")) for name in PACKET_ABLATIONS if name != "none"),
    (FULL, SFT, "SFT only"),
    (Variant(name="prompt_only", stages=(BASE,)), BASE, "prompt only (no packet learnt)"),
)
READER = "worlds (a perfect reader of synthetic users; always the same answer, so that s = c)"


def reproduce_memchain(root: Path, seeds: Sequence[int], *, report: Report) -> dict[str, Any]:
    """Run what is not finished, and write runs/reproduce-memchain/table.json and the table of the page.

    Raises:
        BackendError: a training failed.
        ConfigError: an earlier run was made by other recipes.
        DataError: the page lacks its two markers. Nothing is written to it then.
    """
    out, recipes = root / "runs" / "reproduce-memchain", root / "recipes" / "memchain"
    rows = [run_seed(SeedRun(recipes=recipes, base=out / "base", out=out / f"seed{seed}", seed=seed, report=report)) for seed in seeds]
    steps = int(load_recipe(recipes / "cpu.yaml", [f"data.dir={out}"]).verl.trainer.total_training_steps)
    table = {"steps": steps, "reader": READER, "seeds": rows}
    page = replace_between(root / "docs" / "reproduce.md", BEGIN, END, render_table(table))
    write_file(out / "table.json", json.dumps(table, indent=2) + "\n")
    write_file(root / "docs" / "reproduce.md", page)
    return table


def reproduce_ablations(root: Path, seeds: Sequence[int], *, report: Report) -> dict[str, Any]:
    """The variants of Table 5 beside the whole method; writes runs/reproduce-memchain/ablations.json and their table of the page. Raises as the above."""
    out, recipes = root / "runs" / "reproduce-memchain", root / "recipes" / "memchain"
    runs = [SeedRun(recipes=recipes, base=out / "base", out=out / f"seed{seed}", seed=seed, report=report) for seed in seeds]
    table = {"reader": READER, "seeds": [{"seed": run.seed, "rows": _run_ablations(run)} for run in runs]}
    page = replace_between(root / "docs" / "reproduce.md", *ABLATION_MARKERS, render_rows(table, "variant"))
    write_file(out / "ablations.json", json.dumps(table, indent=2) + "\n")
    write_file(root / "docs" / "reproduce.md", page)
    return table


def _run_ablations(run: SeedRun) -> list[dict[str, Any]]:
    build_seed(run)
    build_base(run)
    rows = []
    for variant, stage, name in ABLATIONS:
        facts = run_variant(run, variant)
        rows += [{"name": name, "mode": mode, **summarise_row(facts[f"{stage}/{mode}"])} for mode in MODES]
    return rows


def run_seed(run: SeedRun) -> dict[str, Any]:
    """One seed: the whole method, the references, and what TMPO gained. What is finished comes from its files."""
    path = run.out / "seed.json"
    load = round(os.getloadavg()[0], 2)
    build_seed(run)
    build_base(run)
    full, clean, fixed = run_variant(run, FULL), run_variant(run, CLEAN), measure_fixed(run)
    named = [(BEFORE, mode, full[f"{SFT}/{mode}"]) for mode in MODES] + [(AFTER, mode, full[f"{TMPO}/{mode}"]) for mode in MODES]
    named += [("SFT on clean packets", mode, clean[f"{SFT}/{mode}"]) for mode in MODES] + [(name, "fixed", facts) for name, facts in fixed.items()]
    summary = {
        "seed": run.seed,
        "questions": len(full[f"{SFT}/greedy"]),
        "users": len({row[BANK_ID] for row in full[f"{SFT}/greedy"]}),
        "gains": {mode: summarise_gains(full[f"{SFT}/{mode}"], full[f"{TMPO}/{mode}"]) for mode in MODES},
        "rows": [{"name": name, "mode": mode, **summarise_row(facts)} for name, mode, facts in named],
        "seconds": _read_kept(path).get("seconds", {}) | run.seconds,
        "load_at_start": _read_kept(path).get("load_at_start", load),  # a later run that only reads files has another load
    }
    write_file(path, json.dumps(summary, indent=2) + "\n")
    return summary


def _read_kept(path: Path) -> Mapping[str, Any]:
    """The summary of an earlier run of the seed, if there is one."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
