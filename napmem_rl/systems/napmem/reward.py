"""From a finished episode to its reward: format gate, judge, memory use (arXiv 2607.05794, section 3.4)."""

from __future__ import annotations

from napmem_rl.config.sections import AgentConfig
from napmem_rl.errors import DataError, JudgeError
from napmem_rl.rewards.judge import Judge
from napmem_rl.rewards.navigation import APPROPRIATE_USE, CORRECT, FORMAT, compute_reward, is_appropriate_use, is_well_formed
from napmem_rl.schema import AnswerKey, ScoredTrajectory, Trajectory


async def score_trajectory(trajectory: Trajectory, key: AnswerKey, judge: Judge, config: AgentConfig) -> ScoredTrajectory:
    """Score one episode with the rubric of section 3.4.

    The judge is asked only where F holds; an episode without F is incorrect (C=0) and costs -1. No honest reward exists, and the result abstains, where the
    failure was ours (status error_tool, error_llm) or the judge gave no verdict; the terms known by then stay in `terms`.

    Raises:
        DataError: the key belongs to another task or cannot be used, or the episode ran under a larger budget than `config` names.
    """
    what = f"trajectory {trajectory.task.task_id}"
    if key.task_id != trajectory.task.task_id:
        raise DataError.of(what, "was given the answer key of another task", got=key.task_id)
    if trajectory.num_tool_steps > config.max_tool_steps:
        raise DataError.of(what, "ran under another budget", got=trajectory.num_tool_steps, expected=f"at most {config.max_tool_steps} tool steps")
    if trajectory.status.is_ours:
        return ScoredTrajectory(trajectory=trajectory, reward=None, abstained=f"{trajectory.status}: {trajectory.detail}", judge=judge.name)
    is_formed, is_use = is_well_formed(trajectory), is_appropriate_use(trajectory)
    terms = {FORMAT: float(is_formed), APPROPRIATE_USE: float(is_use)}
    is_correct = False
    if trajectory.final_answer is not None:
        try:
            is_correct = (await judge.judge(trajectory.task, key, trajectory.final_answer)).is_correct
        except JudgeError as error:
            return ScoredTrajectory(trajectory=trajectory, reward=None, abstained=f"judge: {error}", terms=terms, judge=judge.name)
    reward = compute_reward(is_formed, is_correct, is_use)
    return ScoredTrajectory(trajectory=trajectory, reward=reward, terms={**terms, CORRECT: float(is_correct)}, judge=judge.name)
