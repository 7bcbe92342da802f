"""Requests and tokens a minute on a clock of the test's own; budgets that hold."""

from __future__ import annotations

import asyncio

import pytest

from napmem_rl.errors import BudgetError, ConfigError
from napmem_rl.llm.limits import Budget, Prices, RateBucket, RequestLimits, Spending, guess_prompt_tokens


class Clock:
    """Time passes where somebody sleeps, and only there."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def take_all(per_minute: float, amounts: list[float], corrections: dict[int, float] | None = None) -> list[float]:
    """Seconds after the start at which each amount was taken."""
    clock = Clock()

    async def run() -> list[float]:
        bucket = RateBucket(per_minute, clock=clock, sleep=clock.sleep)
        times = []
        for position, amount in enumerate(amounts):
            await bucket.take(amount)
            times.append(round(clock.now - 100.0, 6))
            bucket.correct((corrections or {}).get(position, 0.0))
        return times

    return asyncio.run(run())


def test_five_seconds_worth_pass_at_once_and_the_rest_at_the_rate() -> None:
    assert take_all(60, [1] * 8) == [0, 0, 0, 0, 0, 1, 2, 3]
    assert take_all(1, [1, 1, 1]) == [0, 60, 120]


def test_an_amount_larger_than_the_bucket_passes_when_it_is_full_and_is_earned_back() -> None:
    assert take_all(60, [20, 1]) == [0, 16]  # 5 there, 15 owed: 16 s until one is there again


def test_a_guess_that_was_too_high_is_given_back_and_one_too_low_is_owed() -> None:
    assert take_all(60, [5, 5], {0: -5}) == [0, 0]
    assert take_all(60, [1, 1], {0: 6}) == [0, 3]  # 5 - 1 - 6 = -2, one more to take


def test_who_waits_first_is_served_first() -> None:
    clock = Clock()
    order: list[int] = []

    async def take(bucket: RateBucket, number: int) -> None:
        await bucket.take(1)
        order.append(number)

    async def run() -> None:
        bucket = RateBucket(1, clock=clock, sleep=clock.sleep)
        await asyncio.gather(*(take(bucket, number) for number in range(4)))

    asyncio.run(run())
    assert order == [0, 1, 2, 3] and clock.now == 100.0 + 180


def test_limits_that_let_nothing_through_are_refused() -> None:
    with pytest.raises(ConfigError, match="requests_per_minute: is too small; got 0"):
        RequestLimits(requests_per_minute=0)
    with pytest.raises(ConfigError, match="tokens_per_minute"):
        RequestLimits(tokens_per_minute=0.5)


def test_a_guess_counts_messages_tools_and_schema_and_nothing_else() -> None:
    message = {"role": "user", "content": "x" * 3000}
    plain = guess_prompt_tokens({"messages": [message]})
    assert 1000 <= plain <= 1050
    assert guess_prompt_tokens({"messages": [message], "max_tokens": 5, "model": "m" * 300}) == plain
    assert guess_prompt_tokens({"messages": [message], "response_format": {"schema": "y" * 300}}) > plain + 100
    assert guess_prompt_tokens({"messages": [{"content": "\ud83d"}]}) > 16  # half a surrogate pair is no error here


def spend(budget: Budget, most: tuple[int, int], used: tuple[int, int]) -> None:
    async def run() -> None:
        spending = Spending(*most)
        async with budget.reserve(spending):
            spending.prompt_tokens, spending.completion_tokens = used

    asyncio.run(run())


def test_money_is_counted_at_the_price_of_each_side() -> None:
    assert Prices(prompt=2.0, completion=8.0).cost(1000, 100) == pytest.approx(0.0028)
    budget = Budget(prices=Prices(prompt=2.0, completion=8.0), max_cost=0.01)
    spend(budget, (1000, 500), (1000, 100))
    assert (budget.cost, budget.num_tokens) == (pytest.approx(0.0028), 1100)


def test_a_request_that_may_not_fit_is_refused_with_what_is_spent_and_what_it_may_cost() -> None:
    budget = Budget(prices=Prices(prompt=1.0), max_cost=0.01)
    spend(budget, (8000, 0), (8000, 0))
    with pytest.raises(BudgetError, match=r"0\.0080 of 0\.01 are spent, and the next request may cost up to 0\.0030.*Start again with a larger one"):
        spend(budget, (3000, 0), (1, 0))
    spend(budget, (2000, 0), (2000, 0))  # to the last cent
    tokens = Budget(max_tokens=100)
    spend(tokens, (50, 50), (10, 10))
    with pytest.raises(BudgetError, match=r"20 of 100 tokens are used, and the next request may use up to 90"):
        spend(tokens, (50, 40), (1, 1))


def test_a_request_waits_for_those_in_flight_before_it_is_refused() -> None:
    async def run() -> tuple[list[str], int]:
        budget, log = Budget(max_tokens=100), []

        async def use(name: str, used: int) -> None:
            spending = Spending(60, 0)
            async with budget.reserve(spending):
                log.append(name)
                await asyncio.sleep(0)
                spending.prompt_tokens = used

        await asyncio.gather(use("first", 30), use("second", 60))  # 60 + 60 do not fit, 30 + 60 do
        return log, budget.num_tokens

    assert asyncio.run(run()) == (["first", "second"], 90)


def test_a_request_that_failed_has_spent_nothing_and_lets_the_next_one_go() -> None:
    budget = Budget(max_tokens=100)

    async def fail() -> None:
        async with budget.reserve(Spending(90, 0)):
            raise RuntimeError("no reply")

    with pytest.raises(RuntimeError, match="no reply"):
        asyncio.run(fail())
    assert budget.num_tokens == 0
    spend(budget, (100, 0), (100, 0))


def test_a_budget_that_cannot_work_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_cost: would never be reached: no price is given"):
        Budget(max_cost=1.0)
    with pytest.raises(ConfigError, match="max_cost: is not positive"):
        Budget(prices=Prices(prompt=1), max_cost=0)
    with pytest.raises(ConfigError, match="a price is negative"):
        Budget(prices=Prices(prompt=-1))
