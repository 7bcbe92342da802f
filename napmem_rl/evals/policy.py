"""What is evaluated: anything that answers a task over a user's bank, and tells what it read and what it spent.

A policy never sees an answer key. One that needs gold evidence (the oracle) is given message ids by the one who builds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from napmem_rl.memory.bank import MemoryBank
from napmem_rl.schema import Task, Trajectory


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One answer to one task. What the policy or its endpoint does not tell is None, never 0.

    `context_ids` are the messages that the answer could rest on, by provenance: for passive retrieval best first, for a navigator in the order shown. Each
    stands once. `context_ranked` says whether their order is a ranking, so that recall@k means something.

    Example: Attempt(trajectory=…, context_ids=("msg:4", "msg:9"), context_ranked=True, prompt_tokens=812, completion_tokens=6, latency_s=1.4, retrieval_s=0.01)
    """

    trajectory: Trajectory
    context_ids: tuple[str, ...] = ()
    context_ranked: bool = False
    prompt_tokens: int | None = None  # summed over turns
    completion_tokens: int | None = None
    latency_s: float  # wall time of the whole attempt
    retrieval_s: float = 0.0  # of that, in searches and tools
    details: Mapping[str, Any] = field(default_factory=dict)  # what a system tells of the attempt beside all that, JSON-ready; MemChain's packet


class Policy(Protocol):
    """`name` tells policies apart in tables; `facts` is what results are stamped with (access, reader, model, engine, decoding, prompt version)."""

    name: str
    facts: Mapping[str, Any]

    async def answer(self, task: Task, bank: MemoryBank, *, seed: int) -> Attempt:
        """One attempt; many run at once. The same task, bank and seed give the same attempt wherever the engine can.

        A failure of the endpoint, the engine or a tool is a trajectory of status error_llm or error_tool, which is never scored. Raises DataError where the
        task cannot be asked at all, such as more options than letters.
        """
        ...

    async def close(self) -> None:
        """Free what the policy holds: connections, engines."""
        ...
