"""Policies that never call a tool: one context, one reader, one answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from napmem_rl.errors import DataError
from napmem_rl.evals.policies.contexts import Context, ContextSource
from napmem_rl.evals.policies.readers import Reader, Reading
from napmem_rl.evals.policy import Attempt
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.schema import Status, Task, Trajectory


class PassivePolicy:
    """Accesses none, full, passive and oracle, and peers' stores. A `Policy`."""

    def __init__(self, source: ContextSource, reader: Reader, *, name: str, facts: Mapping[str, Any]) -> None:
        """Args:
            source: chooses what is read.
            reader: answers out of it.
            name, facts: see `Policy`.
        """
        self._source, self._reader = source, reader
        self.name, self.facts = name, dict(facts)

    async def answer(self, task: Task, bank: MemoryBank, *, seed: int) -> Attempt:
        """See `Policy`. A search that breaks is an attempt of status error_tool."""
        started = time.perf_counter()
        try:
            context = await self._source.find(task, bank)
        except (DataError, asyncio.CancelledError):
            raise
        except Exception as error:  # boundary: whatever a bank, an encoder or a peer's store raises is a failure of the search
            trajectory = Trajectory(task=task, turns=(), final_answer=None, status=Status.ERROR_TOOL, detail=f"{type(error).__name__}: {error}")
            return Attempt(trajectory=trajectory, latency_s=time.perf_counter() - started)
        retrieval_s = time.perf_counter() - started
        reading = await self._reader.read(task, context.passages, has_memory=self._source.has_memory, seed=seed)
        return Attempt(
            trajectory=_build_trajectory(task, context, reading),
            context_ids=tuple(dict.fromkeys(message_id for passage in reading.shown for message_id in passage.message_ids)),
            context_ranked=context.is_ranked,
            prompt_tokens=reading.prompt_tokens,
            completion_tokens=reading.completion_tokens,
            latency_s=time.perf_counter() - started,
            retrieval_s=retrieval_s,
        )

    async def close(self) -> None:
        """Close source and reader."""
        await self._source.close()
        await self._reader.close()


def _build_trajectory(task: Task, context: Context, reading: Reading) -> Trajectory:
    detail = "; ".join(part for part in (context.note, reading.detail) if part)
    turns = () if reading.turn is None else (reading.turn,)
    return Trajectory(task=task, turns=turns, final_answer=reading.answer, status=reading.status, detail=detail)
