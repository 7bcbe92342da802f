"""How much of the ideal speed an evaluation reaches: many questions to an endpoint that always takes one second."""

from __future__ import annotations

import json
import math
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from napmem_rl.backend.evaluate import ask_pending, prepare_evaluation, write_results
from napmem_rl.backend.scripted_endpoint import MODEL, serve_scripted
from napmem_rl.config.evaluation_recipe import load_evaluation_recipe
from napmem_rl.data.rows import save_rows
from napmem_rl.data.splits import META
from napmem_rl.evals.evaluation_settings import build_settings, settle
from napmem_rl.memory.builder import build_bank
from napmem_rl.schema import AnswerKey, Message, Task

_USERS = 20
_SESSION = 10  # messages
_THINGS = ("lantern", "saddle", "compass", "kettle", "violin", "anchor", "ladder", "basket", "hammer", "mirror")
_PLACES = ("attic", "stable", "harbour", "kitchen", "music room", "boat", "shed", "cellar", "garden", "tower")


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationTiming:
    """`seconds` from the first attempt to the last row, start-up left out; `ideal_s` is waiting alone; `share` = ideal_s / seconds."""

    policy: str
    questions: int
    concurrency: int
    latency_s: float
    workers: int
    seconds: float
    ideal_s: float
    share: float
    cpu_ms_per_question: float  # of this process while it asked
    errors: int
    scoring_s: float


def measure_evaluation(
    directory: Path,
    *,
    policy: str = "passive_bm25",
    questions: int = 1000,
    concurrency: int = 64,
    latency_s: float = 1.0,
    workers: int = 0,
    report: Callable[[str], None] = print,
) -> EvaluationTiming:
    """Run one evaluation of synthetic questions against a scripted endpoint in a process of its own.

    Args:
        directory: for data and results; new or empty.
        policy: a recipe of recipes/eval.
        questions: how many, over twenty users.
        concurrency: attempts in flight.
        latency_s: of the endpoint.
        workers: Ray actors; 0 asks from this process.
        report: takes progress.
    """
    data = write_questions(directory / "data", questions)
    with serve_scripted(latency_s=latency_s) as url:
        overrides = [f"policy.model={MODEL}", f"policy.base_url={url}", "policy.api_key_env=''"]
        overrides += [f"evaluation.max_concurrency={concurrency}", f"evaluation.workers={workers}", "evaluation.metrics=[exact_match, token_f1]"]
        recipe = load_evaluation_recipe(policy, overrides)
        evaluation = prepare_evaluation(recipe, [str(data)], out=directory / "out", report=report)
        settle(evaluation.out, build_settings(recipe, evaluation.benchmarks, name=evaluation.name, facts=evaluation.facts, model_hash=None))
        before = _cpu_s()
        outcome = ask_pending(evaluation, report)
        spent = _cpu_s() - before
    started = time.monotonic()
    write_results(evaluation, outcome, [], lambda line: None)
    ideal_s = math.ceil(questions / concurrency) * latency_s
    return EvaluationTiming(
        policy=evaluation.name,
        questions=questions,
        concurrency=concurrency,
        latency_s=latency_s,
        workers=workers,
        seconds=round(outcome.seconds, 3),
        ideal_s=ideal_s,
        share=round(ideal_s / outcome.seconds, 4),
        cpu_ms_per_question=round(1000 * spent / questions, 2),
        errors=outcome.num_errors + len(outcome.not_asked),
        scoring_s=round(time.monotonic() - started, 3),
    )


def write_questions(directory: Path, count: int) -> Path:
    """A prepared directory of `count` questions over twenty users' banks. Returns it."""
    banks = {}
    for user in range(_USERS):
        bank_id = f"user-{user}"
        banks[bank_id] = {"group": bank_id, "split": "test", "version": build_bank(directory / "banks" / bank_id, bank_id, _messages(user))}
    items = []
    for number in range(count):
        user, thing = number % _USERS, _THINGS[number % len(_THINGS)]
        question = f"Where was my {thing} in week {number // _USERS}?"
        task = Task(task_id=f"q:{number}", bank_id=f"user-{user}", question=question, category="place", needs_memory=True)
        items.append((task, AnswerKey(task_id=task.task_id, references=(_PLACES[(number + user) % len(_PLACES)],))))
    save_rows(directory / "test.parquet", items, data_source="synthetic")
    (directory / META).write_text(json.dumps({"source": "synthetic", "banks": banks}), encoding="utf-8")
    return directory


def _messages(user: int) -> tuple[Message, ...]:
    """Two hundred messages of one user."""
    return tuple(
        Message(
            message_id=f"msg:{number}",
            session_id=f"s{number // _SESSION}",
            role="user",
            speaker="Ana",
            text=f"In week {number // 4} I put my {_THINGS[number % 10]} into the {_PLACES[(number + user) % 10]}, next to the {_THINGS[(number + 3) % 10]}.",
            time=f"2024-{number // 28 % 12 + 1:02d}-{number % 28 + 1:02d}T10:00:00",
        )
        for number in range(200)
    )


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
