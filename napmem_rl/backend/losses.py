"""Losses of ours among verl's: `actor.policy_loss.loss_mode: tmpo`."""

from __future__ import annotations

from typing import Any

import torch
from verl.trainer.ppo.core_algos import register_policy_loss

from napmem_rl.algos.policy_loss import compute_sequence_terms
from napmem_rl.errors import ConfigError

AGGREGATION = "seq-mean-token-mean"


@register_policy_loss("tmpo")
def compute_policy_loss_tmpo(
    old_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    loss_agg_mode: str = AGGREGATION,
    config: Any = None,
    rollout_is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """TMPO's policy loss in the form that verl calls (all tensors [B, L]): the sum over this microbatch's sequences, over those of the whole minibatch.

    verl puts `global_batch_size` (sequences of the minibatch over all ranks) and `dp_size` into `config.global_batch_info`; gradients of ranks are averaged,
    hence the factor `dp_size`. Weights of rollout correction, one a token, count by their mean over a sequence.

    Raises:
        ConfigError: another aggregation than that of equation 14.
    """
    if loss_agg_mode != AGGREGATION:
        raise ConfigError.of("actor.loss_agg_mode", "does not fit loss_mode tmpo, which is a mean over sequences", got=loss_agg_mode, expected=AGGREGATION)
    low = config.clip_ratio_low if config.clip_ratio_low is not None else config.clip_ratio
    high = config.clip_ratio_high if config.clip_ratio_high is not None else config.clip_ratio
    terms = compute_sequence_terms(log_prob, old_log_prob, advantages, response_mask, clip_low=low, clip_high=high)
    losses = terms.losses
    if rollout_is_weights is not None:
        losses = losses * (rollout_is_weights * response_mask).sum(dim=-1) / response_mask.sum(dim=-1).clamp(min=1)
    info = config.global_batch_info
    num_sequences = info.get("global_batch_size") or terms.has_tokens.sum()
    loss = (losses * terms.has_tokens).sum() / num_sequences * info.get("dp_size", 1)
    gap = ((old_log_prob - log_prob) * response_mask).sum() / response_mask.sum().clamp(min=1)
    clipped = (terms.is_clipped & terms.has_tokens).sum() / terms.has_tokens.sum().clamp(min=1)
    metrics = {"actor/pg_clipfrac": clipped.item(), "actor/ppo_kl": gap.detach().item(), "actor/pg_clipfrac_lower": 0.0}
    return loss, metrics | {"actor/ratio_max": terms.ratios.detach().max().item()}
