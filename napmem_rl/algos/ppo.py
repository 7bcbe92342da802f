"""Proximal policy optimisation over the turns of one session (Schulman et al., arXiv 1707.06347; generalised advantages: arXiv 1506.02438).

As ICML uses it (arXiv 2609.17088, section 3.3.5): two agents with a policy head and a value head each. What one reads here is of one agent; the losses of both
are added. The paper sums over a session's turns; here is the mean, so that long sessions do not take longer steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch


class Advantages(NamedTuple):
    """Of T turns, both [T] float64."""

    advantages: torch.Tensor
    returns: torch.Tensor  # advantages + values: what the critic learns


class ActorTerms(NamedTuple):
    """Of N decisions, all [N]."""

    losses: torch.Tensor  # -min(rho A, clip(rho) A)
    ratios: torch.Tensor  # rho
    is_clipped: torch.Tensor  # the clipped term is the smaller one: no gradient


def compute_gae(rewards: Sequence[float], values: Sequence[float], *, gamma: float, gae_lambda: float, next_value: float = 0.0) -> Advantages:
    """Generalised advantage estimation over one stretch of turns.

    ::

        delta_k = r_k + gamma V_{k+1} - V_k          A_k = delta_k + gamma lambda A_{k+1}

    Args:
        rewards, values: of T turns, T >= 1, in order.
        gamma, gae_lambda: in [0, 1].
        next_value: V after the last turn: 0 where the session ended there, the critic's value where it was cut.

    Raises:
        ValueError: lengths differ, or nothing is there.

    Example: rewards (1, 0, 2), values (0.5, 0.5, 0.5), gamma 0.5 and lambda 0.5: deltas 0.75, -0.25, 1.5; advantages 0.78125, 0.125, 1.5.
    """
    if len(rewards) != len(values) or not rewards:
        raise ValueError(f"compute_gae: got {len(rewards)} rewards and {len(values)} values, expected as many of both, at least one")
    advantages, later, following = [0.0] * len(rewards), 0.0, next_value
    for place in reversed(range(len(rewards))):
        delta = rewards[place] + gamma * following - values[place]
        later = delta + gamma * gae_lambda * later
        advantages[place], following = later, values[place]
    found = torch.tensor(advantages, dtype=torch.float64)
    return Advantages(found, found + torch.tensor(list(values), dtype=torch.float64))


def compute_stretches(
    rewards: Sequence[float | None], values: Sequence[float], *, gamma: float, gae_lambda: float, next_value: float = 0.0
) -> list[tuple[int, Advantages]]:
    """`compute_gae` over a session some of whose turns have no reward, because their judge gave none.

    Such a turn ends a stretch as a cut does, with its own value after it, and is itself in none: it is not trained on, and nothing takes it for a 0.

    Args:
        rewards: of T turns; None for one without a reward.
        values, gamma, gae_lambda, next_value: see `compute_gae`.

    Returns:
        (the place of its first turn, its advantages) of each stretch, in order.
    """
    stretches, begin = [], 0
    for place in range(len(rewards) + 1):
        if place < len(rewards) and rewards[place] is not None:
            continue
        if place > begin:
            after = values[place] if place < len(rewards) else next_value
            paid = [reward for reward in rewards[begin:place] if reward is not None]
            stretches.append((begin, compute_gae(paid, values[begin:place], gamma=gamma, gae_lambda=gae_lambda, next_value=after)))
        begin = place + 1
    return stretches


def compute_actor_terms(log_prob: torch.Tensor, old_log_prob: torch.Tensor, advantages: torch.Tensor, *, clip: float) -> ActorTerms:
    """The clipped surrogate, decision by decision: ``-min(rho A, clip(rho, 1 - clip, 1 + clip) A)`` with ``rho = exp(log pi - log pi_old)``.

    Args:
        log_prob, old_log_prob, advantages: [N]; old log-probs and advantages carry no gradient.
        clip: epsilon.

    Raises:
        ValueError: shapes differ.

    Example: a log-prob difference of ln 1.5 with clip 0.2 gives, for A = 2, the loss -2.4 without a gradient; for A = -2 the loss 3, with one.
    """
    if not log_prob.shape == old_log_prob.shape == advantages.shape or log_prob.ndim != 1:
        shapes = [tuple(tensor.shape) for tensor in (log_prob, old_log_prob, advantages)]
        raise ValueError(f"compute_actor_terms: got shapes {shapes}, expected three times [N]")
    ratios = (log_prob - old_log_prob.detach()).exp()
    advantages = advantages.detach()
    plain, clipped = ratios * advantages, ratios.clamp(1 - clip, 1 + clip) * advantages
    return ActorTerms(losses=-torch.minimum(plain, clipped), ratios=ratios, is_clipped=clipped < plain)


def compute_value_loss(values: torch.Tensor, returns: torch.Tensor) -> torch.Tensor:
    """The critic's loss, a scalar: the mean of ``(V - R)^2`` over [N] turns; 0 for none."""
    if values.shape != returns.shape or values.ndim != 1:
        raise ValueError(f"compute_value_loss: got shapes {tuple(values.shape)} and {tuple(returns.shape)}, expected twice [N]")
    return (values - returns.detach()).square().mean() if len(values) else values.sum()


def compute_entropy(logits: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """[N] entropies in nats of categoricals with logits [N, C]; `mask` [N, C] is true where a choice exists."""
    if mask is None:
        mask = torch.ones_like(logits, dtype=torch.bool)
    logits = logits.masked_fill(~mask, float("-inf"))
    log_probs = logits.log_softmax(dim=-1).masked_fill(~mask, 0.0)  # 0 times minus infinity has no gradient
    return -(logits.softmax(dim=-1) * log_probs).sum(dim=-1)
