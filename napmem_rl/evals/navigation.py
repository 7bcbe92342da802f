"""How a policy finds its way through memory: NapMem's Table 5, where it looks first, and how often it looks for nothing (arXiv 2607.05794, sections 4.2, 4.3).

Control tasks are questions that no memory answers: multiple choice, and requests that functions of the task itself answer (`run_episode`, `functions`).
Episodes that ended by our own failure are left out everywhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from napmem_rl.data.control_files import AcceptedCall, FunctionKey
from napmem_rl.errors import DataError
from napmem_rl.evals.metrics import Metric, aggregate, trajectory_facts
from napmem_rl.schema import AnswerKey, Level, ScoredTrajectory, Task, ToolCall, Trajectory
from napmem_rl.tools.function_calls import read_function_calls

NO_CALL = "no call"
_TABLE_5 = (Metric.CALLS_PER_QUESTION, Metric.MULTI_LEVEL_RATE, Metric.EVIDENCE_HITS_PER_100_USES, Metric.CALL_SUCCESS_RATE)
_DROPPED = re.compile(r"[\s,./\-_*^'\"]")  # what does not tell two texts apart, as BFCL compares them


@dataclass(frozen=True, kw_only=True, slots=True)
class CallScore:
    """What became of a request for function calls. `problem` says in words why it is not right; `num_memory_calls` are calls made for nothing."""

    is_correct: bool
    num_memory_calls: int
    problem: str = ""


def summarise_navigation(pairs: Sequence[tuple[Trajectory, AnswerKey]]) -> dict[str, Any]:
    """Everything of this page for the episodes of one benchmark, flat but for `first_action`; what nothing can be said of is absent.

    Args:
        pairs: episodes with their keys; several samples of a task are several episodes.

    Returns:
        - ``num_episodes``: that are counted;
        - ``calls_per_question``, ``multi_level_rate``, ``evidence_hits_per_100_uses`` (Table 5), ``call_success_rate``: over questions that need memory;
        - ``num_control_episodes``, ``unnecessary_call_rate`` (episodes with a call), ``calls_per_control_question``: over those that do not;
        - ``first_action``, ``first_action_control``: shares by level, see `find_first_actions`.
    """
    own = [(trajectory, key) for trajectory, key in pairs if not trajectory.status.is_ours]
    asking = [(trajectory, key) for trajectory, key in own if trajectory.task.needs_memory]
    control = [trajectory for trajectory, _ in own if not trajectory.task.needs_memory]
    found: dict[str, Any] = {"num_episodes": len(own)}
    if asking:
        means = aggregate([trajectory_facts(_unscored(trajectory), key) for trajectory, key in asking])
        found |= {str(metric): means[str(metric)] for metric in _TABLE_5 if str(metric) in means}
        found["first_action"] = find_first_actions([trajectory for trajectory, _ in asking])
    if control:
        calls = [len(trajectory.tool_results) for trajectory in control]
        found["num_control_episodes"] = len(control)
        found[str(Metric.UNNECESSARY_CALL_RATE)] = sum(count > 0 for count in calls) / len(calls)
        found["calls_per_control_question"] = sum(calls) / len(calls)
        found["first_action_control"] = find_first_actions(control)
    return found


def find_first_actions(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Share of episodes by the level of their first call, whether it succeeded or not, and of those without a call; sums to 1.

    Raises:
        DataError: no episode.
    """
    if not trajectories:
        raise DataError.of("first actions", "there is no episode")
    first = Counter(str(results[0].level) if (results := trajectory.tool_results) else NO_CALL for trajectory in trajectories)
    return {name: first[name] / len(trajectories) for name in (*map(str, Level), NO_CALL)}


def score_function_calls(trajectory: Trajectory, key: FunctionKey) -> CallScore | None:
    """Whether an episode called what its task asked for: every accepted call once, no other, in any order.

    Returns:
        None where the episode ended by our own failure: nothing can be said of it.
    Raises:
        DataError: the key belongs to another task.
    """
    task: Task = trajectory.task
    if key.task_id != task.task_id:
        raise DataError.of(f"trajectory {task.task_id}", "was given the function key of another task", got=key.task_id)
    if trajectory.status.is_ours:
        return None
    num_memory_calls = len(trajectory.tool_results)
    calls = read_function_calls(trajectory.final_answer) if trajectory.final_answer is not None else None
    if calls is None:
        problem = trajectory.detail or f"ended as {trajectory.status}" if trajectory.final_answer is None else "answered in words"
        return CallScore(is_correct=False, num_memory_calls=num_memory_calls, problem=problem)
    problem = find_call_problem(calls, key.calls)
    return CallScore(is_correct=not problem, num_memory_calls=num_memory_calls, problem=problem)


def find_call_problem(calls: Sequence[ToolCall], accepted: Sequence[AcceptedCall]) -> str:
    """Why calls are not those that are accepted, in words; "" where they are."""
    if len(calls) != len(accepted):
        return f"{len(calls)} calls where {len(accepted)} are right"
    if _match(calls, accepted):
        return ""
    named, wanted = Counter(call.name for call in calls), Counter(call.name for call in accepted)
    if named != wanted:
        return f"calls {', '.join(sorted(named))} where {', '.join(sorted(wanted))} is right"
    wrong = next(call for call in calls if not any(_fits(call, one) for one in accepted)) if len(calls) == 1 else None
    return f"{wrong.name}: an argument is missing, unknown or has another value" if wrong is not None else "arguments of a call have other values"


def _match(calls: Sequence[ToolCall], accepted: Sequence[AcceptedCall]) -> bool:
    """Whether each call can be paired with an accepted one of its own."""
    if not calls:
        return True
    first, rest = calls[0], calls[1:]
    return any(_fits(first, one) and _match(rest, [*accepted[:index], *accepted[index + 1 :]]) for index, one in enumerate(accepted))


def _fits(call: ToolCall, accepted: AcceptedCall) -> bool:
    if call.name != accepted.name or any(name not in accepted.arguments for name in call.arguments):
        return False
    missing = [name for name in accepted.arguments if name not in call.arguments and name not in accepted.optional]
    return not missing and all(any(_equals(value, one) for one in accepted.arguments[name]) for name, value in call.arguments.items())


def _equals(value: Any, accepted: Any) -> bool:
    """Texts without case, spaces and punctuation; numbers by value; lists item by item; of an object every accepted field holds a list of accepted values."""
    if isinstance(value, bool) or isinstance(accepted, bool):
        return value is accepted
    if isinstance(value, int | float) and isinstance(accepted, int | float):
        return value == accepted
    if isinstance(value, str) and isinstance(accepted, str):
        return _plain(value) == _plain(accepted)
    if isinstance(value, list | tuple) and isinstance(accepted, list | tuple):
        return len(value) == len(accepted) and all(_equals(left, right) for left, right in zip(value, accepted, strict=True))
    if isinstance(value, Mapping) and isinstance(accepted, Mapping):
        return _equals_object(value, accepted)
    return value is None and accepted is None


def _equals_object(value: Mapping[str, Any], accepted: Mapping[str, Any]) -> bool:
    if any(name not in accepted for name in value):
        return False
    for name, one in accepted.items():
        choices = one if isinstance(one, list | tuple) else (one,)
        if not (name in value and any(_equals(value[name], choice) for choice in choices) or name not in value and "" in choices):
            return False
    return True


def _plain(text: str) -> str:
    return _DROPPED.sub("", text).casefold()


def _unscored(trajectory: Trajectory) -> ScoredTrajectory:
    return ScoredTrajectory(trajectory=trajectory, reward=None, abstained="only its navigation is counted")
