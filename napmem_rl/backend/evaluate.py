"""One evaluation from its recipe to its report: what `launch/evaluate.py` calls."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from napmem_rl.atomic import write_file
from napmem_rl.backend.evaluation_workers import WorkerSpec, build_runner, find_host, start_pool
from napmem_rl.backend.run_files import hold_run_dir
from napmem_rl.config.evaluation_recipe import EvaluationRecipe
from napmem_rl.config.evaluation_sections import SERVED
from napmem_rl.evals.answer_log import AnswerLog, load_answers
from napmem_rl.evals.evaluation import Ask, AttemptRequest, RunOutcome, plan_attempts, run_attempts, select_pending
from napmem_rl.evals.evaluation_guard import check_training_overlap, describe_oracle_gaps
from napmem_rl.evals.evaluation_page import render_evaluation_page
from napmem_rl.evals.evaluation_settings import build_settings, settle
from napmem_rl.evals.policies.registry import describe_policy
from napmem_rl.evals.prepared import Benchmark, load_benchmarks
from napmem_rl.evals.result_rows import ANSWERS, REPORT, SUMMARY, SUMMARY_TEXT
from napmem_rl.evals.scored_evaluation import check_judge_endpoint, check_scoring, score_evaluation
from napmem_rl.evals.summary import render_summary
from napmem_rl.evals.summary_text import render_markdown
from napmem_rl.model_files import fingerprint_weights

DONE, INCOMPLETE, INTERRUPTED = 0, 1, 130
DEFAULT_OUT = Path("runs", "evaluate")
STOP_GRACE_S = 20.0
Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """What is about to be run: the policy as its facts say, on which benchmarks, into which directory."""

    recipe: EvaluationRecipe
    name: str
    facts: Mapping[str, Any]
    benchmarks: Sequence[Benchmark]
    out: Path


def evaluate(recipe: EvaluationRecipe, wanted: Sequence[str], *, out: Path | None = None, report: Report = print) -> int:
    """Ask what is not answered yet, score all answers, write summary and report.

    Args:
        recipe: who answers, and how.
        wanted: benchmarks, see `load_benchmarks`; empty for all that the recipe names.
        out: directory of the results; made of policy and benchmarks unless given.
        report: takes progress, one line at a time.

    Returns:
        The exit status: 0 complete, 1 not (attempts that failed or could not be asked), 130 interrupted. The same command goes on after 1 and 130.

    Raises:
        NapMemError: the recipe, the data, the endpoint or the directory cannot be used.
    """
    evaluation = prepare_evaluation(recipe, wanted, out=out, report=report)
    with hold_run_dir(evaluation.out, other="another --out"):
        benchmarks = list(evaluation.benchmarks)
        notes = [note for note in (check_training_overlap(recipe, benchmarks), describe_oracle_gaps(recipe, benchmarks)) if note]
        model_hash = fingerprint_weights(recipe.policy.model) if recipe.policy.engine in SERVED else None
        settings = build_settings(recipe, evaluation.benchmarks, name=evaluation.name, facts=evaluation.facts, model_hash=model_hash)
        if settle(evaluation.out, settings):
            report(f"{evaluation.out}: going on with the answers that are there")
        try:
            outcome = ask_pending(evaluation, report)
            if outcome.stopped:
                report(f"stopped: {outcome.stopped}. What is answered is kept in {evaluation.out}; go on with: {_this_command()}")
                return INTERRUPTED if outcome.stopped.startswith("signal") else INCOMPLETE
            return write_results(evaluation, outcome, notes, report)
        except (KeyboardInterrupt, SystemExit):  # SIGINT, or SIGTERM as the command hands it on, while an engine starts or answers are scored
            report(f"stopped. What is answered is kept in {evaluation.out}{_describe_verdicts(recipe)}; go on with: {_this_command()}")
            return INTERRUPTED


def prepare_evaluation(recipe: EvaluationRecipe, wanted: Sequence[str], *, out: Path | None, report: Report) -> Evaluation:
    """Load the benchmarks and name everything; nothing is written. Raises ConfigError or DataError where something cannot be used."""
    name, facts = describe_policy(recipe.policy, memory=recipe.memory, agent=recipe.agent, packets=recipe.packets)
    check_scoring(recipe)
    limits = {"limit": recipe.evaluation.limit, "seed": recipe.evaluation.seed}
    benchmarks = load_benchmarks(list(wanted) or list(recipe.benchmarks), recipe.benchmarks, **limits)
    report(f"policy: {name}")
    for benchmark in benchmarks:
        drawn = f" of {benchmark.num_available:,}, drawn by seed {recipe.evaluation.seed}" if len(benchmark.items) < benchmark.num_available else ""
        report(f"benchmark {benchmark.name}: {benchmark.directory}, split {benchmark.split}, {len(benchmark.items):,} questions{drawn}")
    directory = out or DEFAULT_OUT / _slug(f"{name} on {' '.join(benchmark.name for benchmark in benchmarks)}")
    return Evaluation(recipe=recipe, name=name, facts=facts, benchmarks=benchmarks, out=directory)


def ask_pending(evaluation: Evaluation, report: Report) -> RunOutcome:
    """Make every attempt that has no answer yet. Raises ConfigError, before anything is asked, where the judge does not reply."""
    recipe = evaluation.recipe
    with contextlib.ExitStack() as stack:
        logs = {benchmark.name: AnswerLog(evaluation.out / benchmark.name / ANSWERS) for benchmark in evaluation.benchmarks}
        for log in logs.values():
            stack.callback(log.close)
            for repair in log.repairs:
                report(repair)
        pending = find_pending(evaluation)
        if not pending:
            report("every attempt is answered")
            return RunOutcome()
        asyncio.run(check_judge_endpoint(recipe))
        engine = None
        if recipe.policy.engine in SERVED:
            from napmem_rl.backend.served_policy import serve_engine  # imports what takes seconds

            size = {"max_concurrency": recipe.evaluation.max_concurrency, "host": find_host(recipe.num_workers)}
            engine = stack.enter_context(serve_engine(recipe.policy, agent=recipe.agent, directory=evaluation.out / "engine", **size))
        functions = {task_id: specs for benchmark in evaluation.benchmarks for task_id, specs in benchmark.functions.items()}
        spec = WorkerSpec.of(recipe, evaluation.benchmarks, engine=engine, functions=functions)
        ask: Ask | None = None
        if recipe.num_workers:
            pool = stack.enter_context(start_pool(spec, num_workers=recipe.num_workers, max_concurrency=recipe.evaluation.max_concurrency))
            where = f"{recipe.num_workers} workers on {pool.num_nodes} node{'s' if pool.num_nodes > 1 else ''}"
            report(f"{len(pending):,} attempts, {recipe.evaluation.max_concurrency} at a time, over {where}")
            ask = pool.run
        else:
            report(f"{len(pending):,} attempts, {recipe.evaluation.max_concurrency} at a time, in this process")
        outcome = asyncio.run(_run(spec, ask, pending, logs, report))
        report(f"{outcome.num_asked:,} attempts in {outcome.seconds:.1f} s, {outcome.num_errors} failed, {len(outcome.not_asked)} could not be asked")
        return outcome


def find_pending(evaluation: Evaluation) -> list[AttemptRequest]:
    """Attempts without an answer, benchmark by benchmark. Raises DataError where a log cannot be read."""
    pending: list[AttemptRequest] = []
    for benchmark in evaluation.benchmarks:
        given = {"samples": evaluation.recipe.evaluation.samples, "seed": evaluation.recipe.evaluation.seed}
        requests = plan_attempts((task for task, _ in benchmark.items), benchmark.groups, benchmark=benchmark.name, **given)
        pending += select_pending(requests, load_answers(evaluation.out / benchmark.name / ANSWERS))
    return pending


def write_results(evaluation: Evaluation, outcome: RunOutcome, notes: list[str], report: Report) -> int:
    """Score all answers anew; write scores.jsonl, summary.json, summary.md and report.html. Returns the exit status."""
    started = time.monotonic()
    policy = {"name": evaluation.name, "facts": dict(evaluation.facts)}
    summary, results = asyncio.run(
        score_evaluation(evaluation.recipe, evaluation.benchmarks, evaluation.out, policy=policy, not_asked=outcome.not_asked, notes=notes, report=report)
    )
    write_file(evaluation.out / SUMMARY, render_summary(summary))
    text = render_markdown(summary)
    write_file(evaluation.out / SUMMARY_TEXT, text)
    write_file(evaluation.out / REPORT, render_evaluation_page(summary, results))
    report(text.rstrip())
    report(f"scored in {time.monotonic() - started:.1f} s; {evaluation.out / REPORT}")
    if not summary["is_complete"]:
        missing = sum(part["num_missing"] for part in summary["benchmarks"].values())
        report(f"not complete: {missing} attempts have no answer. Ask them again with: {_this_command()}")
        return INCOMPLETE
    return DONE


async def _run(spec: WorkerSpec, ask: Ask | None, pending: Sequence[AttemptRequest], logs: Mapping[str, AnswerLog], report: Report) -> RunOutcome:
    """All attempts within one event loop; a signal ends it in order."""
    runner = None if ask is not None else build_runner(spec)
    with stop_on_signal(report) as (stop, received):
        try:
            width = spec.recipe.evaluation.max_concurrency
            outcome = await run_attempts(pending, ask or runner.run, logs, max_concurrency=width, stop=stop, report=report)
        finally:
            if runner is not None:
                await runner.close()
    if received:
        outcome.stopped = f"signal {received[0].name}"
    return outcome


@contextlib.contextmanager
def stop_on_signal(report: Report, *, grace_s: float = STOP_GRACE_S) -> Iterator[tuple[asyncio.Event, list[signal.Signals]]]:
    """An event of the running loop that the first SIGINT or SIGTERM sets, and the signals that came.

    The process then has `grace_s` seconds: a search in a thread cannot be cancelled, and Python would wait for it. A second signal ends it at once. Either way
    what is answered is on disk.
    """
    loop, stop, received = asyncio.get_running_loop(), asyncio.Event(), []

    def leave() -> None:
        report(f"left with searches still running after {grace_s:.0f} s; what is answered is kept. Go on with: {_this_command()}")
        sys.stdout.flush()
        os._exit(INTERRUPTED)

    def take(number: signal.Signals) -> None:
        if received:
            os._exit(128 + number)
        received.append(number)
        stop.set()
        timer = threading.Timer(grace_s, leave)
        timer.daemon = True
        timer.start()

    handled = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in handled}
    for number in handled:
        loop.add_signal_handler(number, take, number)
    try:
        yield stop, received
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number] or signal.SIG_DFL)  # None: set by something that is not Python


def _describe_verdicts(recipe: EvaluationRecipe) -> str:
    """What becomes of the verdicts of a scoring that is stopped."""
    if recipe.judge.kind == "lexical":
        return ""
    return f", verdicts in {recipe.judge.cache_dir}" if recipe.judge.cache_dir else "; verdicts are not (judge.cache_dir=DIR keeps them)"


def _this_command() -> str:
    return shlex.join(["python", *sys.argv])


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-")[:120]
