"""Scores of a whole evaluation directory: answers and keys in, scores.jsonl and the summary out. No policy is needed, so another judge can be asked later."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from napmem_rl.atomic import open_replacement
from napmem_rl.config.evaluation_recipe import EvaluationRecipe
from napmem_rl.config.evaluation_sections import NAVIGATING
from napmem_rl.data.control_files import FunctionKey
from napmem_rl.errors import DataError
from napmem_rl.evals.answer_log import load_answers
from napmem_rl.evals.evaluation import NotAsked
from napmem_rl.evals.memory_storage import summarise_storage
from napmem_rl.evals.navigation import score_function_calls, summarise_navigation
from napmem_rl.evals.prepared import Benchmark
from napmem_rl.evals.result_rows import ANSWERS, SCORES, AnswerRow, ScoreRow
from napmem_rl.evals.scoring import check_audit, load_audit, score_answers, score_corpus
from napmem_rl.evals.summary import BenchmarkResult, build_summary
from napmem_rl.evals.text_metrics.registry import LoadedMetrics, MetricName, check_name, load_metrics
from napmem_rl.evals.trajectory_rows import read_trajectory
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.storage import find_bank_dir
from napmem_rl.rewards.judge import Judge, LLMJudge, build_judge
from napmem_rl.rewards.judge_calibration import describe_calibration, find_calibration, find_calibration_dir
from napmem_rl.schema import AnswerKind

FUNCTION_CALL = "function_call"
_FIELDS = [field.name for field in dataclasses.fields(ScoreRow)]


async def score_evaluation(
    recipe: EvaluationRecipe,
    benchmarks: Sequence[Benchmark],
    out: Path,
    *,
    policy: Mapping[str, Any],
    not_asked: Sequence[NotAsked] = (),
    notes: Sequence[str] = (),
    report: Callable[[str], None] = print,
) -> tuple[dict[str, Any], list[BenchmarkResult]]:
    """Score every answer of a directory and write scores.jsonl of each benchmark.

    Args:
        recipe: metrics, judge and audit.
        benchmarks: what was asked.
        out: the evaluation's directory.
        policy: {name, facts}, for the summary.
        not_asked: attempts that could not be made.
        notes: what a reader must know.
        report: takes progress.

    Returns:
        The content of summary.json, and what it was made of.

    Raises:
        ConfigError: an unknown metric, or a judge that cannot be used.
        DataError: answers or an audit that do not belong to the questions.
    """
    metrics = await asyncio.to_thread(load_metrics, recipe.evaluation.metrics, recipe.evaluation.metric_models)
    audit = load_audit(Path(recipe.evaluation.audit)) if recipe.evaluation.audit else {}
    check_audit(audit, [task.task_id for benchmark in benchmarks for task, _ in benchmark.items])
    judge = build_judge(recipe.judge)
    try:
        results = [await _score_benchmark(recipe, benchmark, out, metrics, judge, audit, not_asked, report) for benchmark in benchmarks]
    finally:
        if isinstance(judge, LLMJudge):
            await judge.close()
    calibration = find_calibration(judge.name, find_calibration_dir(recipe.judge))
    judged = {
        "name": judge.name,
        "calibration": dataclasses.asdict(calibration) if calibration is not None else None,
        "calibration_line": describe_calibration(calibration, judge.name),
    }
    summary = build_summary(results, policy=policy, judge=judged, metrics=metrics.versions, notes=notes, seed=recipe.evaluation.seed)
    return summary, results


def check_scoring(recipe: EvaluationRecipe) -> None:
    """Refuse, before anything is asked, metrics, a judge or an audit that could not be used afterwards. Raises ConfigError or DataError."""
    for name in recipe.evaluation.metrics:
        check_name(name, MetricName, "evaluation.metrics")
    build_judge(recipe.judge)
    if recipe.evaluation.audit:
        load_audit(Path(recipe.evaluation.audit))


async def check_judge_endpoint(recipe: EvaluationRecipe) -> None:
    """Ask a judging model for one short reply. Raises ConfigError where endpoint, key or model cannot be used: better now than after all answers."""
    judge = build_judge(recipe.judge)
    if isinstance(judge, LLMJudge):
        try:
            await judge.check_connection()
        finally:
            await judge.close()


def load_scores(path: Path) -> list[ScoreRow]:
    """The rows of a scores.jsonl. Raises DataError where there is none, or a line is broken."""
    if not path.is_file():
        raise DataError.of(f"scores {path}", "no such file", fix="Run launch/evaluate.py to its end: scores are written last.")
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            content = json.loads(line)
            lists = {name: tuple(content[name]) for name in ("references", "evidence_ids")}
            rows.append(ScoreRow(**{**content, **lists}))
        except (ValueError, KeyError, TypeError) as error:
            raise DataError.of(f"scores {path}, line {number}", f"is no score ({error})", fix="Run launch/evaluate.py again.") from error
    return rows


def save_scores(path: Path, rows: Sequence[ScoreRow]) -> None:
    """Write all rows, or leave the old file as it was."""
    with open_replacement(path) as file:
        for row in rows:
            content = {name: getattr(row, name) for name in _FIELDS}
            file.write(json.dumps(content, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace") + b"\n")


async def _score_benchmark(
    recipe: EvaluationRecipe,
    benchmark: Benchmark,
    out: Path,
    metrics: LoadedMetrics,
    judge: Judge,
    audit: Mapping[str, bool],
    not_asked: Sequence[NotAsked],
    report: Callable[[str], None],
) -> BenchmarkResult:
    wanted = {(task.task_id, sample) for task, _ in benchmark.items for sample in range(recipe.evaluation.samples)}
    answers = [row for identity, row in load_answers(out / benchmark.name / ANSWERS).items() if identity in wanted]
    total = len(answers)

    def tell(done: int) -> None:
        if done % 500 == 0:
            report(f"{benchmark.name}: {done:,} of {total:,} answers scored")

    keys, sessions = benchmark.keys, build_session_finder(benchmark) if metrics.has_recall else None
    calls = {one.task.task_id: key for one, key in benchmark.function_tasks}
    plain = [row for row in answers if row.task_id not in calls]
    scores = await score_answers(
        plain, keys, metrics=metrics, judge=judge, audit=audit, find_sessions=sessions, max_concurrency=recipe.judge.max_concurrency, on_done=tell
    )
    scores += [score_calls(row, calls[row.task_id]) for row in answers if row.task_id in calls]
    corpus = await asyncio.to_thread(score_corpus, plain, keys, metrics=metrics)
    save_scores(out / benchmark.name / SCORES, scores)
    mine = [one for one in not_asked if one.benchmark == benchmark.name]
    figures = {name: dataclasses.asdict(score) for name, score in corpus.items()}
    episodes = [(read_trajectory(row.trajectory), keys[row.task_id]) for row in answers] if recipe.policy.access in NAVIGATING else []
    return BenchmarkResult(
        benchmark=benchmark,
        samples=recipe.evaluation.samples,
        answers=answers,
        scores=scores,
        not_asked=mine,
        navigation=summarise_navigation(episodes) if episodes else {},
        corpus=figures,
        storage=summarise_storage([find_bank_dir(benchmark.banks_dir, bank_id) for bank_id in sorted({task.bank_id for task, _ in benchmark.items})]),
    )


def score_calls(row: AnswerRow, key: FunctionKey) -> ScoreRow:
    """The score of a control task that asks for function calls: 1 where it made the accepted ones."""
    trajectory = read_trajectory(row.trajectory, what=f"answer {row.task_id}, sample {row.sample}")
    found = score_function_calls(trajectory, key)
    return ScoreRow(
        task_id=row.task_id,
        sample=row.sample,
        group_id=row.group_id,
        category=trajectory.task.category,
        kind=str(AnswerKind.ANSWER),
        final_answer=trajectory.final_answer,
        references=tuple(call.name for call in key.calls),
        evidence_ids=(),
        scores={FUNCTION_CALL: float(found.is_correct)} if found is not None else {},
        absent={} if found is not None else {FUNCTION_CALL: f"the attempt failed by the system's doing: {trajectory.status}"},
        verdict_reason=found.problem if found is not None else "",
    )


def build_session_finder(benchmark: Benchmark) -> Callable[[str], Mapping[str, str]] | None:
    """Message id -> session id of a bank, by bank id; None where the banks are not at hand any more."""
    if not benchmark.banks_dir.is_dir():
        return None

    @functools.cache
    def find_sessions(bank_id: str) -> Mapping[str, str]:
        version = benchmark.versions.get(bank_id)
        bank = MemoryBank.open(find_bank_dir(benchmark.banks_dir, bank_id), version=version, verify=False)
        return {message.message_id: message.session_id for message in bank.messages}

    return find_sessions
