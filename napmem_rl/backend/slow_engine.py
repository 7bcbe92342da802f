"""A rollout server that is made slow, for benchmarks and tests alone: what a long-tailed load does to a trainer shows on two idle cores.

Named beside the plugin in ``VERL_USE_EXTERNAL_MODULES`` it takes the place of the transformers rollout server. Tokens are those of the real engine; each
turn then waits as if every token took `NAPMEM_SLOW_TOKEN_S` times a log-normal factor of its own (median 1, `NAPMEM_SLOW_SIGMA`, seeded by the turn). The
factor ends at its 99th percentile, as a limit on tokens ends the tail of a real load.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import verl  # noqa: F401  (must be first, see plugin.py)
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry

from napmem_rl.backend.plugin import ROLLOUT_NAME

LARGEST_Z = 2.326  # 99th percentile of a standard normal variable
TOKEN_VARIABLE, SIGMA_VARIABLE = "NAPMEM_SLOW_TOKEN_S", "NAPMEM_SLOW_SIGMA"


def compute_delay(seed: int, *, token_s: float, sigma: float) -> float:
    """Seconds a token of the turn with this seed."""
    return token_s * math.exp(sigma * min(random.Random(f"slow/{seed}").gauss(0.0, 1.0), LARGEST_Z))


class SlowTurns:
    """Lets turns out token by token, as slow as each is, until it is told to cut them. A turn that was cut goes on as slow as it was."""

    def __init__(self, *, token_s: float, sigma: float) -> None:
        self._token_s, self._sigma = token_s, sigma
        self._cut = asyncio.Event()
        self._cut_turns: dict[tuple[int, ...], list[tuple[float, float]]] = defaultdict(list)  # tokens so far -> (delay, seconds spent on the next token)

    async def release(self, prompt: Sequence[int], seed: int, token_ids: Sequence[int]) -> int:
        """Wait for these tokens; returns how many of them were out when the turn ended or was cut."""
        known = self._cut_turns.get(tuple(prompt))
        delay, spent = known.pop() if known else (compute_delay(seed, token_s=self._token_s, sigma=self._sigma), 0.0)
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            await asyncio.wait_for(self._cut.wait(), max(0.0, delay * len(token_ids) - spent))
        except TimeoutError:
            return len(token_ids)
        spent += clock() - started
        count = min(int(spent / delay), len(token_ids) - 1)
        self._cut_turns[(*prompt, *token_ids[:count])].append((delay, spent - count * delay))
        return count

    def cut(self) -> None:
        """End every turn with what it has."""
        self._cut.set()
        self._cut = asyncio.Event()


def register_slow_rollout() -> None:
    """Take the place of the plugin's server; may run twice."""
    RolloutReplicaRegistry.register(ROLLOUT_NAME, _load_replica)


def _load_replica() -> type[RolloutReplica]:
    from napmem_rl.backend.rollout_transformers import TransformersReplica, TransformersServer, to_output
    from napmem_rl.errors import BackendError

    class SlowServer(TransformersServer):
        """The transformers rollout server behind `SlowTurns`."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._turns = SlowTurns(token_s=float(os.environ[TOKEN_VARIABLE]), sigma=float(os.environ[SIGMA_VARIABLE]))

        async def generate_stream(self, requests: Sequence[tuple[Sequence[int], Mapping[str, Any]]]) -> AsyncIterator[list[tuple[int, Any]]]:
            waiting = {asyncio.ensure_future(self._release(list(prompt), params)): index for index, (prompt, params) in enumerate(requests)}
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                yield [(waiting.pop(task), task.result()) for task in done]

        async def _release(self, prompt: list[int], params: Mapping[str, Any]) -> Any:
            if not await self._is_admitted():
                raise BackendError.of("slow rollout server", "is for servers that stay", expected="no reject_request")
            output = to_output(await self._engine.generate(prompt, self._read_params(prompt, params)))
            if output.stop_reason == "aborted":
                return output
            count = await self._turns.release(prompt, params["seed"], output.token_ids)
            if count < len(output.token_ids):
                output.token_ids, output.log_probs, output.stop_reason = output.token_ids[:count], output.log_probs[:count], "aborted"
            return output

        async def abort_all_requests(self, reset_prefix_cache: bool = True, reject_request: bool = False) -> dict[str, Any]:
            aborted = await super().abort_all_requests(reset_prefix_cache, reject_request)
            self._turns.cut()
            return aborted

    class SlowReplica(TransformersReplica):
        """Its replica."""

        server_class = SlowServer

    return SlowReplica


register_slow_rollout()
