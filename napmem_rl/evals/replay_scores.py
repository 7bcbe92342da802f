"""Scores of an evaluation's answer, computed again from the recorded verdict."""

from __future__ import annotations

import asyncio
import dataclasses

from napmem_rl.data.splits import META
from napmem_rl.evals.prepared import Benchmark, load_split
from napmem_rl.evals.recordings import Earned, Evaluated
from napmem_rl.evals.replay import JUDGE_FAILED, Difference, RecordedJudge
from napmem_rl.evals.result_rows import SCORES, ScoreRow
from napmem_rl.evals.scored_evaluation import load_scores
from napmem_rl.evals.scoring import JUDGE, score_answers
from napmem_rl.evals.text_metrics.registry import load_metrics
from napmem_rl.evals.trajectory_rows import render_trajectory
from napmem_rl.rewards.navigation import CORRECT
from napmem_rl.schema import Trajectory


def load_benchmark(origin: Evaluated) -> Benchmark:
    """The questions that an evaluation asked, with keys. Raises DataError where they are not there any more."""
    return load_split(origin.data_dir, origin.split, name=origin.row.benchmark)


async def compare_scores(origin: Evaluated, again: Trajectory) -> tuple[Difference | None, str]:
    """Score the episode that was played again, with the recorded verdict.

    Returns:
        (the first score that differs, or None; what was compared, in words).
    """
    row = find_score(origin)
    if row is None:
        return None, "no score was recorded, so none is compared"
    if not (origin.data_dir / META).is_file():
        return None, f"scores are not compared: the questions are not at {origin.data_dir} any more"
    benchmark = await asyncio.to_thread(load_benchmark, origin)
    if benchmark.sha256 != origin.data_hash:
        return None, f"scores are not compared: the questions at {origin.data_dir} are not those that were evaluated"
    keys = benchmark.keys
    if again.task.task_id not in keys:
        return None, "scores are not compared: the benchmark does not hold this question any more"
    evaluation = origin.recipe.evaluation
    metrics = await asyncio.to_thread(load_metrics, evaluation.metrics, evaluation.metric_models)
    answer = dataclasses.replace(origin.row, trajectory=render_trajectory(again))
    judge = RecordedJudge(_read_verdict(row)) if row.judge else None
    (now,) = await score_answers([answer], {answer.task_id: keys[answer.task_id]}, metrics=metrics, judge=judge)
    compared = sorted({*row.scores} & {*now.scores})
    for name in compared:
        if row.scores[name] != now.scores[name]:
            return Difference(part=f"score {name}", recorded=str(row.scores[name]), again=str(now.scores[name])), "scores compared"
    return None, f"scores compared, all equal: {', '.join(compared) or 'none was recorded'}"


def find_score(origin: Evaluated) -> ScoreRow | None:
    """The recorded scores of the answer; None where none were written."""
    path = origin.run_dir / origin.row.benchmark / SCORES
    if not path.is_file():
        return None
    return next((row for row in load_scores(path) if (row.task_id, row.sample) == origin.row.identity), None)


def _read_verdict(row: ScoreRow) -> Earned:
    if JUDGE not in row.scores:
        return Earned(reward=None, abstained=f"{JUDGE_FAILED}{row.verdict_reason or row.absent.get(JUDGE, '')}", terms={}, judge=row.judge)
    return Earned(reward=None, abstained=None, terms={CORRECT: row.scores[JUDGE]}, judge=row.judge)
