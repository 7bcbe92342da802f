"""What the Planner and the Trigger are paid (arXiv 2609.17088, sections 3.3.1, 3.3.2 and 3.3.4). Pure functions of what a judge said.

A judge that gave no usable score is no score of 0: its turn has no reward, and nothing here is called for it.
"""

from __future__ import annotations

import math

from napmem_rl.errors import JudgeError
from napmem_rl.systems.icml.config import RewardSettings


def check_score(score: float, what: str) -> float:
    """A judge's score, which is in [0, 1]. Raises JudgeError otherwise: an answer out of range is no verdict."""
    if not (isinstance(score, int | float) and not isinstance(score, bool) and math.isfinite(score) and 0 <= score <= 1):
        raise JudgeError.of(what, "is no score", got=score, expected="a number in [0, 1]")
    return float(score)


def compute_save_reward(proxy: float, settings: RewardSettings) -> float:
    """The Planner's own payment for a turn that it saved: ``r_proxy - save_cost``.

    Example: proxy 0.75 and a cost of 0.25 give 0.5.
    """
    return proxy - settings.save_cost


def compute_discard_reward(proxy: float, settings: RewardSettings) -> float:
    """The Planner's payment for a turn that it discarded: ``-alpha r_proxy`` where the judge rates the turn high, else 0.

    Example: with alpha 0.5 and `high_from` 0.5 a proxy of 0.8 gives -0.4, and one of 0.4 gives 0.
    """
    return -settings.miss_weight * proxy if proxy >= settings.high_from else 0.0


def compute_truth_bonus(quality: float, settings: RewardSettings) -> float:
    """What a saved memory is paid, once, when it is triggered first: ``lambda r_qual``; with `compute_save_reward` it is the truth reward of section 3.3.4.

    Example: with lambda 0.5 a reply of quality 0.9 gives 0.45.
    """
    return settings.truth_weight * quality
