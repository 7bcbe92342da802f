"""Settings of the reward."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from napmem_rl.errors import ConfigError


class InvalidActions(StrEnum):
    """What an invalid action costs. The paper has it both ways: a soft gate (equation 15), and "zero structural reward" (appendix B.1)."""

    SOFT = "soft"  # the signals that it breaks are 0: v for its form, i for its ids
    ZERO = "zero"  # the whole gate is 0


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardSettings:
    """How a packet is rewarded."""

    num_answers: int = 4  # K generations of the answer model, for c and s; the paper does not give the number
    invalid_actions: InvalidActions = InvalidActions.SOFT

    def __post_init__(self) -> None:
        if self.num_answers < 1:
            raise ConfigError.of("reward.num_answers", "is too small", got=self.num_answers, expected="at least 1")
