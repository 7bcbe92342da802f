"""What is measured of scored trajectories. Every name of an evaluation metric is in `Metric`; nothing else spells one.

A metric that cannot be computed (no gold evidence, no tool use, no control question, an abstained reward) is absent, never zero. An abstained trajectory
counts in no mean of what was not decided; its behaviour still counts where the failure was the judge's, and nothing of it counts where it was ours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from napmem_rl.errors import DataError
from napmem_rl.rewards.navigation import APPROPRIATE_USE, CORRECT, FORMAT
from napmem_rl.rewards.text_match import compute_token_f1
from napmem_rl.schema import AnswerKey, Level, ScoredTrajectory, Status, Trajectory

Facts = dict[str, Any]  # of one trajectory: identity under the names below, numbers under `Metric` and `Count`

TASK_ID, BANK_ID, CATEGORY, STATUS = "task_id", "bank_id", "category", "status"


class Metric(StrEnum):
    """Means over trajectories in [0, 1] unless said otherwise."""

    REWARD = "reward"  # in [-1, 1]
    CORRECTNESS = "correctness"
    FORMAT = "format"
    APPROPRIATE_USE = "appropriate_use"
    TOKEN_F1 = "token_f1"  # open questions with a final answer or an end that was the policy's own (then 0)
    CALLS_PER_QUESTION = "calls_per_question"  # all calls, successful or not
    TOOL_STEPS = "tool_steps"  # assistant turns with calls
    MULTI_LEVEL_RATE = "multi_level_rate"  # questions that read more than one level of memory
    EVIDENCE_HITS_PER_100_USES = "evidence_hits_per_100_uses"  # pooled over all uses on questions with gold evidence
    UNNECESSARY_CALL_RATE = "unnecessary_call_rate"  # control questions with at least one call
    CALL_SUCCESS_RATE = "call_success_rate"  # pooled over all calls
    CUT_RESULT_RATE = "cut_result_rate"  # tool results cut at a limit, pooled over all calls
    CALLS_BY_LEVEL = "calls_per_question/{level}"
    STATUS_RATE = "status/{status}"  # over all trajectories, ours included
    TRUNCATED_TURN = "truncated/turn"  # a turn hit the length limit
    TRUNCATED_CONTEXT = "truncated/context"  # no room was left for a turn


class Count(StrEnum):
    """Numbers of things; sums over trajectories."""

    QUESTIONS = "num_questions"
    ABSTAINED = "num_abstained"
    CALLS = "num_calls"
    SUCCESSFUL_CALLS = "num_successful_calls"
    CUT_RESULTS = "num_cut_results"
    USES_WITH_GOLD = "num_uses_with_gold"  # calls on questions whose gold evidence is known
    EVIDENCE_HITS = "num_evidence_hits"  # of those, results that hold at least one gold message by provenance


_RATIOS = {  # pooled: sum / sum x factor
    Metric.EVIDENCE_HITS_PER_100_USES: (Count.EVIDENCE_HITS, Count.USES_WITH_GOLD, 100.0),
    Metric.CALL_SUCCESS_RATE: (Count.SUCCESSFUL_CALLS, Count.CALLS, 1.0),
    Metric.CUT_RESULT_RATE: (Count.CUT_RESULTS, Count.CALLS, 1.0),
}
_IDENTITY = frozenset((TASK_ID, BANK_ID, CATEGORY, STATUS))
_TERMS = {CORRECT: Metric.CORRECTNESS, FORMAT: Metric.FORMAT, APPROPRIATE_USE: Metric.APPROPRIATE_USE}


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A mean with its 95% interval. `low` and `high` are None where there is one user only: nothing can be said about others then."""

    mean: float
    low: float | None
    high: float | None
    num_users: int
    num_values: int


def trajectory_facts(scored: ScoredTrajectory, key: AnswerKey) -> Facts:
    """All that is known of one trajectory, flat; what is not known is absent.

    Raises:
        DataError: the key belongs to another task.
    """
    trajectory, task = scored.trajectory, scored.trajectory.task
    if key.task_id != task.task_id:
        raise DataError.of(f"trajectory {task.task_id}", "was given the answer key of another task", got=key.task_id)
    facts: Facts = {TASK_ID: task.task_id, BANK_ID: task.bank_id, CATEGORY: task.category, STATUS: str(trajectory.status)}
    facts |= {str(Count.QUESTIONS): 1, str(Count.ABSTAINED): int(scored.reward is None)}
    facts |= {Metric.STATUS_RATE.format(status=status): float(status is trajectory.status) for status in Status}
    if trajectory.status.is_ours:
        return facts
    if scored.reward is not None:
        facts[str(Metric.REWARD)] = scored.reward
    facts |= {str(metric): scored.terms[term] for term, metric in _TERMS.items() if term in scored.terms}
    if not task.options:
        facts[str(Metric.TOKEN_F1)] = compute_token_f1(trajectory.final_answer or "", key.references)
    return facts | _use_facts(trajectory, key) | _truncation_facts(trajectory)


def aggregate(facts: Sequence[Facts]) -> dict[str, float]:
    """Means and sums over trajectories; names that no trajectory has stay absent.

    Raises:
        DataError: no trajectory at all.
    """
    if not facts:
        raise DataError.of("evaluation", "holds no trajectory", fix="Check the task file and the filters.")
    values: dict[str, list[float]] = defaultdict(list)
    for row in facts:
        for name, value in row.items():
            if name not in _IDENTITY:
                values[name].append(value)
    counts = {str(count): float(sum(values[count])) for count in Count if values.get(count)}
    means = {name: float(np.mean(column)) for name, column in values.items() if name not in counts}
    ratios = {str(name): factor * counts[top] / counts[bottom] for name, (top, bottom, factor) in _RATIOS.items() if counts.get(bottom)}
    return means | counts | ratios


def aggregate_by_category(facts: Sequence[Facts]) -> dict[str, dict[str, float]]:
    """`aggregate` for each category, in alphabetical order. Raises DataError where there is no trajectory."""
    groups: dict[str, list[Facts]] = defaultdict(list)
    for row in facts:
        groups[row[CATEGORY]].append(row)
    return {category: aggregate(groups[category]) for category in sorted(groups)}


def group_by_user(facts: Sequence[Facts], metric: str) -> dict[str, list[float]]:
    """The values of one metric by bank id, for `bootstrap_interval`; trajectories that lack it are left out."""
    values: dict[str, list[float]] = defaultdict(list)
    for row in facts:
        if metric in row:
            values[row[BANK_ID]].append(row[metric])
    return dict(values)


def bootstrap_interval(values_by_user: Mapping[str, Sequence[float]], *, num_resamples: int = 10_000, seed: int = 0) -> Interval:
    """Mean over all values with a 95% percentile bootstrap interval that resamples users.

    Questions of one user share a bank and are not independent; users are, as long as no two banks tell one conversation (of LoCoMo's pairs of banks they do:
    give both the same key there). A resample draws as many users as there are, with replacement, and takes the mean
    over all their values. The same values and seed give the same interval, in whatever order the users come.

    Raises:
        DataError: no user, a user without values, or a value that is not finite.
    """
    if not values_by_user:
        raise DataError.of("bootstrap interval", "there is no user", fix="Check that the metric exists on these trajectories.")
    columns = [np.asarray(values_by_user[user], dtype=np.float64) for user in sorted(values_by_user)]
    for user, column in zip(sorted(values_by_user), columns, strict=True):
        if column.ndim != 1 or not len(column) or not np.isfinite(column).all():
            raise DataError.of(f"bootstrap interval, user {user}", "has unusable values", got=values_by_user[user], expected="at least one finite number")
    sums, counts = np.array([column.sum() for column in columns]), np.array([len(column) for column in columns])
    mean, num_users = float(sums.sum() / counts.sum()), len(columns)
    if num_users == 1:
        return Interval(mean=mean, low=None, high=None, num_users=1, num_values=int(counts.sum()))
    weights = np.random.default_rng(seed).multinomial(num_users, np.full(num_users, 1 / num_users), size=num_resamples)  # [B, U] how often each user is drawn
    low, high = np.percentile((weights @ sums) / (weights @ counts), (2.5, 97.5))
    return Interval(mean=mean, low=float(low), high=float(high), num_users=num_users, num_values=int(counts.sum()))


def paired_gain(before: Sequence[Facts], after: Sequence[Facts], metric: str, *, num_resamples: int = 10_000, seed: int = 0) -> Interval:
    """Mean of after - before over tasks, with its interval over users.

    Pairs are matched by task id; repeats of a task (several seeds) are averaged first. A task whose metric is absent on either side (abstained) is left out:
    compare `num_values` with the number of tasks.

    Raises:
        DataError: the two sides do not hold the same tasks of the same users, or no pair has the metric on both sides.
    """
    users_before, users_after = _users_by_task(before), _users_by_task(after)
    if users_before != users_after:
        different = sorted(set(users_before.items()) ^ set(users_after.items()))
        raise DataError.of("paired gain", "the two evaluations hold different tasks", got=different[:5], expected="the same task and bank ids on both sides")
    means_before, means_after = _means_by_task(before, metric), _means_by_task(after, metric)
    gains: dict[str, list[float]] = defaultdict(list)
    for task_id, user in users_before.items():
        if task_id in means_before and task_id in means_after:
            gains[user].append(means_after[task_id] - means_before[task_id])
    return bootstrap_interval(gains, num_resamples=num_resamples, seed=seed)


def _use_facts(trajectory: Trajectory, key: AnswerKey) -> Facts:
    """How memory was used. A level counts as read where a call on it succeeded."""
    results = trajectory.tool_results
    facts: Facts = {
        str(Metric.CALLS_PER_QUESTION): float(len(results)),
        str(Metric.TOOL_STEPS): float(trajectory.num_tool_steps),
        str(Metric.MULTI_LEVEL_RATE): float(len({result.level for result in results if result.is_success}) > 1),
        str(Count.CALLS): len(results),
        str(Count.SUCCESSFUL_CALLS): sum(result.is_success for result in results),
        str(Count.CUT_RESULTS): sum(result.is_truncated for result in results),
    }
    facts |= {Metric.CALLS_BY_LEVEL.format(level=level): float(sum(result.level is level for result in results)) for level in Level}
    if not trajectory.task.needs_memory:
        facts[str(Metric.UNNECESSARY_CALL_RATE)] = float(bool(results))
    if key.evidence_ids:
        gold = set(key.evidence_ids)
        facts[str(Count.USES_WITH_GOLD)] = len(results)
        facts[str(Count.EVIDENCE_HITS)] = sum(not gold.isdisjoint(result.message_ids) for result in results)
    return facts


def _truncation_facts(trajectory: Trajectory) -> Facts:
    """Which limit ended the episode: a turn without a text had no room at all."""
    is_cut = trajectory.status is Status.TRUNCATED
    has_text = bool(trajectory.turns and trajectory.turns[-1].text)
    return {str(Metric.TRUNCATED_TURN): float(is_cut and has_text), str(Metric.TRUNCATED_CONTEXT): float(is_cut and not has_text)}


def _users_by_task(facts: Sequence[Facts]) -> dict[str, str]:
    return {row[TASK_ID]: row[BANK_ID] for row in facts}


def _means_by_task(facts: Sequence[Facts], metric: str) -> dict[str, float]:
    values: dict[str, list[float]] = defaultdict(list)
    for row in facts:
        if metric in row:
            values[row[TASK_ID]].append(row[metric])
    return {task_id: float(np.mean(column)) for task_id, column in values.items()}
