"""How a token is drawn: one uniform number per request and token, so that a request's tokens depend on its seed and not on what else is in the batch."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from napmem_rl.errors import BackendError, ConfigError


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """What one request asks for. Example: SamplingParams(temperature=1.0, max_tokens=24, stop_token_ids=(2,), seed=7)"""

    temperature: float = 1.0  # 0 is greedy
    top_p: float = 1.0  # share of the probability mass that may be drawn
    max_tokens: int | None = None  # None: as far as the context reaches
    stop_token_ids: tuple[int, ...] = ()  # the turn ends with one of them, which is part of the response
    seed: int | None = None  # None: not reproducible

    def __post_init__(self) -> None:
        for name, value, is_valid, expected in (
            ("temperature", self.temperature, self.temperature >= 0, "0 or more"),
            ("top_p", self.top_p, 0 < self.top_p <= 1, "above 0, at most 1"),
            ("max_tokens", self.max_tokens, self.max_tokens is None or self.max_tokens >= 1, "1 or more"),
        ):
            if not is_valid:
                raise ConfigError.of(f"sampling parameter {name}", "is out of range", got=value, expected=expected)


def sample_tokens(logits: torch.Tensor, params: Sequence[SamplingParams], generators: Sequence[random.Random]) -> tuple[list[int], list[float]]:
    """Draw one token per row by inverse CDF, with its log-prob under the distribution that the learner scores.

    The log-prob is of ``softmax(logits / temperature)`` over the whole vocabulary, before top-p cuts it: what verl's learner computes. Greedy rows take the
    log-prob at temperature 1. Rows are independent; a seeded row repeats as far as the forward itself repeats to rounding.

    Args:
        logits: [N, V] float32.
        params, generators: one for each row; a generator gives one number.

    Returns:
        (tokens [N], natural log-probs [N]).

    Raises:
        BackendError: logits that are not finite, so that nothing can be drawn.
    """
    if not bool(logits.isfinite().all()):
        raise BackendError.of("policy", "gave logits that are not finite", fix="The weights hold NaN or infinity: lower the learning rate or clip gradients.")
    is_greedy = torch.tensor([one.temperature == 0 for one in params])
    temperatures = torch.tensor([one.temperature or 1.0 for one in params])
    logprobs = torch.log_softmax(logits / temperatures[:, None], dim=-1)
    tokens = logits.argmax(dim=-1)
    uniforms = torch.tensor([generator.random() for generator in generators], dtype=torch.float64)
    top_p = torch.tensor([one.top_p for one in params], dtype=torch.float64)
    for rows, draw in (((~is_greedy & (top_p >= 1)), _draw_from_all), ((~is_greedy & (top_p < 1)), _draw_from_nucleus)):
        if bool(rows.any()):
            tokens[rows] = draw(logprobs[rows].double().exp(), uniforms[rows], top_p[rows])
    return tokens.tolist(), logprobs.gather(1, tokens[:, None])[:, 0].tolist()


def _draw_from_all(probs: torch.Tensor, uniforms: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """First token whose cumulative probability exceeds the uniform number. probs [N, V] float64 -> [N]."""
    cumulative = probs.cumsum(dim=-1)
    targets = uniforms[:, None] * cumulative[:, -1:]
    return torch.searchsorted(cumulative, targets, right=True)[:, 0].clamp_(max=probs.shape[1] - 1)


def _draw_from_nucleus(probs: torch.Tensor, uniforms: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """As `_draw_from_all`, from the fewest likeliest tokens whose mass reaches `top_p` [N]."""
    ordered, order = probs.sort(dim=-1, descending=True, stable=True)
    mass_before = ordered.cumsum(dim=-1) - ordered
    kept = ordered.masked_fill(mass_before >= top_p[:, None], 0.0)
    return order.gather(1, _draw_from_all(kept, uniforms, top_p)[:, None])[:, 0]
