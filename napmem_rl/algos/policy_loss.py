"""The policy term of TMPO (arXiv 2607.24097, equation 14): one importance ratio for a whole packet, clipped as a whole.

verl's `gspo` has the same value and gradient, but for two things: it caps the ratio at e^10, so that a sequence beyond has no gradient, and it adds 1e-8 to
the number of tokens. Equation 14 has neither, hence this loss (registered with verl as `tmpo`, `backend/losses.py`).
"""

from __future__ import annotations

from typing import NamedTuple

import torch


class SequenceTerms(NamedTuple):
    """Of each sequence, all [B]; sequences without a valid token have loss 0 and ratio 1."""

    losses: torch.Tensor  # -min(rho A, clip(rho) A)
    ratios: torch.Tensor  # rho
    is_clipped: torch.Tensor  # whether the clipped term is the smaller one
    has_tokens: torch.Tensor


def compute_sequence_terms(
    log_prob: torch.Tensor, old_log_prob: torch.Tensor, advantages: torch.Tensor, mask: torch.Tensor, *, clip_low: float, clip_high: float
) -> SequenceTerms:
    """Equation 14 without its KL and entropy terms, sequence by sequence.

    ::

        rho = exp( 1/|o| sum_t (log pi(o_t) - log pi_old(o_t)) )          over the valid tokens
        loss = -min( rho A, clip(rho, 1 - clip_low, 1 + clip_high) A )

    Args:
        log_prob, old_log_prob: [B, L], natural logarithms, of the current policy and of the one that sampled.
        advantages: [B, L]; one value on all valid tokens of a sequence, as group-relative advantages are (their mean is taken).
        mask: [B, L], true or 1 where the policy sampled.

    Example: log-prob differences 0.1 and 0.3 give rho = e^0.2 = 1.2214; with A = 2 and a clip of 0.1 the loss is -2.2, and has no gradient.
    """
    if not log_prob.shape == old_log_prob.shape == advantages.shape == mask.shape or log_prob.ndim != 2:
        shapes = [tuple(tensor.shape) for tensor in (log_prob, old_log_prob, advantages, mask)]
        raise ValueError(f"compute_sequence_terms: got shapes {shapes}, expected four times [B, L]")
    valid = mask.bool()
    lengths = valid.sum(dim=-1).clamp(min=1)
    log_ratios = torch.where(valid, log_prob - old_log_prob, 0.0).sum(dim=-1) / lengths
    advantage = torch.where(valid, advantages, 0.0).sum(dim=-1) / lengths
    ratios = log_ratios.exp()
    plain, clipped = ratios * advantage, ratios.clamp(1 - clip_low, 1 + clip_high) * advantage
    return SequenceTerms(losses=-torch.minimum(plain, clipped), ratios=ratios, is_clipped=clipped < plain, has_tokens=valid.any(dim=-1))
