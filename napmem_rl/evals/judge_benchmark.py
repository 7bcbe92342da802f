"""How long a verdict takes that is in the cache already: from memory, and from disk as the first look of another process finds it."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from napmem_rl.llm.base import ChatReply
from napmem_rl.rewards.judge import LLMJudge
from napmem_rl.schema import AnswerKey, Task
from napmem_rl.tools.spec import ToolSpec

_YES = '{"verdict": "correct", "reason": "Both name the same place, and the detail that the answer adds does not contradict the reference."}'


@dataclass(frozen=True, kw_only=True, slots=True)
class HitTimes:
    """Milliseconds a hit, waiting for others included."""

    place: str  # memory or disk
    concurrency: int  # hits in flight
    count: int
    p50_ms: float
    p95_ms: float
    max_ms: float
    per_hit_ms: float  # wall time of all, divided by their number


class _AgreeingChat:
    """A model that says "correct" at once; `num_requests` counts how often it is asked."""

    name = "agreeing"

    def __init__(self) -> None:
        self.num_requests = 0

    async def chat(self, messages: Sequence[Mapping[str, Any]], *, schema: Mapping[str, Any] | None = None, max_tokens: int | None = None) -> str:
        self.num_requests += 1
        return _YES

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[ToolSpec] = (),
        schema: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
    ) -> ChatReply:
        return ChatReply(text=await self.chat(messages))


def measure_hits(*, count: int = 1000, concurrency: int = 64, directory: Path | None = None) -> list[HitTimes]:
    """Judge `count` answers once, then measure hits on all of them: from disk and from memory, one after the other and `concurrency` at a time.

    Args:
        directory: where the cache lies; a temporary one unless given. Its file system is part of what is measured.
    """
    with tempfile.TemporaryDirectory(prefix="napmem-judge-", dir=directory) as place:
        return asyncio.run(_measure(Path(place), count, concurrency))


def render_hits(times: Sequence[HitTimes]) -> str:
    """A table for people."""
    lines = [f"{'verdict from':12}  {'in flight':>9}  {'hits':>6}  {'p50 ms':>7}  {'p95 ms':>7}  {'max ms':>7}  {'ms a hit':>8}"]
    for one in times:
        shown = f"{one.p50_ms:7.3f}  {one.p95_ms:7.3f}  {one.max_ms:7.3f}  {one.per_hit_ms:8.3f}"
        lines.append(f"{one.place:12}  {one.concurrency:9}  {one.count:6}  {shown}")
    return "\n".join(lines)


def as_json(times: Sequence[HitTimes]) -> list[dict[str, Any]]:
    """Plain data."""
    return [asdict(one) for one in times]


async def _measure(place: Path, count: int, concurrency: int) -> list[HitTimes]:
    pairs = [_build_pair(index) for index in range(count)]
    writer = LLMJudge(_AgreeingChat(), cache_dir=str(place))
    await _time_all(writer, pairs, concurrency)
    times = []
    for in_flight in (1, concurrency):
        chat = _AgreeingChat()
        reader = LLMJudge(chat, cache_dir=str(place))
        for where in ("disk", "memory"):
            started = time.perf_counter()
            ms = np.array(await _time_all(reader, pairs, in_flight)) * 1000
            wall_ms = (time.perf_counter() - started) * 1000
            p50, p95 = np.percentile(ms, (50, 95))
            figures = {"p50_ms": float(p50), "p95_ms": float(p95), "max_ms": float(ms.max()), "per_hit_ms": wall_ms / count}
            times.append(HitTimes(place=where, concurrency=in_flight, count=count, **figures))
        assert chat.num_requests == 0, "judge benchmark: a verdict was not in the cache"
    return times


async def _time_all(judge: LLMJudge, pairs: Sequence[tuple[Task, AnswerKey, str]], concurrency: int) -> list[float]:
    """Seconds of each call."""
    waiting = iter(pairs)
    seconds: list[float] = []

    async def work() -> None:
        for task, key, answer in waiting:
            started = time.perf_counter()
            await judge.judge(task, key, answer)
            seconds.append(time.perf_counter() - started)

    await asyncio.gather(*(work() for _ in range(concurrency)))
    return seconds


def _build_pair(index: int) -> tuple[Task, AnswerKey, str]:
    """A question of ordinary length with its reference and answer."""
    question = f"Where did Nuru and his sister spend the holiday that they talked about in conversation {index}?"
    task = Task(task_id=f"t{index}", bank_id="b", question=question, category="fact", needs_memory=True)
    return task, AnswerKey(task_id=task.task_id, references=(f"in a hut above lake {index}",)), f"They stayed in a hut above lake {index} for a week."
