"""A teacher's packets as the very tokens that a rollout would have: the prompt of `systems/memchain/prompts.py`, then the packet as `render_packet` writes it.

Only the packet is learnt (equation 12). Questions that need no memory, whose evidence retrieval missed, or that do not fit the context are left out, counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from napmem_rl.config.sections import AgentConfig
from napmem_rl.data.demonstrations import Demonstration, ScriptedTokens
from napmem_rl.data.packet_rows import PacketRow
from napmem_rl.data.packet_teacher import ModelTeacher, Teacher
from napmem_rl.errors import DataError
from napmem_rl.llm.sample import build_sample
from napmem_rl.schema import AnswerKey, Task
from napmem_rl.systems.memchain.candidates import Candidate
from napmem_rl.systems.memchain.episode import run_episode
from napmem_rl.systems.memchain.packet import PacketForm, render_packet

FindCandidates = Callable[[Task], tuple[Candidate, ...]]
MAX_AT_ONCE = 16  # questions that a teacher is asked at a time
UNREACHED = "the evidence is not among the candidates"


@dataclass(frozen=True, kw_only=True, slots=True)
class TaughtRows:
    """Rows whose packet is there, in the order of the questions, and why others were left out."""

    rows: tuple[PacketRow, ...]
    left_out: Counter[str]


def teach(pairs: Sequence[tuple[Task, AnswerKey]], find: FindCandidates, teacher: Teacher, form: PacketForm, *, count: int | None = None) -> TaughtRows:
    """Have up to `count` questions taught.

    Raises:
        LLMError: a model that teaches failed. What it wrote so far is in its cache, where it has one: the same call goes on from there.
    """

    async def write(task: Task, key: AnswerKey) -> PacketRow:
        candidates = await asyncio.to_thread(find, task)
        return PacketRow(task=task, key=key, candidates=candidates, packet=await teacher.write(task, key, candidates, form))

    async def write_all() -> TaughtRows:
        rows: list[PacketRow] = []
        left_out: Counter[str] = Counter()
        asked = [pair for pair in pairs if pair[0].needs_memory and pair[1].evidence_ids]
        left_out["needs no memory, or its evidence is unknown"] = len(pairs) - len(asked)
        for start in range(0, len(asked), MAX_AT_ONCE):
            made = await gather_to_the_end([write(task, key) for task, key in asked[start : start + MAX_AT_ONCE]])
            rows += [row for row in made if row.packet is not None]
            left_out[UNREACHED] += sum(row.packet is None for row in made)
            if count is not None and len(rows) >= count:
                break
        if isinstance(teacher, ModelTeacher):
            left_out[UNREACHED] -= teacher.refused.total()
            left_out.update({f"the teacher's packet was refused: {reason}": number for reason, number in sorted(teacher.refused.items())})
        return TaughtRows(rows=tuple(rows[:count]), left_out=+left_out)

    return asyncio.run(write_all())


async def gather_to_the_end(coroutines: Sequence[Coroutine[Any, Any, PacketRow]]) -> list[PacketRow]:
    """All results; the first error is raised once the others have ended, so that what they were told is in the teacher's cache."""
    done = await asyncio.gather(*coroutines, return_exceptions=True)
    for result in done:
        if isinstance(result, BaseException):
            raise result
    return list(done)


def build_packet_demonstrations(rows: Sequence[PacketRow], tokenizer: Any, *, form: PacketForm, agent: AgentConfig) -> list[Demonstration]:
    """Each row's packet as tokens; rows beyond `agent.max_context_tokens` or `max_turn_tokens` are left out.

    Raises:
        DataError: none is left.
    """
    made = [asyncio.run(_demonstrate(row, tokenizer, form, agent)) for row in rows]
    kept = [one for one in made if len(one.token_ids) <= agent.max_context_tokens and sum(one.loss_mask) <= agent.max_turn_tokens]
    if not kept:
        fix = "Raise agent.max_context_tokens or max_turn_tokens, or give rows with evidence."
        raise DataError.of("packets to learn from", "are none", got=f"{len(rows)} taught, {len(kept)} within the limits", fix=fix)
    return kept


async def _demonstrate(row: PacketRow, tokenizer: Any, form: PacketForm, agent: AgentConfig) -> Demonstration:
    assert row.packet is not None, f"packet of {row.task.task_id} is missing"
    text = render_packet(row.packet, form)
    generate = ScriptedTokens(iter([text]).__next__, tokenizer=tokenizer, tool_format=agent.tool_format)
    episode = await run_episode(row.task, generate, row.candidates, form)
    sample = build_sample(episode.trajectory)
    mask = (*([0] * len(sample.prompt_ids)), *sample.response_mask)
    return Demonstration(task_id=row.task.task_id, token_ids=(*sample.prompt_ids, *sample.response_ids), loss_mask=mask)
