import asyncio
import statistics
import time

import pytest

pytest.importorskip("verl")

from napmem_rl.backend.slow_engine import SlowTurns, compute_delay


def test_delays_are_those_of_the_seed_with_the_median_asked_for_and_a_long_tail():
    delays = [compute_delay(seed, token_s=0.01, sigma=1.5) for seed in range(2000)]
    assert delays == [compute_delay(seed, token_s=0.01, sigma=1.5) for seed in range(2000)]
    assert statistics.median(delays) == pytest.approx(0.01, rel=0.15)
    assert max(delays) == pytest.approx(0.01 * 32.8, rel=0.01) and delays.count(max(delays)) == pytest.approx(20, abs=12), "1% are as slow as can be"


def test_a_turn_takes_its_tokens_times_its_delay():
    async def play():
        started = time.monotonic()
        return await SlowTurns(token_s=0.01, sigma=0.0).release([1], 0, [5] * 10), time.monotonic() - started

    count, seconds = asyncio.run(play())
    assert count == 10 and 0.1 <= seconds < 0.5


def test_time_spent_on_a_token_counts_when_the_turn_goes_on():
    async def play():
        turns = SlowTurns(token_s=0.3, sigma=0.0)
        first = asyncio.create_task(turns.release([1], 0, [5]))
        await asyncio.sleep(0.2)
        turns.cut()
        started = time.monotonic()
        return await first, await turns.release([1], 7, [6]), time.monotonic() - started

    count, rest, seconds = asyncio.run(play())
    assert (count, rest) == (0, 1) and seconds < 0.2


def test_a_turn_that_is_cut_gives_the_tokens_it_had_and_goes_on_as_slow_as_it_was():
    async def play():
        turns = SlowTurns(token_s=0.05, sigma=1.0)
        seed = next(seed for seed in range(100) if compute_delay(seed, token_s=0.05, sigma=1.0) > 0.1)
        first = asyncio.create_task(turns.release([1], seed, [5] * 20))
        await asyncio.sleep(0.45)
        turns.cut()
        count = await first
        started = time.monotonic()
        rest = await turns.release([1, *[5] * count], seed + 1, [6])
        return count, rest, time.monotonic() - started

    count, rest, seconds = asyncio.run(play())
    assert 0 < count <= 4 and rest == 1 and seconds > 0.01
