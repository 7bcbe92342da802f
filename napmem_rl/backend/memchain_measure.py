"""MemChain's policies measured in this process: packets over questions of users held out, their reward, and the fixed packets they are compared with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from napmem_rl.backend.local_policy import build_token_counter, open_checkpoint
from napmem_rl.backend.memchain_system import MemChainScorer, build_form
from napmem_rl.backend.sft_packets import build_finder
from napmem_rl.config.sections import AnswererConfig, JudgeConfig
from napmem_rl.config.sft_recipe import SftRecipe
from napmem_rl.data.rows import load_rows
from napmem_rl.evals.metrics import Facts
from napmem_rl.llm.base import AssistantTurn, Generate
from napmem_rl.schema import AnswerKey, Task
from napmem_rl.systems.memchain.candidates import Candidate
from napmem_rl.systems.memchain.episode import PacketEpisode, run_episode
from napmem_rl.systems.memchain.fixed_packets import extract_packet
from napmem_rl.systems.memchain.packet import render_packet
from napmem_rl.tools.parse import parse_turn

TEMPERATURES = {"sampled": 1.0, "greedy": 0.0}
EVIDENCE_TOKENS = "evidence_tokens"


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """One question with its candidates."""

    task: Task
    key: AnswerKey
    candidates: tuple[Candidate, ...]


def load_questions(recipe: SftRecipe, split: str) -> list[Question]:
    """The questions of a split that need memory, each with the candidates that training would retrieve, whether or not they hold the evidence."""
    find = build_finder(recipe)
    return [Question(task=task, key=key, candidates=find(task)) for task, key in load_rows(recipe.data_dir / f"{split}.parquet") if task.needs_memory]


def measure_policy(path: Path, questions: Sequence[Question], recipe: SftRecipe, *, mode: str, seed: int) -> list[Facts]:
    """Facts of each question (`compute_packet_facts`, and tokens of the evidence) under the policy at `path`, a HuggingFace directory.

    Args:
        mode: of TEMPERATURES.
        seed: of the sampling.
    """
    with open_checkpoint(path, recipe.agent, temperature=TEMPERATURES[mode], seed=seed) as (_, build_generate):
        return asyncio.run(_measure(questions, lambda question: build_generate(question.task), recipe, build_token_counter(path)))


def measure_extraction(questions: Sequence[Question], recipe: SftRecipe, *, number: int, count_tokens: Callable[[str], int]) -> list[Facts]:
    """The same of the fixed packet of the first `number` candidates."""
    return asyncio.run(_measure(questions, lambda question: _say_extract(question, recipe, number), recipe, count_tokens))


def _say_extract(question: Question, recipe: SftRecipe, number: int) -> Generate:
    packet = extract_packet(question.task, question.candidates, number=number)
    text = render_packet(packet, build_form(recipe.memchain)) if packet is not None else ""

    async def generate(messages: Sequence[Any], tools: Sequence[Any]) -> AssistantTurn:
        return AssistantTurn(text=text, parsed=parse_turn(text, tool_format=recipe.agent.tool_format, tools=()))

    return generate


async def _measure(questions: Sequence[Question], build: Callable[[Question], Generate], recipe: SftRecipe, count_tokens: Callable[[str], int]) -> list[Facts]:
    scorer, form = MemChainScorer(JudgeConfig(), recipe.memchain, AnswererConfig(kind="worlds")), build_form(recipe.memchain)

    async def measure_one(question: Question) -> Facts:
        episode = await run_episode(question.task, build(question), question.candidates, form)
        _, facts = await scorer.score(episode, question.key)
        return {**facts, EVIDENCE_TOKENS: float(_count_evidence(episode, count_tokens))}

    return list(await asyncio.gather(*(measure_one(question) for question in questions)))


def _count_evidence(episode: PacketEpisode, count_tokens: Callable[[str], int]) -> int:
    """What the answer model reads, a statement a line."""
    return sum(count_tokens(item.statement) for item in episode.composition.evidence)
