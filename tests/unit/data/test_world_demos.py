"""Demonstrators: clean ones earn the full reward, sloppy ones leave room."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from napmem_rl.config.sections import AgentConfig
from napmem_rl.data.world_demos import CLEAN, SLOPPY, Demonstrator, Habits
from napmem_rl.data.worlds import SyntheticQuestion, SyntheticUser, generate_user
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.builder import build_bank
from napmem_rl.rewards.text_match import match_answer
from napmem_rl.schema import ToolCall, ToolResult
from napmem_rl.tools.memory_tools import MemoryToolbox, ToolLimits

MAX_STEPS = AgentConfig().max_tool_steps


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[SyntheticUser, MemoryBank]]:
    root: Path = tmp_path_factory.mktemp("banks")
    users = [generate_user("demos", index) for index in range(6)]
    for user in users:
        build_bank(root / user.bank_id, bank_id=user.bank_id, messages=user.messages)
    return [(user, MemoryBank.open(root / user.bank_id)) for user in users]


def play(question: SyntheticQuestion, bank: MemoryBank, habits: Habits, seed: int) -> tuple[list[ToolResult], str]:
    """One demonstration against the real tools."""
    toolbox = MemoryToolbox(bank, asked_at=question.task.asked_at, limits=ToolLimits(), count_tokens=lambda text: len(text.split()))
    demonstrator = Demonstrator(question, habits, random.Random(seed), max_tool_steps=MAX_STEPS, file_names=toolbox.file_names)
    results: list[ToolResult] = []
    while isinstance(decision := demonstrator.act(results), ToolCall):
        results.append(asyncio.run(toolbox.call(decision)))
    return results, decision


def play_all(
    world: list[tuple[SyntheticUser, MemoryBank]], habits: Habits, keep: Callable[[SyntheticQuestion], bool]
) -> list[tuple[SyntheticQuestion, list[ToolResult], str]]:
    return [(q, *play(q, bank, habits, seed)) for seed, (user, bank) in enumerate(world) for q in user.questions if keep(q)]


def test_clean_demonstrations_are_right_with_the_planned_calls_alone(world: list[tuple[SyntheticUser, MemoryBank]]) -> None:
    for question, results, answer in play_all(world, CLEAN, lambda q: True):
        assert match_answer(answer, question.key.references), (question.task.question, answer)
        assert len(results) <= len(question.plan)
        assert bool(results) == question.task.needs_memory


def test_no_demonstration_exceeds_the_budget(world: list[tuple[SyntheticUser, MemoryBank]]) -> None:
    lengths = [len(results) for _, results, _ in play_all(world, SLOPPY, lambda q: True)]
    assert max(lengths) <= MAX_STEPS
    assert max(lengths) > 2


def test_sloppy_demonstrations_call_memory_for_sums_and_repeat_old_values(world: list[tuple[SyntheticUser, MemoryBank]]) -> None:
    control = play_all(world, SLOPPY, lambda q: q.task.category == "control")
    assert any(results for _, results, _ in control)
    changed = play_all(world, Habits(plan=1.0, extra=0.0, newest=0.0, give_up=0.0, needless=0.0), lambda q: q.task.category == "changed")
    assert all(answer in question.stale for question, _, answer in changed)


def test_an_answer_is_never_given_without_evidence(world: list[tuple[SyntheticUser, MemoryBank]]) -> None:
    for question, results, answer in play_all(world, SLOPPY, lambda q: q.task.needs_memory):
        shown = " ".join(result.text for result in results)
        assert answer == "unknown" or answer in shown, question.task.question
