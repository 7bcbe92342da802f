"""What baselines reach on LoCoMo and LongMemEval here: the commands to run, and the table out of what they leave.

Low and honest: the reader picks sentences, and SmolLM2 has 135 million parameters. What the table is for is the order of the rows: gold evidence above search,
search above no memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from napmem_rl.atomic import write_file
from napmem_rl.errors import BackendError
from napmem_rl.evals.answer_log import load_answers
from napmem_rl.evals.comparison import ALL, compare_evaluations
from napmem_rl.evals.metrics import bootstrap_interval
from napmem_rl.evals.reproduce import replace_between
from napmem_rl.evals.result_rows import ANSWERS, SCORES, SUMMARY
from napmem_rl.evals.scored_evaluation import load_scores
from napmem_rl.evals.summary_text import show_interval
from napmem_rl.schema import AnswerKind

BEGIN, END = "<!-- evaluation: begin -->", "<!-- evaluation: end -->"
DEPTHS = (1, 5, 10, 20)
CHECKED = (("no_memory", "passive_rrf"), ("passive_rrf", "oracle"))  # the second must be better
_ROOT = Path(__file__).resolve().parents[2]
Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A benchmark that is prepared and asked. `metric` is the one that rows are ordered by."""

    name: str
    files: tuple[str, ...]  # below the data directory: input, then a split file
    split: str
    metric: str
    with_vectors: int | None  # questions drawn for policies that need vectors of all messages; None for all


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """One row: a recipe of recipes/eval with what it takes beside. `reader` is extractive or the name of a model."""

    name: str
    recipe: str
    reader: str = "extractive"
    overrides: tuple[str, ...] = ("policy.engine=extractive",)
    needs_vectors: bool = False
    sources: tuple[str, ...] = ("locomo", "longmemeval")
    limit: int | None = None


SOURCES = (
    Source(name="locomo", files=("locomo/locomo8.json", "locomo/split.json"), split="dev", metric="locomo_f1", with_vectors=None),
    Source(name="longmemeval", files=("longmemeval/s_dev60.jsonl.gz",), split="test", metric="token_f1", with_vectors=20),
)
EXTRACTIVE = (
    Policy(name="no_memory", recipe="no_memory"),
    Policy(name="full_context", recipe="full_context"),
    Policy(name="passive_bm25", recipe="passive_bm25"),
    Policy(name="passive_dense", recipe="passive_dense", needs_vectors=True),
    Policy(name="passive_rrf", recipe="passive_rrf", needs_vectors=True),
    Policy(name="passive_fused", recipe="passive_rrf", overrides=("policy.engine=extractive", "memory.ranking=fused"), needs_vectors=True),
    Policy(name="oracle", recipe="oracle"),
)


def model_policies(model: Path, *, limit: int) -> tuple[Policy, ...]:
    """The three rows that are checked, read by a model through vLLM, on a drawn sample of LoCoMo."""
    settings = ("policy.engine=vllm", f"policy.model={model}", "policy.max_context_tokens=768", "policy.max_answer_tokens=24", "evaluation.max_concurrency=16")
    reader = "SmolLM2-135M, vLLM"

    def build(name: str, *more: str) -> Policy:
        return Policy(
            name=name, recipe=name, reader=reader, overrides=(*settings, *more), needs_vectors=name == "passive_rrf", sources=("locomo",), limit=limit
        )

    return build("no_memory"), build("passive_rrf", "policy.top_k=5"), build("oracle")  # a model of this size loses itself in twenty messages


def run_baselines(data: Path, out: Path, policies: Sequence[Policy], *, report: Report = print) -> dict[str, float]:
    """Prepare both benchmarks and evaluate every policy, each by the command that a user would type. What is finished is not done again.

    Returns:
        seconds by step; steps that were done before are left out.

    Raises:
        BackendError: a command failed; its output has been printed.
    """
    seconds: dict[str, float] = {}
    for source in SOURCES:
        prepared = out / "data" / source.name
        if not (prepared / "data.json").is_file():
            files = [str(data / name) for name in source.files]
            split = ["--split", files[1]] if len(files) > 1 else []
            command = ["launch/prepare_data.py", source.name, "--input", files[0], *split, "--encoder", "none", "--out", str(prepared)]
            seconds[f"prepare {source.name}"] = _run(command, report)
        for policy in policies:
            directory = find_run(out, source, policy)
            if source.name in policy.sources and not is_complete(directory):
                seconds[f"{source.name} {policy.name}, {policy.reader}"] = _run(build_command(source, policy, prepared, directory), report)
    return seconds


def find_run(out: Path, source: Source, policy: Policy) -> Path:
    """Where a policy's evaluation lies."""
    reader = "extractive" if policy.reader == "extractive" else "model"
    return out / "runs" / f"{source.name}-{policy.name}-{reader}"


def build_command(source: Source, policy: Policy, prepared: Path, directory: Path) -> list[str]:
    """The arguments of one evaluation."""
    limit = policy.limit or (source.with_vectors if policy.needs_vectors else None)
    drawn = [f"evaluation.limit={limit}"] if limit else []
    threads = ["memory.encoder_threads=2"] if policy.needs_vectors else []
    place = ["--on", f"{prepared}:{source.split}", "--out", str(directory)]
    return ["launch/evaluate.py", policy.recipe, *place, *policy.overrides, *drawn, *threads]


def is_complete(directory: Path) -> bool:
    """Whether an evaluation ended with an answer to every question."""
    return (directory / SUMMARY).is_file() and bool(json.loads((directory / SUMMARY).read_text(encoding="utf-8"))["is_complete"])


def build_table(out: Path, policies: Sequence[Policy], seconds: Mapping[str, float], absent: Sequence[str] = ()) -> dict[str, Any]:
    """Rows, ceilings and checks out of finished evaluations; `absent` says what could not be run and why."""
    rows = [_row(source, policy, find_run(out, source, policy)) for source in SOURCES for policy in policies if source.name in policy.sources]
    checks = [check for source in SOURCES for reader in dict.fromkeys(policy.reader for policy in policies) for check in _checks(out, source, policies, reader)]
    return {"rows": rows, "checks": checks, "absent": list(absent), "seconds": {name: round(value, 1) for name, value in seconds.items()}}


def holds(table: Mapping[str, Any]) -> bool:
    """Whether gold evidence is above search and search above no memory, everywhere."""
    return bool(table["checks"]) and all(check["difference"]["mean"] > 0 for check in table["checks"])


def write_table(table: Mapping[str, Any], *, json_path: Path, docs_path: Path) -> str:
    """Write both forms; returns the Markdown. Raises DataError where the page lacks the two markers; nothing is written then."""
    text = "\n".join(_lines(table))
    page = replace_between(docs_path, BEGIN, END, text)
    write_file(json_path, json.dumps(table, indent=1) + "\n")
    write_file(docs_path, page)
    return text


def _run(command: Sequence[str], report: Report) -> float:
    report(f"$ python {' '.join(command)}")
    started = time.monotonic()
    status = subprocess.run([sys.executable, str(_ROOT / command[0]), *command[1:]], stdout=subprocess.DEVNULL, check=False).returncode
    if status != 0:
        raise BackendError.of(f"python {' '.join(command)}", f"ended with exit code {status}", fix="Run it by itself to see what it says.")
    return time.monotonic() - started


def _row(source: Source, policy: Policy, directory: Path) -> dict[str, Any]:
    summary = json.loads((directory / SUMMARY).read_text(encoding="utf-8"))
    ((name, part),) = summary["benchmarks"].items()
    overall = part["scores"]["overall"]
    cost = part["cost"]
    return {
        "benchmark": source.name,
        "policy": policy.name,
        "reader": policy.reader,
        "name": summary["policy"]["name"],
        "metric": source.metric,
        "score": overall[source.metric]["interval"],
        "judge": overall["judge"]["interval"] if "judge" in overall else None,
        "judge_line": summary["judge"]["calibration_line"],
        "unanswerable": part["scores"]["unanswerable"].get("judge", {}).get("interval"),
        "ceilings": compute_ceilings(directory / name),
        "tokens": (cost["prompt_tokens"]["mean"] + cost["completion_tokens"]["mean"]) if "prompt_tokens" in cost and "completion_tokens" in cost else None,
        "seconds": cost["latency_s"]["p50"],
    }


def compute_ceilings(directory: Path) -> dict[str, dict[str, Any]]:
    """Share of questions whose gold evidence is wholly, and at least partly, among the first k messages of the context, and in all of it.

    No reader can use what is not there. Questions without known evidence are left out.

    Args:
        directory: of one benchmark within an evaluation.

    Returns:
        "1", "5", … (of ranked contexts alone) and "all" -> {"wholly", "partly"} -> interval.
    """
    answers, found = load_answers(directory / ANSWERS), {}
    for depth in (*DEPTHS, None):
        wholly: dict[str, list[float]] = {}
        partly: dict[str, list[float]] = {}
        for score in load_scores(directory / SCORES):
            row, gold = answers[(score.task_id, score.sample)], set(score.evidence_ids)
            if not gold or score.kind == AnswerKind.UNANSWERABLE or (depth is not None and not row.context_ranked):
                continue
            seen = gold.intersection(row.context_ids[:depth])
            wholly.setdefault(score.group_id, []).append(float(seen == gold))
            partly.setdefault(score.group_id, []).append(float(bool(seen)))
        if wholly:
            found[str(depth or "all")] = {name: _plain(bootstrap_interval(values)) for name, values in (("wholly", wholly), ("partly", partly))}
    return found


def _plain(interval: Any) -> dict[str, Any]:
    return {name: getattr(interval, name) for name in ("mean", "low", "high", "num_users", "num_values")}


def _checks(out: Path, source: Source, policies: Sequence[Policy], reader: str) -> Iterator[dict[str, Any]]:
    named = {policy.name: policy for policy in policies if policy.reader == reader and source.name in policy.sources}
    for lower, higher in CHECKED:
        if lower not in named or higher not in named:
            continue
        places = [find_run(out, source, named[name]) for name in (lower, higher)]
        found = compare_evaluations(*places, metrics=[source.metric])
        row = next(row.comparison for row in found.rows if row.questions == ALL)
        yield {
            "benchmark": source.name,
            "reader": reader,
            "better": higher,
            "than": lower,
            "metric": source.metric,
            "difference": _plain(row.difference),
            "p_value": row.p_value,
            "num_tasks": row.num_tasks,
        }


def _lines(table: Mapping[str, Any]) -> Iterator[str]:
    for benchmark in dict.fromkeys(row["benchmark"] for row in table["rows"]):
        rows = [row for row in table["rows"] if row["benchmark"] == benchmark]
        yield from (f"**{benchmark}** ({rows[0]['metric']}; n questions of so many groups)", "")
        yield from ("| policy | reader | score [95%] | lexical judge | n | groups | tokens |", "|---|---|---|---|---|---|---|")
        for row in rows:
            tokens = "–" if row["tokens"] is None else f"{row['tokens']:.0f}"
            counts = f"{row['score']['num_values']} | {row['score']['num_users']} | {tokens}"
            yield f"| {row['policy']} | {row['reader']} | {show_interval(row['score'])} | {show_interval(row['judge'])} | {counts} |"
        yield from ("", *_ceiling_lines(rows), "")
    yield from ("| is better than | benchmark, reader | difference [95%] | p | pairs |", "|---|---|---|---|---|")
    for check in table["checks"]:
        one = check["difference"]
        ends = "" if one["low"] is None else f" [{one['low']:+.3f}, {one['high']:+.3f}]"
        where = f"{check['benchmark']}, {check['reader']} | {one['mean']:+.3f}{ends} | {check['p_value']:.2g} | {check['num_tasks']}"
        yield f"| {check['better']} > {check['than']} | {where} |"
    yield from ("", f"{table['rows'][0]['judge_line']}.")
    yield from (f"Not run: {reason}" for reason in table["absent"])
    if table["seconds"]:
        steps = ", ".join(f"{name} {value:.0f} s" for name, value in table["seconds"].items())
        yield from ("", f"Took {sum(table['seconds'].values()) / 60:.1f} min: {steps}.")


def _ceiling_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Evidence in context, of the rows that one reader read."""
    depths = [*map(str, DEPTHS), "all"]
    yield from ("Gold evidence in the context, wholly / partly, of the first k messages:", "")
    yield f"| policy | {' | '.join(f'k = {depth}' if depth != 'all' else 'all that is read' for depth in depths)} | n |"
    yield f"|---|{'---|' * len(depths)}---|"
    for row in rows:
        if row["reader"] == "extractive" and row["ceilings"]:
            cells = [_ceiling(row["ceilings"].get(depth)) for depth in depths]
            yield f"| {row['policy']} | {' | '.join(cells)} | {row['ceilings']['all']['wholly']['num_values']} |"


def _ceiling(found: Mapping[str, Any] | None) -> str:
    return "–" if found is None else f"{found['wholly']['mean']:.2f} / {found['partly']['mean']:.2f}"
