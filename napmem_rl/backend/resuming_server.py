"""Turns that survive a weight update: asynchronous trainers abort what is being sampled, and it goes on under the new weights."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from napmem_rl.backend.token_generate import SampledTurn, TokenServer, hash_seed

RESUME_PAUSE_S = 0.05  # servers hold requests until the new weights are there; this bounds the pace where one refuses instead


class ResumingServer:
    """`TokenServer` that asks for the rest of an aborted turn until it has ended.

    The tokens so far join the prompt, so that nothing sampled is lost or drawn again; each keeps the log-prob under the weights that sampled it. As verl's
    `FullyAsyncLLMServerClient`, but each part has a seed of its own: with one seed, a part would be drawn from the random numbers of the part before it.
    """

    def __init__(self, server: TokenServer, *, pause_s: float = RESUME_PAUSE_S) -> None:
        self._server = server
        self._pause_s = pause_s

    async def generate(self, request_id: str, prompt_ids: list[int], sampling: Mapping[str, Any]) -> SampledTurn:
        parts: list[SampledTurn] = []
        token_ids: list[int] = []
        while True:
            rest = {**sampling, "max_tokens": sampling["max_tokens"] - len(token_ids), "seed": compute_part_seed(sampling["seed"], len(token_ids))}
            part = await self._server.generate(request_id, [*prompt_ids, *token_ids], rest)
            parts.append(part)
            token_ids += part.token_ids
            if not part.is_aborted or len(token_ids) >= sampling["max_tokens"]:
                return join_parts(parts)
            await asyncio.sleep(self._pause_s)


def compute_part_seed(seed: int, num_tokens: int) -> int:
    """Seed of the part of a turn that follows `num_tokens` tokens: the turn's own for the first, in [0, 2^31)."""
    return hash_seed(f"{seed}/{num_tokens}") if num_tokens else seed


def join_parts(parts: Sequence[SampledTurn]) -> SampledTurn:
    """One turn out of its parts. Versions are those of parts that hold tokens; a turn that was aborted at its limit ends as one cut there."""
    sampled = [part for part in parts if part.token_ids]
    oldest = [part.min_version for part in sampled if part.min_version is not None]
    newest = [part.max_version for part in sampled if part.max_version is not None]
    return SampledTurn(
        token_ids=tuple(token for part in sampled for token in part.token_ids),
        logprobs=tuple(value for part in sampled for value in part.logprobs),
        min_version=min(oldest, default=None),
        max_version=max(newest, default=None),
        is_length_stop=parts[-1].is_length_stop or parts[-1].is_aborted,
    )
