"""Drawing a token from logits, by hand-worked numbers and by frequencies."""

import math
import random

import pytest
import torch

from napmem_rl.backend.sampling import SamplingParams, sample_tokens
from napmem_rl.errors import BackendError

PROBS = [0.1, 0.5, 0.4]  # cumulative 0.1, 0.6, 1.0; by size: token 1, token 2, token 0
LOGITS = torch.tensor([PROBS]).log()


class Fixed(random.Random):
    """Gives one number for ever."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self._value = value

    def random(self) -> float:
        return self._value


@pytest.mark.parametrize(("uniform", "token"), [(0.0, 0), (0.09, 0), (0.11, 1), (0.59, 1), (0.61, 2), (0.999999, 2)])
def test_the_token_is_where_the_cumulative_probability_passes_the_uniform_number(uniform: float, token: int) -> None:
    tokens, logprobs = sample_tokens(LOGITS, [SamplingParams()], [Fixed(uniform)])
    assert tokens == [token]
    assert logprobs == pytest.approx([math.log(PROBS[token])], abs=1e-6)


@pytest.mark.parametrize(("uniform", "token"), [(0.0, 1), (0.55, 1), (0.56, 2), (0.999999, 2)])
def test_top_p_keeps_the_likeliest_tokens_and_their_full_log_probs(uniform: float, token: int) -> None:
    tokens, logprobs = sample_tokens(LOGITS, [SamplingParams(top_p=0.6)], [Fixed(uniform)])  # 0.5 < 0.6: token 2 comes in; 5/9 of the mass is token 1's
    assert tokens == [token]
    assert logprobs == pytest.approx([math.log(PROBS[token])], abs=1e-6)


def test_temperature_scales_the_log_prob_and_greedy_reports_it_at_one() -> None:
    params = [SamplingParams(temperature=0.5), SamplingParams(temperature=0.0)]
    tokens, logprobs = sample_tokens(LOGITS.repeat(2, 1), params, [Fixed(0.5), Fixed(0.5)])
    assert tokens == [1, 1]
    assert logprobs == pytest.approx([math.log(0.25 / (0.01 + 0.25 + 0.16)), math.log(0.5)], abs=1e-6)  # squares of the probabilities at temperature 0.5


def test_frequencies_follow_the_probabilities() -> None:
    num = 4000
    tokens, _ = sample_tokens(LOGITS.repeat(num, 1), [SamplingParams()] * num, [random.Random(seed) for seed in range(num)])
    frequencies = torch.bincount(torch.tensor(tokens), minlength=3) / num
    assert (frequencies - torch.tensor(PROBS)).abs().max() < 4 * 0.5 / math.sqrt(num)


def test_logits_that_are_not_finite_are_an_error() -> None:
    with pytest.raises(BackendError, match="not finite"):
        sample_tokens(torch.tensor([[0.0, float("nan")]]), [SamplingParams()], [Fixed(0.5)])
