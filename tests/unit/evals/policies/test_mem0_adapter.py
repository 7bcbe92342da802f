"""Mem0's own package behind the adapter; skipped where it is not installed."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from bank_maker import save_sample
from judge_endpoint import serve_judge

from napmem_rl.config.evaluation_sections import PolicyConfig
from napmem_rl.config.sections import AgentConfig, MemoryConfig
from napmem_rl.errors import ConfigError
from napmem_rl.evals.policies.registry import build_policy
from napmem_rl.evals.policy import Attempt
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.schema import Task

HAS_MEM0 = importlib.util.find_spec("mem0") is not None
needs_mem0 = pytest.mark.skipif(not HAS_MEM0, reason="Mem0 is not installed (pip install napmem-rl[mem0])")
MEMORY = MemoryConfig(encoder="hashing")


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    path: Path = tmp_path_factory.mktemp("banks") / "ana"
    save_sample(path)
    return MemoryBank.open(path, ranking="bm25")


def answer(policy: PolicyConfig, bank: MemoryBank, asked_at: str | None = None) -> Attempt:
    task = Task(task_id="t", bank_id="ana", question="What bike did I buy?", category="c", needs_memory=True, asked_at=asked_at)

    async def use() -> Attempt:
        built = build_policy(policy, memory=MEMORY, agent=AgentConfig())
        try:
            return await built.answer(task, bank, seed=0)
        finally:
            await built.close()

    return asyncio.run(use())


@needs_mem0
def test_messages_stored_as_they_are_are_found_with_their_provenance_and_nothing_later_than_the_question(bank: MemoryBank) -> None:
    policy = PolicyConfig(access="passive", engine="extractive", adapter="mem0_raw", top_k=2)
    found = answer(policy, bank)
    assert found.context_ids[0] == "msg:3" and found.context_ranked and "red" in (found.trajectory.final_answer or "")
    earlier = answer(policy, bank, asked_at="2024-03-02T23:00:00")
    assert earlier.context_ids and set(earlier.context_ids) <= {"msg:1", "msg:2"}


@needs_mem0
def test_memories_that_mem0_writes_through_the_endpoint_are_read(bank: MemoryBank) -> None:
    def reply(messages: list[dict[str, Any]]) -> str:
        text = json.dumps(messages)
        if "You answer one question" in text:
            return "a red bike" if "Ana owns a red bike." in text else "not mentioned"
        return json.dumps({"memory": [{"id": "0", "text": "Ana owns a red bike."}]} if "red bike" in messages[-1]["content"] else {"memory": []})

    url, stop = serve_judge(reply, usage=(10, 2))
    try:
        policy = PolicyConfig(access="passive", model="m", base_url=url, api_key_env="", adapter="mem0", top_k=3)
        attempt = answer(policy, bank)
    finally:
        stop()
    assert attempt.trajectory.final_answer == "a red bike" and "msg:3" in attempt.context_ids


@pytest.mark.parametrize("adapter", ["mem0", "mem0_raw"])
def test_what_the_adapter_lacks_is_said_before_anything_runs(adapter: str) -> None:
    policy = PolicyConfig(access="passive", engine="extractive", adapter=adapter)
    word = "not installed" if not HAS_MEM0 else "endpoint" if adapter == "mem0" else "needs vectors"
    with pytest.raises(ConfigError, match=word):
        build_policy(policy, memory=MemoryConfig(encoder="none"), agent=AgentConfig())
