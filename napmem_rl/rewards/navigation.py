"""The reward rubric of NapMem (arXiv 2607.05794, section 3.4): format F, correctness C, appropriate memory use U.

The paper's text leaves F and U undefined; the definitions here are ours and each function states its own.
"""

from __future__ import annotations

from napmem_rl.schema import Status, Trajectory

FORMAT, CORRECT, APPROPRIATE_USE = "format", "correct", "appropriate_use"  # names of the terms F, C, U in `ScoredTrajectory.terms`


def compute_reward(is_well_formed: bool, is_correct: bool, is_use_appropriate: bool) -> float:
    """The terminal reward r(tau) of section 3.4.

    Args:
        is_well_formed: F.
        is_correct: C.
        is_use_appropriate: U.

    Returns:
        F=0 gives -1 whatever C and U are; otherwise (C, U) = 11 → 1, 10 → 0, 01 → -0.5, 00 → -1.
    """
    if not is_well_formed:
        return -1.0
    if is_correct:
        return 1.0 if is_use_appropriate else 0.0
    return -0.5 if is_use_appropriate else -1.0


def is_well_formed(trajectory: Trajectory) -> bool:
    """F: every turn parses, nothing was cut off and there is exactly one final answer.

    An episode ends at its first turn that does not parse, so this is the same as status completed. An episode over its budget has no final answer: F=0.
    """
    return trajectory.status is Status.COMPLETED


def is_appropriate_use(trajectory: Trajectory) -> bool:
    """U: memory was used as the question asks for.

    On a question that needs memory: at least one successful call, within the budget (asking for more tool steps than allowed is U=0). On one that does not:
    no call at all, successful or not.
    """
    if not trajectory.task.needs_memory:
        return not trajectory.tool_results
    return trajectory.status is not Status.OVER_BUDGET and any(result.is_success for result in trajectory.tool_results)
