"""Hand-worked numbers of PPO: advantages, the clipped surrogate, the critic, entropy."""

from __future__ import annotations

import math

import pytest
import torch

from napmem_rl.algos.ppo import compute_actor_terms, compute_entropy, compute_gae, compute_stretches, compute_value_loss


def test_advantages_of_three_turns_are_those_worked_by_hand() -> None:
    found = compute_gae([1, 0, 2], [0.5, 0.5, 0.5], gamma=0.5, gae_lambda=0.5)
    assert found.advantages.tolist() == [0.78125, 0.125, 1.5]
    assert found.returns.tolist() == [1.28125, 0.625, 2.0]


def test_a_session_that_was_cut_takes_the_critics_value_for_what_would_have_come() -> None:
    ended = compute_gae([1.0], [0.25], gamma=0.5, gae_lambda=0.9)
    cut = compute_gae([1.0], [0.25], gamma=0.5, gae_lambda=0.9, next_value=0.5)
    assert ended.advantages.item() == 0.75 and cut.advantages.item() == 1.0


def test_with_lambda_one_advantages_are_discounted_returns_minus_values() -> None:
    rewards, values, gamma = [0.3, 0.9, 0.1, 0.7], [0.2, 0.4, 0.6, 0.8], 0.99
    returns = [sum(gamma**j * reward for j, reward in enumerate(rewards[k:])) for k in range(4)]
    found = compute_gae(rewards, values, gamma=gamma, gae_lambda=1.0)
    assert torch.allclose(found.returns, torch.tensor(returns, dtype=torch.float64))


def test_lambda_zero_looks_one_turn_ahead() -> None:
    assert compute_gae([1, 1], [0.5, 0.25], gamma=1.0, gae_lambda=0.0).advantages.tolist() == [0.75, 0.75]


def test_a_turn_whose_judge_gave_no_score_cuts_the_session_and_is_in_no_stretch() -> None:
    (first, before), (second, after) = compute_stretches([1.0, None, 0.5, 1.0], [0.5, 0.8, 0.0, 0.0], gamma=0.5, gae_lambda=1.0)
    assert (first, second) == (0, 2)
    assert before.advantages.tolist() == pytest.approx([1.0 + 0.5 * 0.8 - 0.5])
    assert after.advantages.tolist() == [1.0, 1.0]


def test_a_session_without_any_score_has_nothing_to_learn_from() -> None:
    assert compute_stretches([None, None], [0.1, 0.2], gamma=0.9, gae_lambda=0.9) == []
    assert compute_stretches([], [], gamma=0.9, gae_lambda=0.9) == []


@pytest.mark.parametrize(("advantage", "loss", "has_gradient"), [(2.0, -2.4, False), (-2.0, 3.0, True)])
def test_a_ratio_above_the_clip_has_a_gradient_only_where_it_does_harm(advantage: float, loss: float, has_gradient: bool) -> None:
    log_prob = torch.tensor([math.log(1.5)], requires_grad=True)
    terms = compute_actor_terms(log_prob, torch.zeros(1), torch.tensor([advantage]), clip=0.2)
    terms.losses.sum().backward()
    assert terms.losses.item() == pytest.approx(loss) and terms.ratios.item() == pytest.approx(1.5)
    assert terms.is_clipped.item() == (not has_gradient) and (log_prob.grad.item() != 0) == has_gradient


@pytest.mark.parametrize(("advantage", "loss"), [(2.0, -1.0), (-2.0, 1.6)])
def test_a_ratio_below_the_clip_is_worked_by_hand_too(advantage: float, loss: float) -> None:
    terms = compute_actor_terms(torch.tensor([math.log(0.5)]), torch.zeros(1), torch.tensor([advantage]), clip=0.2)
    assert terms.losses.item() == pytest.approx(loss)


def test_at_the_first_update_the_gradient_is_that_of_the_policy_gradient() -> None:
    log_prob, advantages = torch.tensor([-1.0, -2.0], requires_grad=True), torch.tensor([0.5, -3.0])
    compute_actor_terms(log_prob, log_prob.detach(), advantages, clip=0.2).losses.sum().backward()
    assert torch.equal(log_prob.grad, -advantages)


def test_an_advantage_of_zero_has_no_gradient() -> None:
    log_prob = torch.tensor([-1.0, 0.3], requires_grad=True)
    compute_actor_terms(log_prob, torch.zeros(2), torch.zeros(2), clip=0.2).losses.sum().backward()
    assert log_prob.grad.tolist() == [0.0, 0.0]


def test_the_critic_learns_the_mean_square() -> None:
    values = torch.tensor([1.0, 3.0], requires_grad=True)
    loss = compute_value_loss(values, torch.tensor([0.0, 1.0]))
    loss.backward()
    assert loss.item() == 2.5 and values.grad.tolist() == [1.0, 2.0]
    assert compute_value_loss(torch.zeros(0), torch.zeros(0)).item() == 0


def test_entropy_counts_only_choices_that_exist_and_its_gradient_is_finite() -> None:
    logits = torch.zeros(2, 4, requires_grad=True)
    mask = torch.tensor([[True, True, True, True], [True, True, False, False]])
    found = compute_entropy(logits, mask)
    found.sum().backward()
    assert found.tolist() == pytest.approx([math.log(4), math.log(2)])
    assert torch.isfinite(logits.grad).all() and logits.grad[1, 2:].tolist() == [0.0, 0.0]


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="2 rewards and 1 values"):
        compute_gae([1, 2], [1], gamma=1, gae_lambda=1)
    with pytest.raises(ValueError, match="three times"):
        compute_actor_terms(torch.zeros(2), torch.zeros(3), torch.zeros(2), clip=0.2)
