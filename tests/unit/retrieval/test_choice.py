"""Drawing M of K: probabilities worked by hand, gradients against differences, frequencies against probabilities."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from napmem_rl.retrieval.choice import Sampling, compute_log_prob, compute_score_gradient, draw_choice, rank_top

LOG2 = math.log(2)


def test_two_of_three_have_the_probability_worked_by_hand() -> None:
    """Weights 2, 1, 1: first 2/4, then 1/2 of what is left. At tau 0.5 the weights are 4, 1, 1: 4/6 * 1/2. The other order: 1/4 * 2/3."""
    scores = np.array([LOG2, 0.0, 0.0])
    assert compute_log_prob(scores, np.array([0, 1]), tau=1.0) == pytest.approx(math.log(1 / 4))
    assert compute_log_prob(scores, np.array([0, 1]), tau=0.5) == pytest.approx(math.log(1 / 3))
    assert compute_log_prob(scores, np.array([1, 0]), tau=1.0) == pytest.approx(math.log(1 / 6))


def test_the_gradient_is_the_one_worked_by_hand() -> None:
    """Weights 2, 1, 1, drawn 0 then 1. Step 1: e_0 - (1/2, 1/4, 1/4). Step 2: e_1 - (0, 1/2, 1/2). Rewards less baseline 0.5 and -1.5."""
    scores = np.array([LOG2, 0.0, 0.0])
    chosen = np.array([0, 1])
    np.testing.assert_allclose(compute_score_gradient(scores, chosen, np.ones(2), tau=1.0), [0.5, 0.25, -0.75])
    np.testing.assert_allclose(compute_score_gradient(scores, chosen, np.array([0.5, -1.5]), tau=1.0), [0.25, -0.875, 0.625])


def test_drawing_all_of_them_in_any_order_has_probabilities_that_sum_to_one() -> None:
    scores = np.array([0.3, -0.2, 0.9, 0.0])
    for num in (1, 2, 4):
        total = sum(math.exp(compute_log_prob(scores, np.array(order), tau=0.5)) for order in itertools.permutations(range(4), num))
        assert total == pytest.approx(1.0)


def test_draws_are_as_frequent_as_their_probability_says() -> None:
    scores, tau, num = np.array([0.5, 0.1, -0.2, 0.3]), 0.5, 20_000
    rng = np.random.default_rng(0)
    drawn = Counter(tuple(draw_choice(scores, 2, tau=tau, rng=rng).chosen.tolist()) for _ in range(num))
    for order in itertools.permutations(range(4), 2):
        probability = math.exp(compute_log_prob(scores, np.array(order), tau=tau))
        assert abs(drawn[order] / num - probability) < 4.5 * math.sqrt(probability * (1 - probability) / num), order


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=8), st.integers(1, 8), st.floats(0.1, 2), st.sampled_from(list(Sampling)), st.integers(0, 1000))
def test_the_gradient_is_that_of_the_log_probability(values: list[float], num: int, tau: float, sampling: Sampling, seed: int) -> None:
    """Central differences of sum_j w_j log p_j, one score at a time; the weights are all 1, so that the sum is log P."""
    scores = np.array(values)
    choice = draw_choice(scores, num, tau=tau, rng=np.random.default_rng(seed), sampling=sampling)
    gradient = compute_score_gradient(scores, choice.chosen, np.ones(len(choice.chosen)), tau=tau, noise=choice.noise)
    for index, step in enumerate(np.eye(len(scores)) * 1e-5):
        up, down = (compute_log_prob(scores + sign * step, choice.chosen, tau=tau, noise=choice.noise) for sign in (1, -1))
        assert gradient[index] == pytest.approx((up - down) / 2e-5, abs=1e-4)
    assert gradient.sum() == pytest.approx(0.0, abs=1e-9)


def test_weights_count_for_each_drawn_one_by_itself() -> None:
    """The gradient for weights (w, 0) is w times that of the first draw alone."""
    scores = np.array([0.4, 0.1, -0.3])
    alone = compute_score_gradient(scores, np.array([2]), np.array([-1.5]), tau=0.5)
    np.testing.assert_allclose(compute_score_gradient(scores, np.array([2, 0]), np.array([-1.5, 0.0]), tau=0.5), alone)


def test_the_printed_form_chooses_the_same_at_every_temperature() -> None:
    scores = np.linspace(-1, 1, 20)
    orders = [draw_choice(scores, 5, tau=tau, rng=np.random.default_rng(3), sampling=Sampling.PRINTED).chosen.tolist() for tau in (0.05, 0.5, 50.0)]
    assert orders[0] == orders[1] == orders[2]


def test_a_cold_draw_is_the_ranking() -> None:
    scores = np.array([0.1, 0.9, 0.5, 0.7])
    assert draw_choice(scores, 3, tau=1e-4, rng=np.random.default_rng(0)).chosen.tolist() == [1, 3, 2] == rank_top(scores, 3).tolist()


def test_fewer_than_m_are_all_chosen_and_none_is_none() -> None:
    assert sorted(draw_choice(np.array([0.1, 0.2]), 5, tau=0.5, rng=np.random.default_rng(0)).chosen) == [0, 1]
    empty = draw_choice(np.array([]), 5, tau=0.5, rng=np.random.default_rng(0))
    assert len(empty.chosen) == 0 and empty.log_prob == 0.0
    assert rank_top(np.array([]), 5).tolist() == []


def test_equal_scores_stay_in_the_retrievers_order() -> None:
    assert rank_top(np.array([0.5, 0.7, 0.5, 0.7]), 4).tolist() == [1, 3, 0, 2]
