"""The rows of RMM's second table, as far as they run without a language model: what each way to remember finds, and what a reader that picks words makes of it.

Readers and verdicts are weak here, and said to be: what the table is for is how much of the evidence five memories hold, by turns and by sessions.

    no memory · long context · RAG (one memory an exchange) · prospective reflection alone · with a reranker that learned nothing · RMM · gold evidence

Memories are written by rules; the reranker learns from simulated citations of users that are not asked here, once through, question by question.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from napmem_rl.atomic import write_file
from napmem_rl.errors import BackendError
from napmem_rl.evals.reproduce import replace_between
from napmem_rl.evals.reproduce_evaluation import Report, is_complete
from napmem_rl.evals.result_rows import SUMMARY
from napmem_rl.evals.summary_text import show_interval
from napmem_rl.retrieval.encoder import load_encoder
from napmem_rl.retrieval.rerank_learner import RerankLearner, RerankSettings
from napmem_rl.retrieval.rerank_state import RerankStamp, save_reranker

BEGIN, END = "<!-- rmm rows: begin -->", "<!-- rmm rows: end -->"
LEARNING = {"tau": 0.05, "baseline": -0.7, "learning_rate": 0.01, "init_std": 0.001}  # of the proof, but for its batches and passes
METRICS = ("evidence_recall", "session_recall", "token_f1", "judge")
NAMES = {
    "no_memory": "no memory",
    "full_context": "long context",
    "rag": "RAG, five exchanges",
    "prospective": "prospective reflection alone",
    "untrained": "RMM, reranker has learned nothing",
    "rmm": "RMM",
    "oracle": "gold evidence",
}
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """A benchmark: users who teach, and users who are asked; both are splits of one prepared directory, or two directories."""

    name: str
    source: str  # of launch/prepare_data.py
    teaching: tuple[str, str]  # (prepared directory, split)
    asked: tuple[str, str]


SETTINGS = (
    Setting(name="LoCoMo, two held-out conversations", source="locomo", teaching=("locomo", "train"), asked=("locomo", "dev")),
    Setting(name="LongMemEval oracle, 60 instances", source="longmemeval", teaching=("oracle-others", "test"), asked=("oracle-60", "test")),
    Setting(name="LongMemEval s_dev60", source="longmemeval", teaching=("oracle-others", "test"), asked=("s-60", "test")),
)


def reproduce_rows(root: Path, data: Path, *, report: Report) -> dict[str, Any]:
    """Prepare, live through, learn, evaluate; what is finished is not done again. Writes runs/reproduce-rmm/rows.json and the page's table.

    Args:
        root: of the project.
        data: holds locomo/ and longmemeval/; a setting whose files are missing is absent.
        report: told each command.

    Raises:
        BackendError: a command failed.
        DataError: the page lacks its two markers.
    """
    out = root / "runs" / "reproduce-rmm"
    table: dict[str, Any] = {"citer": "simulated", "learning": LEARNING, "settings": {}, "absent": {}}
    inputs = find_inputs(data, out / "inputs")
    for setting in SETTINGS:
        missing = [name for name, _ in (setting.teaching, setting.asked) if name not in inputs]
        if missing:
            table["absent"][setting.name] = f"no data for {', '.join(missing)}"
            continue
        started = time.monotonic()
        rows = {name: _read_row(run) for name, run in _run_setting(setting, inputs, out, report)}
        table["settings"][setting.name] = {"rows": rows, "seconds": round(time.monotonic() - started, 1)}
    write_file(out / "rows.json", json.dumps(table, indent=1) + "\n")
    write_file(root / "docs" / "reproduce.md", replace_between(root / "docs" / "reproduce.md", BEGIN, END, "\n".join(render_rows(table))))
    return table


def find_inputs(data: Path, parts: Path) -> dict[str, list[str]]:
    """Arguments of launch/prepare_data.py by prepared directory; LongMemEval's oracle file is cut in two, by whether s_dev60 holds the instance."""
    found: dict[str, list[str]] = {}
    locomo, whole, sample = data / "locomo" / "locomo8.json", data / "longmemeval" / "oracle.json.gz", data / "longmemeval" / "s_dev60.jsonl.gz"
    if locomo.is_file():
        found["locomo"] = ["--input", str(locomo), "--split", str(data / "locomo" / "split.json")]
    if whole.is_file() and sample.is_file():
        with gzip.open(sample, "rt", encoding="utf-8") as stream:
            held_out = {json.loads(line)["question_id"] for line in stream}
        instances = json.loads(gzip.decompress(whole.read_bytes()))
        for name, is_asked in (("oracle-60", True), ("oracle-others", False)):
            lines = [json.dumps(one) for one in instances if (one["question_id"] in held_out) == is_asked]
            write_file(parts / f"{name}.jsonl", "\n".join(lines) + "\n")
            found[name] = ["--input", str(parts / f"{name}.jsonl")]
        found["s-60"] = ["--input", str(sample)]
    return found


def render_rows(table: Mapping[str, Any]) -> Iterator[str]:
    """The table as Markdown."""
    for name, setting in table["settings"].items():
        first = setting["rows"]["no_memory"]
        yield from (f"**{name}**: {first['questions']} questions, {setting['seconds']:.0f} s.", "")
        yield "| | evidence in what is read: turns | sessions | token F1, extractive reader | lexical judge |"
        yield "|---|---|---|---|---|"
        for row, values in setting["rows"].items():
            yield f"| {NAMES[row]} | " + " | ".join("–" if values[metric] is None else show_interval(values[metric]) for metric in METRICS) + " |"
        yield ""
    lines = {values["judge_line"] for setting in table["settings"].values() for values in setting["rows"].values()}
    yield from (f"{line}." for line in sorted(lines))
    yield from (f"Not measured: {name} ({why})." for name, why in table["absent"].items())


def _run_setting(setting: Setting, inputs: Mapping[str, list[str]], out: Path, report: Report) -> Iterator[tuple[str, Path]]:
    """Every row's evaluation, made where it is not there yet."""
    for name, _ in (setting.teaching, setting.asked):
        if not (out / "data" / name / "data.json").is_file():
            _run(["launch/prepare_data.py", setting.source, *inputs[name], "--encoder", "none", "--out", str(out / "data" / name)], report)
    learned, topics = out / "rmm" / f"{setting.teaching[0]}-taught", out / "rmm" / f"{setting.asked[0]}-asked"
    _live(setting.teaching, learned, out, report, is_learning=True)
    _live(setting.asked, topics, out, report, is_learning=False)
    untrained = out / "rmm" / "untrained.npz"
    if not untrained.is_file():
        encoder = load_encoder("minilm")
        save_reranker(untrained, RerankLearner(encoder.dim, RerankSettings()), RerankStamp(scope="global", encoder=encoder.name))
    plain, written = f"{out / 'data' / setting.asked[0]}:{setting.asked[1]}", f"{topics}:{setting.asked[1]}"
    rows = {"no_memory": ("no_memory", plain), "full_context": ("full_context", plain), "rag": ("topics", plain), "prospective": ("topics", written)}
    rows |= {"untrained": ("topics", written), "rmm": ("topics", written), "oracle": ("oracle", plain)}
    states = {"untrained": untrained, "rmm": learned / "states" / f"domain-{setting.teaching[0]}.npz"}
    for name, (recipe, place) in rows.items():
        run = out / "rows" / f"{setting.asked[0]}-{name}"
        if not is_complete(run):
            more = [f"memory.rerank={states[name]}"] if name in states else []
            metrics = "evaluation.metrics=[token_f1,recall]"
            _run(["launch/evaluate.py", recipe, "--on", place, "--out", str(run), "policy.engine=extractive", metrics, *more], report)
        yield name, run


def _live(place: tuple[str, str], out: Path, root: Path, report: Report, *, is_learning: bool) -> None:
    """Topic memories by rules and, where it learns, a reranker for the whole set."""
    if (out / "summary.json").is_file():
        return
    settings = [f"rerank.{name}={value}" for name, value in LEARNING.items()]
    where = [f"data.dir={root / 'data' / place[0]}", f"data.split={place[1]}", f"online.out={out}", "online.workers=0"]
    _run(["launch/rmm.py", "recipes/rmm/smoke.yaml", *where, "memory.encoder=minilm", f"online.is_learning={str(is_learning).lower()}", *settings], report)


def _read_row(run: Path) -> dict[str, Any]:
    summary = json.loads((run / SUMMARY).read_text(encoding="utf-8"))
    ((_, part),) = summary["benchmarks"].items()
    overall = part["scores"]["overall"]
    values: dict[str, Any] = {name: overall[name]["interval"] if name in overall else None for name in METRICS}
    return values | {"questions": part["num_questions"], "judge_line": summary["judge"]["calibration_line"]}


def _run(command: list[str], report: Report) -> None:
    report(f"$ python {' '.join(command)}")
    done = subprocess.run([sys.executable, str(_ROOT / command[0]), *command[1:]], stdout=subprocess.DEVNULL, cwd=_ROOT, check=False)
    if done.returncode != 0:
        raise BackendError.of(f"python {' '.join(command)}", f"ended with exit code {done.returncode}", fix="Run it by itself to see what it says.")
