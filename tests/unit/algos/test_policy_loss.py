"""TMPO's policy term by hand."""

import math

import pytest
import torch

from napmem_rl.algos.policy_loss import compute_sequence_terms


def terms(now, advantages, mask, old=None, low=0.1, high=0.1):
    now = torch.tensor(now)
    return compute_sequence_terms(
        now, torch.zeros_like(now) if old is None else torch.tensor(old), torch.tensor(advantages), torch.tensor(mask), clip_low=low, clip_high=high
    )


def test_the_ratio_is_the_geometric_mean_over_the_valid_tokens_and_the_clip_is_of_the_whole():
    found = terms([[0.1, 0.3, 9.0]], [[2.0, 2.0, 0.0]], [[1, 1, 0]])
    assert found.ratios.item() == pytest.approx(math.exp(0.2))
    assert found.losses.item() == pytest.approx(-2.2) and found.is_clipped.item()


def test_a_sequence_without_a_valid_token_has_no_loss():
    found = terms([[3.0]], [[1.0]], [[0]])
    assert (found.losses.item(), found.ratios.item(), found.has_tokens.item()) == (0.0, 1.0, False)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="expected four times"):
        terms([[0.0]], [[1.0, 1.0]], [[1]])
