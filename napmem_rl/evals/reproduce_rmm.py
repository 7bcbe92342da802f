"""RMM's proof on LoCoMo and LongMemEval: seeds one after the other, each kept in a file, then the table in docs/reproduce.md."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from napmem_rl.atomic import write_file
from napmem_rl.data.locomo import load_locomo
from napmem_rl.data.longmemeval import load_longmemeval
from napmem_rl.errors import ConfigError, DataError
from napmem_rl.evals.reproduce_rmm_rows import render_rows, reproduce_rows
from napmem_rl.evals.rerank_proof import ARMS, ProofSettings, Recalls, run_proof, settings_as_json, summarise
from napmem_rl.evals.rerank_users import RerankCase, build_cases
from napmem_rl.retrieval.encoder import load_encoder

BEGIN, END = "<!-- rmm: begin -->", "<!-- rmm: end -->"
FILES = {"LoCoMo": "locomo/locomo8.json", "LongMemEval s_dev60": "longmemeval/s_dev60.jsonl.gz"}
WORDS = {
    "learned": "learned, users never seen",
    "fixed_verdicts": "learned from verdicts that never change, users never seen",
    "random_citations": "citations by chance, users never seen",
    "seen": "learned, the questions it learned from",
    "own_first_half": "one for each user: the half it learned from",
    "own_second_half": "one for each user: the other half",
}


def reproduce_rmm(root: Path, seeds: Sequence[int], *, report: Callable[[str], None]) -> dict[str, Any]:
    """Run what is not finished, and write runs/reproduce-rmm/table.json and the table of the page.

    Args:
        root: of the project.
        seeds: each is one run over all sets that are there.
        report: told how it goes.

    Returns:
        The table: settings, and for each set what `summarise` gives, with `seconds` by seed.

    Raises:
        ConfigError: NAPMEM_DATA does not name a directory with LoCoMo or LongMemEval.
        DataError: the page lacks its two markers. Nothing is written to it then.
    """
    data = Path(os.environ.get("NAPMEM_DATA") or "")
    paths = {name: data / path for name, path in FILES.items() if os.environ.get("NAPMEM_DATA") and (data / path).is_file()}
    if not paths:
        raise ConfigError.of("NAPMEM_DATA", "names no directory with data", got=str(data), expected=" or ".join(FILES.values()))
    settings, out = ProofSettings(), root / "runs" / "reproduce-rmm"
    table: dict[str, Any] = {"citer": "simulated", "settings": settings_as_json(settings), "seeds": list(seeds), "sets": {}}
    table["absent"] = {name: f"{FILES[name]} is not there" for name in FILES if name not in paths}
    for name, path in paths.items():
        cases = _load_cases(name, path, out, settings, report)
        runs, seconds = zip(*(_run_seed(cases, settings, seed, out / f"{path.parent.name}-seed{seed}.json", report) for seed in seeds), strict=True)
        table["sets"][name] = summarise(cases, runs) | {"seconds": list(seconds)}
    _write(table, out / "table.json", root / "docs" / "reproduce.md")
    return table


def print_rmm(root: Path, seeds: Sequence[int], *, as_json: bool) -> int:
    """`reproduce_rmm`, its table on stdout and its progress on stderr. Returns 0."""
    table = reproduce_rmm(root, seeds, report=lambda line: print(line, file=sys.stderr, flush=True))
    print(json.dumps(table, indent=2) if as_json else render_table(table))
    return 0


def print_rows(root: Path, *, as_json: bool) -> int:
    """`reproduce_rows`, its table on stdout and its progress on stderr. Returns 0; raises ConfigError where NAPMEM_DATA names no directory."""
    if not os.environ.get("NAPMEM_DATA") or not Path(os.environ["NAPMEM_DATA"]).is_dir():
        raise ConfigError.of("NAPMEM_DATA", "names no directory with data", got=os.environ.get("NAPMEM_DATA"), expected="one with locomo/ and longmemeval/")
    table = reproduce_rows(root, Path(os.environ["NAPMEM_DATA"]), report=lambda line: print(line, file=sys.stderr, flush=True))
    print(json.dumps(table, indent=2) if as_json else "\n".join(render_rows(table)))
    return 0


def render_table(table: dict[str, Any]) -> str:
    """The table as Markdown."""
    lines = []
    for name, row in table["sets"].items():
        measured = f"{row['questions']} questions of {row['users']} users in {row['groups']} groups; seconds by seed: {', '.join(map(str, row['seconds']))}."
        lines += [f"**{name}**: {measured} Recall@5 of the retriever {row['retriever']:.3f}, of the best order of its 20 {row['oracle']:.3f}.", ""]
        lines += ["| simulated citations | questions | retriever | recall@5 | share of the gap closed [95%] | by seed |", "|---|---|---|---|---|---|"]
        for arm in ARMS:
            if arm in row["arms"]:
                one = row["arms"][arm]
                share = f"{one['closed']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}]"
                by_seed = ", ".join(f"{value:+.3f}" for value in one["closed_by_seed"])
                lines.append(f"| {WORDS[arm]} | {one['questions']} | {one['retriever']:.3f} | {one['recall']:.3f} | {share} | {by_seed} |")
        lines += ["", *_course_lines(row["courses"]), ""]
    return "\n".join(lines + [f"Not measured: {name} ({why})." for name, why in table["absent"].items()]).strip()


def _course_lines(courses: dict[str, list[float]]) -> list[str]:
    """How useful what is drawn becomes while it is learned."""
    lines = ["Share of the memories drawn while learning that hold evidence, from the first sixth of the passes to the last:", ""]
    points = max((len(course) for course in courses.values()), default=0)
    lines += ["| simulated citations |" + "".join(f" {number} |" for number in range(1, points + 1)), "|---" * (points + 1) + "|"]
    return lines + [f"| {WORDS[name].split(',')[0]} | " + " | ".join(f"{value:.3f}" for value in course) + " |" for name, course in courses.items()]


def _load_cases(name: str, path: Path, out: Path, settings: ProofSettings, report: Callable[[str], None]) -> list[RerankCase]:
    encoder = load_encoder("minilm")
    source, by_exchange = (load_locomo(path), False) if name == "LoCoMo" else (load_longmemeval(path), True)
    options = {"num_candidates": settings.learner.num_candidates, "store": out / "vectors", "report": lambda line: report(f"{name}: {line}")}
    return build_cases(source, encoder, by_exchange=by_exchange, **options)


def _run_seed(cases: list[RerankCase], settings: ProofSettings, seed: int, path: Path, report: Callable[[str], None]) -> tuple[Recalls, float]:
    """One seed, or what an earlier run with the same settings left of it."""
    wanted = {"settings": settings_as_json(settings), "questions": len(cases)}
    if path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))
        if {name: kept.get(name) for name in wanted} == wanted:
            report(f"seed {seed}: {path} is used as it is")
            return _parse(kept["recalls"], kept["courses"]), kept["seconds"]
    started = time.perf_counter()
    recalls = run_proof(cases, settings, seed=seed, report=report)
    seconds = round(time.perf_counter() - started, 1)
    values = {"retriever": recalls.retriever, "oracle": recalls.oracle, **recalls.arms}
    kept = {"recalls": {name: _as_list(array) for name, array in values.items()}, "courses": recalls.courses}
    write_file(path, json.dumps({**wanted, "seconds": seconds, **kept}))
    return recalls, seconds


def _as_list(values: np.ndarray) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


def _parse(values: dict[str, list[float | None]], courses: dict[str, list[float]]) -> Recalls:
    arrays = {name: np.array([np.nan if value is None else value for value in row]) for name, row in values.items()}
    return Recalls(retriever=arrays.pop("retriever"), oracle=arrays.pop("oracle"), arms=arrays, courses=courses)


def _write(table: dict[str, Any], json_path: Path, docs_path: Path) -> None:
    write_file(json_path, json.dumps(table, indent=2) + "\n")
    page = docs_path.read_text(encoding="utf-8")
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise DataError.of(f"page {docs_path}", "lacks the place for the table", expected=f"one {BEGIN} and, after it, one {END}")
    head, rest = page.split(BEGIN)
    write_file(docs_path, f"{head}{BEGIN}\n{render_table(table)}\n{END}{rest.split(END)[1]}")
