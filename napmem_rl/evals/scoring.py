"""From recorded answers and their keys to scores: text metrics, evidence, and the judge. No policy is needed, so answers can be scored again at any time.

What an attempt is worth:

- It answered: every metric that fits the question; what does not fit, or could not be computed, is absent with its reason.
- It ended by the policy's own doing without an answer (truncated, over budget, no readable answer): 0 in every metric that fits, because a missing answer is
  wrong.
- It failed by the system's doing (`error_llm`, `error_tool`): nothing is scored, and never 0.

A judge that gives no verdict leaves its score absent; so does one that cannot judge a kind of question at all, whatever the policy said.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from napmem_rl.errors import BankError, DataError, JudgeError
from napmem_rl.evals.result_rows import AnswerRow, ScoreRow
from napmem_rl.evals.retrieval_metrics import SESSION_METRICS, score_retrieval
from napmem_rl.evals.text_metrics.locomo_f1 import find_category
from napmem_rl.evals.text_metrics.pairs import Pair
from napmem_rl.evals.text_metrics.registry import LoadedMetrics, MetricName
from napmem_rl.evals.trajectory_rows import read_trajectory
from napmem_rl.rewards.judge import Judge, LexicalJudge
from napmem_rl.schema import AnswerKey, AnswerKind, Status, Task

JUDGE = "judge"  # name of the judge's score: 1 correct, 0 not
MAX_CONCURRENCY = 64

_OURS = "the attempt failed by the system's doing: {status}"
_NO_VERDICT = "the judge gave no verdict"
_HAS_OPTIONS = "a multiple choice is decided by its letter"
_NO_OPTIONS = "not a multiple choice"
_RUBRIC = "the reference is a rubric, not an answer"
_NO_ANSWER_EXISTS = "unanswerable: the reference is no answer"
_NOT_LOCOMO = "the category is none of LoCoMo's"


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusScore:
    """One figure for many answers. `value` is None where `absent` says why."""

    value: float | None
    num_answers: int
    absent: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Case:
    """What scoring needs of an answer."""

    answer: AnswerRow
    key: AnswerKey
    task: Task
    status: Status
    final_answer: str | None

    @property
    def pair(self) -> Pair:
        return Pair(id=self.task.task_id, category=self.task.category, gold=self.key.references, prediction=self.final_answer or "")


async def score_answers(
    answers: Iterable[AnswerRow],
    keys: Mapping[str, AnswerKey],
    *,
    metrics: LoadedMetrics,
    judge: Judge | None = None,
    audit: Mapping[str, bool] | None = None,
    find_sessions: Callable[[str], Mapping[str, str]] | None = None,
    max_concurrency: int = MAX_CONCURRENCY,
    on_done: Callable[[int], None] | None = None,
) -> list[ScoreRow]:
    """Score answers, in their order.

    Args:
        answers: of one benchmark.
        keys: by task id.
        metrics: corpus metrics among them are left to `score_corpus`.
        judge: asked about every answer; None leaves the score `judge` out.
        audit: task id -> whether its reference is right (`load_audit`).
        find_sessions: bank id -> {message id: session id}; with it, recall is given by sessions too.
        max_concurrency: questions to the judge at once.
        on_done: called with the number of finished answers.

    Raises:
        DataError: an answer without a key, or a key that cannot be used.
    """
    cases = [_open_case(answer, keys) for answer in answers]
    texts = await asyncio.to_thread(_score_texts, cases, metrics)
    gate, finished = asyncio.Semaphore(max_concurrency), 0

    async def score_one(case: _Case, scores: dict[str, float], absent: dict[str, str]) -> ScoreRow:
        nonlocal finished
        if metrics.has_recall and not case.status.is_ours:
            found, missing = _score_evidence(case, find_sessions)
            scores, absent = scores | found, absent | missing
        reason = ""
        if judge is not None:
            async with gate:
                verdict, reason = await _ask_judge(judge, case)
            scores, absent = (scores, absent | {JUDGE: verdict}) if isinstance(verdict, str) else (scores | {JUDGE: verdict}, absent)
        finished += 1
        if on_done is not None:
            on_done(finished)
        return _build_row(case, scores, absent, judge.name if judge is not None else "", reason, audit or {})

    tasks = [asyncio.ensure_future(score_one(case, *text)) for case, text in zip(cases, texts, strict=True)]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:  # after an error nobody waits for the others
            task.cancel()


def score_corpus(answers: Iterable[AnswerRow], keys: Mapping[str, AnswerKey], *, metrics: LoadedMetrics) -> dict[str, CorpusScore]:
    """The metrics that are one value for all answers, over open questions with an accepted answer; a missing answer counts as an empty text.

    Raises:
        DataError: an answer without a key.
    """
    cases = [_open_case(answer, keys) for answer in answers]
    figures = {}
    for name, metric in metrics.loaded.items():
        if metric.is_corpus:
            fitting = [case.pair for case in cases if not case.status.is_ours and explain_absence(name, case.task, case.key) is None]
            figures[name] = _score_corpus(metric.score_corpus, fitting)
    return figures


def explain_absence(metric: str, task: Task, key: AnswerKey) -> str | None:
    """Why a text metric does not fit a question; None where it does."""
    if task.options:
        return None if metric == MetricName.MULTIPLE_CHOICE else _HAS_OPTIONS
    if metric == MetricName.MULTIPLE_CHOICE:
        return _NO_OPTIONS
    if metric == MetricName.LOCOMO_F1:
        category = find_category(task.category)
        if category is None:
            return _NOT_LOCOMO
        if category == 5:  # LoCoMo's own way with unanswerable questions
            return None
    if key.kind is AnswerKind.RUBRIC:
        return _RUBRIC
    return _NO_ANSWER_EXISTS if key.kind is AnswerKind.UNANSWERABLE else None


def load_audit(path: Path) -> dict[str, bool]:
    """Labels of references that people checked: JSON lines {task_id, is_reference_correct}; other fields, such as who labelled, are not read.

    Raises:
        DataError: no such file, no label, or a line that is none or contradicts an earlier one. The message names it.
    """
    what = f"audit {path}"
    if not path.is_file():
        raise DataError.of(what, "no such file", fix="Give a file of JSON lines {task_id, is_reference_correct}.")
    labels: dict[str, bool] = {}
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if line.strip():
            task_id, is_correct = _read_label(line, f"{what}, line {number}")
            if labels.setdefault(task_id, is_correct) is not is_correct:
                raise DataError.of(f"{what}, line {number}", "contradicts an earlier line", got=task_id)
    if not labels:
        raise DataError.of(what, "holds no label")
    return labels


def check_audit(audit: Mapping[str, bool], task_ids: Sequence[str]) -> None:
    """Raises DataError where an audit names no task of an evaluation: it belongs to something else then."""
    if audit and audit.keys().isdisjoint(task_ids):
        fix = "It must hold task ids as the prepared data hold them."
        raise DataError.of("audit", "names no task of this evaluation", got=sorted(audit)[:3], expected=f"ids such as {min(task_ids, default='')}", fix=fix)


def _read_label(line: bytes, what: str) -> tuple[str, bool]:
    try:
        row = json.loads(line)
        task_id, is_correct = row["task_id"], row["is_reference_correct"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError.of(what, f"is no label ({type(error).__name__}: {error})", expected="{task_id, is_reference_correct}") from error
    if not isinstance(task_id, str) or not isinstance(is_correct, bool):
        raise DataError.of(what, "is no label", got=row, expected="task_id a text, is_reference_correct true or false")
    return task_id, is_correct


def _open_case(answer: AnswerRow, keys: Mapping[str, AnswerKey]) -> _Case:
    what = f"answer {answer.task_id}, sample {answer.sample}"
    if answer.task_id not in keys:
        raise DataError.of(what, "has no key", fix="Score answers with the questions that they were asked from.")
    trajectory = read_trajectory(answer.trajectory, what=what)
    task = trajectory.task
    if task.task_id != answer.task_id:
        raise DataError.of(what, "holds the trajectory of another task", got=task.task_id)
    return _Case(answer=answer, key=keys[answer.task_id], task=task, status=trajectory.status, final_answer=trajectory.final_answer)


def _score_texts(cases: Sequence[_Case], metrics: LoadedMetrics) -> list[tuple[dict[str, float], dict[str, str]]]:
    """(scores, absent) of every case; each metric sees all its texts at once, so that models run in batches."""
    table: list[tuple[dict[str, float], dict[str, str]]] = [({}, {}) for _ in cases]
    for name, reason in metrics.absent.items():
        for _, absent in table:
            absent[name] = reason
    for name, metric in metrics.loaded.items():
        if metric.is_corpus:
            continue
        reasons = [explain_absence(name, case.task, case.key) for case in cases]
        reasons = [_OURS.format(status=case.status) if case.status.is_ours else reason for case, reason in zip(cases, reasons, strict=True)]
        fitting = [place for place, reason in enumerate(reasons) if reason is None]
        for place, value in zip(fitting, metric.score([cases[place].pair for place in fitting]), strict=True):
            table[place][0][name] = value
        for place, reason in enumerate(reasons):
            if reason is not None:
                table[place][1][name] = reason
    return table


def _score_evidence(case: _Case, find_sessions: Callable[[str], Mapping[str, str]] | None) -> tuple[dict[str, float], dict[str, str]]:
    """(scores, absent) of what the policy read; of a bank that is gone by now the figures by sessions are absent."""
    try:
        sessions = find_sessions(case.task.bank_id) if find_sessions is not None else None
    except BankError as error:
        scores, absent = score_retrieval(case.answer, case.key)
        return scores, absent | dict.fromkeys(SESSION_METRICS, f"its bank cannot be opened: {error.message}")
    return score_retrieval(case.answer, case.key, sessions)


async def _ask_judge(judge: Judge, case: _Case) -> tuple[float | str, str]:
    """(1, 0, or why there is no score; the reason in words)."""
    if case.status.is_ours:
        return _OURS.format(status=case.status), ""
    if case.final_answer is None:
        return _judge_silence(judge, case)
    try:
        verdict = await judge.judge(case.task, case.key, case.final_answer)
    except JudgeError as error:
        return _NO_VERDICT, error.message
    return float(verdict.is_correct), verdict.reason


def _judge_silence(judge: Judge, case: _Case) -> tuple[float | str, str]:
    """A missing answer is wrong, unless the judge could not have judged any: a mean over missing answers alone would be 0 for every policy."""
    if isinstance(judge, LexicalJudge):
        try:
            judge.decide(case.task, case.key, "")
        except JudgeError as error:
            return _NO_VERDICT, error.message
    return 0.0, f"no answer: {case.status}"


def _score_corpus(compute: Callable[[Sequence[Pair]], float], pairs: Sequence[Pair]) -> CorpusScore:
    if not pairs:
        return CorpusScore(value=None, num_answers=0, absent="no answer that it fits")
    try:
        return CorpusScore(value=compute(pairs), num_answers=len(pairs))
    except DataError as error:
        return CorpusScore(value=None, num_answers=len(pairs), absent=error.message)


def _build_row(case: _Case, scores: Mapping[str, float], absent: Mapping[str, str], judge: str, reason: str, audit: Mapping[str, bool]) -> ScoreRow:
    return ScoreRow(
        task_id=case.task.task_id,
        sample=case.answer.sample,
        group_id=case.answer.group_id,
        category=case.task.category,
        kind=str(case.key.kind),
        final_answer=case.final_answer,
        references=case.key.references,
        evidence_ids=case.key.evidence_ids,
        scores=scores,
        absent=absent,
        judge=judge,
        verdict_reason=reason,
        audited=audit.get(case.task.task_id),
    )
