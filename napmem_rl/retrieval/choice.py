"""Choosing M of K candidates by their scores: the best M, or M drawn without replacement, with the log-probability of the draw and its gradient.

RMM (arXiv 2503.08026), retrospective reflection. Two forms of the draw:

- `plackett_luce` (ours by default): s~_i = s_i / tau + g_i with standard Gumbel noise g_i, the M highest in order. That is drawing one after the other from
  softmax(s / tau) over what is left, and has the exact log-probability  log P = sum_j [ s_(c_j) / tau - log sum_(i not yet drawn) exp(s_i / tau) ].
- `printed`: s~_i = s_i + g_i, p = softmax(s~ / tau), the M highest of p, log P = sum_j log p_(c_j). tau cannot change which are chosen there, unit noise on
  cosine scores is nearly uniform, and log P is not the probability of the draw.

Scores and probabilities are float64: K is small. Indices are into the candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np


class Sampling(StrEnum):
    """The form of the draw, see above."""

    PLACKETT_LUCE = "plackett_luce"
    PRINTED = "printed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What was chosen, best or first drawn first. `noise` [K] is kept for the printed form alone, whose gradient needs it.

    Example: Choice(chosen=np.array([3, 0]), log_prob=-1.1)
    """

    chosen: np.ndarray  # [M] int64, each index once
    log_prob: float | None  # None where nothing was drawn
    noise: np.ndarray | None = None  # [K]


def rank_top(scores: np.ndarray, num_chosen: int) -> np.ndarray:
    """Indices of the highest scores, [min(M, K)], highest first; equal scores stay in the order in which they came."""
    return np.argsort(-np.asarray(scores, dtype=np.float64), kind="stable")[: max(num_chosen, 0)]


def draw_choice(scores: np.ndarray, num_chosen: int, *, tau: float, rng: np.random.Generator, sampling: Sampling = Sampling.PLACKETT_LUCE) -> Choice:
    """M candidates by chance.

    Args:
        scores: [K] finite.
        num_chosen: M; where K is less, all K are drawn, in an order of chance.
        tau: temperature, above 0.
        rng: where the noise comes from; K numbers are taken.
        sampling: the form of the draw.
    """
    scores = np.asarray(scores, dtype=np.float64)
    noise = rng.gumbel(size=len(scores))
    if sampling is Sampling.PRINTED:
        chosen = rank_top(scores + noise, num_chosen)
        return Choice(chosen=chosen, log_prob=compute_log_prob(scores, chosen, tau=tau, noise=noise), noise=noise)
    chosen = rank_top(scores / tau + noise, num_chosen)
    return Choice(chosen=chosen, log_prob=compute_log_prob(scores, chosen, tau=tau))


def compute_log_prob(scores: np.ndarray, chosen: np.ndarray, *, tau: float, noise: np.ndarray | None = None) -> float:
    """log P of a draw in this order, natural log; with `noise` that of the printed form.

    Example: scores (log 2, 0, 0) at tau 1: drawing the first, then the second, has probability 2/4 * 1/2, so log P = log(1/4).
    """
    logits = _compute_logits(scores, tau, noise)
    log_steps = [logits[index] - _log_sum_exp(logits[is_left]) for index, is_left in zip(chosen, _find_left(logits, chosen, noise), strict=True)]
    return float(np.sum(log_steps))


def compute_score_gradient(scores: np.ndarray, chosen: np.ndarray, weights: np.ndarray, *, tau: float, noise: np.ndarray | None = None) -> np.ndarray:
    """Gradient by the scores of  sum_j w_j log p(c_j | drawn before), in closed form: (1 / tau) sum_j w_j (e_(c_j) - p_j).

    Args:
        scores: [K].
        chosen: [M], in the order of the draw.
        weights: [M], of each chosen one: reward minus baseline. All 1 gives the gradient of log P.
        tau: temperature of the draw.
        noise: [K] of the printed form, else None.

    Returns:
        [K] float64; sums to 0.
    """
    logits = _compute_logits(scores, tau, noise)
    gradient = np.zeros(len(logits))
    for index, weight, is_left in zip(chosen, weights, _find_left(logits, chosen, noise), strict=True):
        shares = np.exp(logits[is_left] - logits[is_left].max())
        gradient[is_left] -= weight * shares / shares.sum()
        gradient[index] += weight
    return gradient / tau


def draw_many(scores: np.ndarray, num_chosen: int, *, tau: float, rng: np.random.Generator) -> np.ndarray:
    """`draw_choice` for many queries with K candidates each, by Plackett-Luce: [B, K] -> [B, M]."""
    noise = rng.gumbel(size=scores.shape)
    return np.argsort(-(scores / tau + noise), axis=1, kind="stable")[:, :num_chosen]


def compute_score_gradients(scores: np.ndarray, chosen: np.ndarray, weights: np.ndarray, *, tau: float) -> np.ndarray:
    """`compute_score_gradient` for many queries: scores [B, K], chosen and weights [B, M] -> [B, K]."""
    logits, rows = np.asarray(scores, dtype=np.float64) / tau, np.arange(len(scores))
    is_left = np.ones(logits.shape, dtype=bool)
    gradients = np.zeros_like(logits)
    for step in range(chosen.shape[1]):
        left = np.where(is_left, logits, -np.inf)
        shares = np.exp(left - left.max(axis=1, keepdims=True))
        gradients -= weights[:, step : step + 1] * shares / shares.sum(axis=1, keepdims=True)
        gradients[rows, chosen[:, step]] += weights[:, step]
        is_left[rows, chosen[:, step]] = False
    return gradients / tau


def _compute_logits(scores: np.ndarray, tau: float, noise: np.ndarray | None) -> np.ndarray:
    scores = np.asarray(scores, dtype=np.float64)
    return scores / tau if noise is None else (scores + noise) / tau


def _find_left(logits: np.ndarray, chosen: np.ndarray, noise: np.ndarray | None) -> np.ndarray:
    """[M, K] bool: what step j normalises over. Without noise that is what was not drawn before it, in the printed form all."""
    is_left = np.ones((len(chosen), len(logits)), dtype=bool)
    if noise is None:
        for step, index in enumerate(chosen[:-1], start=1):
            is_left[step:, index] = False
    return is_left


def _log_sum_exp(values: np.ndarray) -> float:
    highest = values.max()
    return float(highest + np.log(np.exp(values - highest).sum()))
