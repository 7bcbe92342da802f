"""What an evaluation came to: one JSON object of plain figures, each with the number of answers that it rests on."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from napmem_rl.evals.aggregate_scores import summarise_scores
from napmem_rl.evals.answer_log import is_error
from napmem_rl.evals.evaluation import NotAsked
from napmem_rl.evals.packet_summary import summarise_packets
from napmem_rl.evals.prepared import Benchmark
from napmem_rl.evals.result_rows import AnswerRow, ScoreRow
from napmem_rl.rewards.judge import LexicalJudge
from napmem_rl.schema import Level

FORMAT = 1
MAIN_METRICS = ("judge", "function_call", "multiple_choice", "locomo_f1", "token_f1", "exact_match")  # the first that was taken stands in plots
COSTS = ("prompt_tokens", "completion_tokens", "latency_s", "retrieval_s")
NO_CALL = "no call"  # first action of an episode that reads nothing
_MAX_LISTED = 50
_DIGITS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchmarkResult:
    """All that one benchmark left: answers that count, their scores, what was not asked, and what is measured of navigation, where tools were offered."""

    benchmark: Benchmark
    samples: int
    answers: Sequence[AnswerRow]
    scores: Sequence[ScoreRow]
    not_asked: Sequence[NotAsked]
    navigation: Mapping[str, Any] = field(default_factory=dict)
    corpus: Mapping[str, Any] = field(default_factory=dict)  # metrics that are one value for all answers
    storage: Mapping[str, Any] = field(default_factory=dict)  # of the banks that were asked about, on disk


def build_summary(
    results: Sequence[BenchmarkResult],
    *,
    policy: Mapping[str, Any],
    judge: Mapping[str, Any],
    metrics: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    seed: int = 0,
) -> dict[str, Any]:
    """The content of summary.json.

    Args:
        results: one a benchmark.
        policy: {name, facts}.
        judge: {name, calibration, calibration_line}: who judged, and how it fares on the calibration set.
        metrics: what decides each metric's values, such as the version of its library.
        notes: what a reader must know before believing the figures.
        seed: of the intervals' bootstrap.
    """
    benchmarks = {result.benchmark.name: _summarise(result, seed) for result in results}
    return {
        "format": FORMAT,
        "policy": dict(policy),
        "judge": dict(judge),
        "metrics": dict(metrics or {}),
        "is_complete": all(part["num_missing"] == 0 for part in benchmarks.values()),
        "notes": list(notes),
        "benchmarks": benchmarks,
    }


def render_summary(summary: Mapping[str, Any]) -> str:
    """As the text of summary.json; numbers have six digits after the point."""
    return json.dumps(_round(summary), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def find_main_metric(names: Iterable[str], *, is_strict: bool = False) -> str | None:
    """The metric that stands for the others in plots; None where nothing was scored.

    `is_strict`: the judge is the lexical one, which rejects most answers of models that speak in sentences; then a measure of words comes before it.
    """
    known = set(names)
    order = [*(name for name in MAIN_METRICS if name != "judge"), "judge"] if is_strict else MAIN_METRICS
    return next((name for name in order if name in known), min(known, default=None))


def sort_metrics(names: Iterable[str]) -> list[str]:
    """Names of metrics with those of answers first, as in MAIN_METRICS, then the others by alphabet, numbers by size."""
    places = {name: place for place, name in enumerate(MAIN_METRICS)}
    return sorted(set(names), key=lambda name: (places.get(name, len(places)), [(int(part), "") if part.isdigit() else (0, part) for part in name.split("@")]))


def _summarise(result: BenchmarkResult, seed: int) -> dict[str, Any]:
    benchmark = result.benchmark
    failed = [row for row in result.answers if is_error(row)]
    whole = [row for row in result.answers if not is_error(row)]
    scores = summarise_scores(result.scores, seed=seed).as_json()
    wanted = len(benchmark.items) * result.samples
    categories = {task.task_id: task.category for task, _ in benchmark.items}
    return {
        "source": benchmark.source,
        "split": benchmark.split,
        "num_questions": len(benchmark.items),
        "num_available": benchmark.num_available,
        "samples": result.samples,
        "num_wanted": wanted,
        "num_answers": len(whole),
        "num_missing": wanted - len(whole),
        "errors": _count_errors(failed),
        "not_asked": _count_not_asked(result.not_asked),
        "statuses": dict(sorted(Counter(row.trajectory["status"] for row in result.answers).items())),
        "main_metric": find_main_metric(
            (name for name, metric in scores["overall"].items() if metric["interval"]),
            is_strict={row.judge for row in result.scores} - {""} == {LexicalJudge.name},
        ),
        "scores": scores,
        "corpus": dict(result.corpus),
        "cost": _summarise_cost(whole),
        "storage": dict(result.storage),
        "cost_by_category": {category: _summarise_cost(rows) for category, rows in _group(whole, categories).items()},
        "tool_use": summarise_tool_use(whole),
        "navigation": dict(result.navigation),
        "packets": summarise_packets(result.answers, benchmark.keys),
    }


def _count_errors(rows: Sequence[AnswerRow]) -> list[dict[str, Any]]:
    """Attempts that failed by the system's doing, by how."""
    found = Counter((row.trajectory["status"], _first_line(row.trajectory["detail"])) for row in rows)
    return [{"status": status, "detail": detail, "count": count} for (status, detail), count in found.most_common(_MAX_LISTED)]


def _count_not_asked(not_asked: Sequence[NotAsked]) -> dict[str, Any]:
    reasons = Counter(_first_line(one.reason) for one in not_asked)
    listed = [{"task_id": one.task_id, "sample": one.sample, "reason": _first_line(one.reason)} for one in not_asked[:_MAX_LISTED]]
    return {"count": len(not_asked), "by_reason": dict(reasons.most_common(_MAX_LISTED)), "tasks": listed}


def _summarise_cost(rows: Sequence[AnswerRow]) -> dict[str, Any]:
    """Tokens and seconds of an attempt; what the engine did not tell is absent."""
    found = {name: [value for row in rows if (value := getattr(row, name)) is not None] for name in COSTS}
    found["context_messages"] = [len(row.context_ids) for row in rows]
    return {name: _spread(values) for name, values in found.items() if values}


def _spread(values: Sequence[float]) -> dict[str, float]:
    column = np.asarray(values, dtype=np.float64)
    p50, p95 = np.percentile(column, (50, 95))
    return {"n": len(column), "mean": float(column.mean()), "p50": float(p50), "p95": float(p95), "total": float(column.sum())}


def summarise_tool_use(rows: Sequence[AnswerRow]) -> dict[str, Any]:
    """Calls a question by level, and which level is read first; empty where no attempt could call tools."""
    episodes = [[call for turn in row.trajectory["turns"] for call in turn["calls"]] for row in rows]
    if not any(episodes):
        return {}
    levels = [str(level) for level in Level]
    first = Counter(calls[0]["level"] if calls else NO_CALL for calls in episodes)
    return {
        "n": len(episodes),
        "calls_per_question": sum(map(len, episodes)) / len(episodes),
        "calls_by_level": {level: sum(call["level"] == level for calls in episodes for call in calls) / len(episodes) for level in levels},
        "first_action": {name: first[name] / len(episodes) for name in (*levels, NO_CALL)},
        "failed_calls": sum(not call["is_success"] for calls in episodes for call in calls),
        "by_tool": dict(sorted(Counter(call["name"] for calls in episodes for call in calls).items())),
    }


def _group(rows: Sequence[AnswerRow], categories: Mapping[str, str]) -> dict[str, list[AnswerRow]]:
    groups: dict[str, list[AnswerRow]] = defaultdict(list)
    for row in rows:
        groups[categories.get(row.task_id, row.trajectory["category"])].append(row)
    return dict(sorted(groups.items()))


def _first_line(text: str) -> str:
    return " ".join(text.split())[:300]


def _round(value: Any) -> Any:
    """Floats to six digits; a float that is not finite has no place in JSON and becomes null."""
    if isinstance(value, Mapping):
        return {str(name): _round(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_round(item) for item in value]
    if isinstance(value, float):
        return round(value, _DIGITS) if math.isfinite(value) else None
    return value
