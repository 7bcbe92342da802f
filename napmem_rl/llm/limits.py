"""How fast and how far a client may go: requests and tokens a minute, and a budget of tokens and money.

The bucket is our own, twenty lines, because tokens are only known after a reply: it takes back what was guessed too high, and lets a request pass that is
larger than the bucket, which then has to be earned back (aiolimiter, the kept library nearest to it, does neither).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from napmem_rl.errors import BudgetError, ConfigError

BYTES_OF_TOKEN = 3  # of a request's JSON; English has four, so that guesses are rather high
_BURST_S = 5.0  # of the rate that may be used at once


def guess_prompt_tokens(request: Mapping[str, Any]) -> int:
    """Tokens of a request before anybody counted them, rather too many than too few: a third of the bytes of messages, tools and schema."""
    shown = {name: value for name, value in request.items() if name in ("messages", "tools", "response_format")}
    return 16 + len(json.dumps(shown, ensure_ascii=False).encode("utf-8", "replace")) // BYTES_OF_TOKEN


class RateBucket:
    """So many units a minute. Holds five seconds' worth at most, so that no burst follows a pause; who comes first is served first.

    Args:
        per_minute: units; at least 1.
        clock, sleep: seconds that pass and a way to wait for them; for tests.
    """

    def __init__(self, per_minute: float, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep) -> None:
        self._rate = per_minute / 60.0
        self._capacity = max(1.0, self._rate * _BURST_S)
        self._level = self._capacity
        self._clock, self._sleep, self._filled_at = clock, sleep, clock()
        self._turn = asyncio.Lock()

    async def take(self, amount: float) -> None:
        """Wait until the amount is there (or the bucket is full), then take it."""
        async with self._turn:
            while (missing := min(amount, self._capacity) - self._fill()) > 1e-9:
                await self._sleep(missing / self._rate)
            self._level -= amount

    def correct(self, amount: float) -> None:
        """Take more than was asked for, or give back (negative), now that the true amount is known."""
        self._level = min(self._capacity, self._fill() - amount)

    def _fill(self) -> float:
        now = self._clock()
        self._level = min(self._capacity, self._level + (now - self._filled_at) * self._rate)
        self._filled_at = now
        return self._level


class RequestLimits:
    """Requests and tokens a minute of one endpoint; None for one without the limit.

    Raises:
        ConfigError: a limit below 1.
    """

    def __init__(self, *, requests_per_minute: float | None = None, tokens_per_minute: float | None = None) -> None:
        for name, value in (("requests_per_minute", requests_per_minute), ("tokens_per_minute", tokens_per_minute)):
            if value is not None and value < 1:
                raise ConfigError.of(f"chat endpoint, {name}", "is too small", got=value, expected="at least 1, or none")
        self._requests = RateBucket(requests_per_minute) if requests_per_minute is not None else None
        self._tokens = RateBucket(tokens_per_minute) if tokens_per_minute is not None else None

    async def wait(self, num_tokens: int) -> None:
        """Wait for the turn of one request of so many tokens, prompt and longest reply together."""
        if self._requests is not None:
            await self._requests.take(1)
        if self._tokens is not None:
            await self._tokens.take(num_tokens)

    def settle(self, guessed: int, used: int) -> None:
        """Say what a request really used."""
        if self._tokens is not None:
            self._tokens.correct(used - guessed)


@dataclass(frozen=True, kw_only=True, slots=True)
class Prices:
    """Money for a million tokens, in any one currency."""

    prompt: float = 0.0
    completion: float = 0.0

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Money for so many tokens. Example: Prices(prompt=2, completion=8).cost(1000, 100) is 0.0028."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6


@dataclass(slots=True)
class Spending:
    """Tokens of one request: what it may use at most, as far as one can know; then what it did use."""

    prompt_tokens: int
    completion_tokens: int

    @property
    def num_tokens(self) -> int:
        """Both together."""
        return self.prompt_tokens + self.completion_tokens


class Budget:
    """Money and tokens that all users of a client may spend together.

    A request is let through where what is spent, what requests in flight may yet spend and what it may spend itself stay within the budget. Its prompt is
    guessed high (`guess_prompt_tokens`) and its reply taken at its longest (`max_tokens`), so that the budget holds unless a guess was too low, or the
    endpoint bills requests that failed, which nobody can see from here. Belongs to the event loop that first uses it.

    Raises:
        ConfigError: a limit that is not positive, or a limit on money without prices, which would never be reached.
    """

    def __init__(self, *, prices: Prices = Prices(), max_cost: float | None = None, max_tokens: int | None = None) -> None:
        for name, value in (("max_cost", max_cost), ("max_total_tokens", max_tokens)):
            if value is not None and not value > 0:
                raise ConfigError.of(f"budget, {name}", "is not positive", got=value, expected="a number above 0, or none")
        if min(prices.prompt, prices.completion) < 0:
            raise ConfigError.of("budget", "a price is negative", got=(prices.prompt, prices.completion), expected="0 or more")
        if max_cost is not None and not (prices.prompt or prices.completion):
            fix = "Give the prices of a million prompt and completion tokens."
            raise ConfigError.of("budget, max_cost", "would never be reached: no price is given", fix=fix)
        self.prices, self.max_cost, self.max_tokens = prices, max_cost, max_tokens
        self.cost, self.num_tokens = 0.0, 0
        self._waiting_cost, self._waiting_tokens, self._num_waiting = 0.0, 0, 0
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def reserve(self, spending: Spending) -> AsyncIterator[None]:
        """Hold the money and tokens of one request; the block puts into `spending` what was used. A block that raises has spent nothing.

        Raises:
            BudgetError: not enough is left.
        """
        most_cost, most_tokens = self.prices.cost(spending.prompt_tokens, spending.completion_tokens), spending.num_tokens
        async with self._changed:
            while (problem := self._find_excess(most_cost, most_tokens)) is not None:
                if not self._num_waiting:
                    raise BudgetError.of("budget of the language model", problem, fix="Start again with a larger one: what was built is kept, and goes on.")
                await self._changed.wait()
            self._hold(most_cost, most_tokens, 1)
        try:
            yield
            self.cost += self.prices.cost(spending.prompt_tokens, spending.completion_tokens)
            self.num_tokens += spending.num_tokens
        finally:
            self._hold(-most_cost, -most_tokens, -1)
            async with self._changed:
                self._changed.notify_all()

    def _hold(self, cost: float, num_tokens: int, num_requests: int) -> None:
        self._waiting_cost += cost
        self._waiting_tokens += num_tokens
        self._num_waiting += num_requests

    def _find_excess(self, cost: float, num_tokens: int) -> str | None:
        """Why a request may not go out now, or None."""
        if self.max_cost is not None and self.cost + self._waiting_cost + cost > self.max_cost * (1 + 1e-9):
            return f"{self.cost:.4f} of {self.max_cost:g} are spent, and the next request may cost up to {cost:.4f}"
        if self.max_tokens is not None and self.num_tokens + self._waiting_tokens + num_tokens > self.max_tokens:
            return f"{self.num_tokens:,} of {self.max_tokens:,} tokens are used, and the next request may use up to {num_tokens:,}"
        return None
