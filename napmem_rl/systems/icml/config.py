"""What decides what the two agents are paid and how they learn (arXiv 2609.17088, section 3.3 and appendix C).

Values that the paper gives: gamma, gae_lambda, clip, the learning rates. Ours, because it gives none: truth_weight, miss_weight, high_from, entropy_weight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from napmem_rl.errors import ConfigError


class Ablation(StrEnum):
    """Rows of the paper's Table 2, and what every table shows beside them."""

    NONE = "none"
    NO_PLANNER = "no_planner"  # every turn is saved
    NO_TRIGGER = "no_trigger"  # the search's best memory is chosen
    NO_TRUTH_REWARD = "no_truth_reward"  # nothing is paid across sessions
    NO_EVOLUTION = "no_evolution"  # the policy stays as the warm-up left it
    SAVE_NONE = "save_none"
    RANDOM_TRIGGER = "random_trigger"


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardSettings:
    """What is paid for what.

    `save_cost` is 0 in the paper: saving then never pays less than 0 and discarding never more, so that saving everything is optimal. Above 0 it is a
    deviation that makes precision worth something.
    """

    truth_weight: float = 0.5  # lambda
    miss_weight: float = 0.5  # alpha
    high_from: float = 0.5  # a discarded turn is a miss where the judge's proxy is at least this
    save_cost: float = 0.0
    pays_truth: bool = True

    def __post_init__(self) -> None:
        for name in ("truth_weight", "miss_weight", "save_cost"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ConfigError.of(f"icml.{name}", "is not a finite number of at least 0", got=getattr(self, name))
        if not 0 <= self.high_from <= 1:
            raise ConfigError.of("icml.high_from", "is not in [0, 1]", got=self.high_from)


@dataclass(frozen=True, kw_only=True, slots=True)
class PPOSettings:
    """How both agents learn from a session."""

    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy_weight: float = 0.01
    value_weight: float = 1.0
    actor_lr: float = 1e-6
    critic_lr: float = 1e-5
    epochs: int = 1  # passes over a session at its end
    max_grad_norm: float = 1.0

    def __post_init__(self) -> None:
        for name in ("gamma", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError.of(f"icml.{name}", "is not in [0, 1]", got=getattr(self, name))
        for name in ("clip", "actor_lr", "critic_lr", "max_grad_norm", "epochs"):
            if not getattr(self, name) > 0:
                raise ConfigError.of(f"icml.{name}", "is not above 0", got=getattr(self, name))
        for name in ("entropy_weight", "value_weight"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise ConfigError.of(f"icml.{name}", "is not a finite number of at least 0", got=getattr(self, name))
