"""What RMM shows a reader: raw turns under the best topic memories, ranked again where something was learned."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from prepared_maker import make_messages

from napmem_rl.config.evaluation_sections import PolicyConfig
from napmem_rl.config.sections import AgentConfig, MemoryConfig
from napmem_rl.errors import ConfigError
from napmem_rl.evals.policies.registry import build_policy
from napmem_rl.evals.policies.topics import TopicContext
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.builder import build_bank
from napmem_rl.retrieval.encoder import HashingEncoder
from napmem_rl.retrieval.rerank import ResidualReranker
from napmem_rl.retrieval.rerank_state import SearchReranker
from napmem_rl.schema import Task
from napmem_rl.systems.rmm.prospective import OfflineTopicWriter

ENCODER = HashingEncoder(64)
TASK = Task(task_id="q", bank_id="ana", question="Where do I keep my saddle these days?", category="fact", needs_memory=True)


def open_bank(path: Path, reranker: SearchReranker | None = None) -> MemoryBank:
    if not path.exists():
        build_bank(path, "ana", make_messages(0), OfflineTopicWriter())
    return MemoryBank.open(path, encoder=ENCODER, ranking="dense", reranker=reranker)


def test_the_messages_under_the_best_records_come_in_the_order_of_their_records(tmp_path: Path) -> None:
    bank = open_bank(tmp_path / "ana")
    context = asyncio.run(TopicContext(top_k=3).find(TASK, bank))
    wanted = [message_id for record in bank.search_records(TASK.question, k=3) for message_id in record.source_ids]
    shown = [message_id for passage in context.passages for message_id in passage.message_ids]
    assert context.is_ranked and shown == list(dict.fromkeys(wanted)) and len(shown) >= 3
    assert all(passage.text == bank.message(passage.message_ids[0]).text for passage in context.passages)


def test_a_turn_after_the_question_is_not_shown_and_nothing_found_is_said(tmp_path: Path) -> None:
    bank = open_bank(tmp_path / "ana")
    early = replace(TASK, asked_at="2024-03-03T12:00:00")
    shown = asyncio.run(TopicContext(top_k=5).find(early, bank)).passages
    assert shown and all(passage.time <= early.asked_at for passage in shown)
    before_all = asyncio.run(TopicContext(top_k=5).find(replace(TASK, asked_at="2020-01-01T00:00:00"), bank))
    assert before_all.passages == () and before_all.note == "no topic memory was found"


def test_what_was_learned_changes_what_is_shown(tmp_path: Path) -> None:
    plain = asyncio.run(TopicContext(top_k=2).find(TASK, open_bank(tmp_path / "ana")))
    learned = ResidualReranker(ENCODER.dim, init_std=0)
    learned._maps[1] = -2 * np.eye(ENCODER.dim, dtype=np.float32)  # m' = -m: the farthest of the twenty come first
    turned = asyncio.run(TopicContext(top_k=2).find(TASK, open_bank(tmp_path / "ana", SearchReranker(learned, 20))))
    assert plain.passages[0].message_ids != turned.passages[0].message_ids


def test_a_recipe_asks_for_it_by_name(tmp_path: Path) -> None:
    policy = PolicyConfig(access="topics", engine="extractive", top_k=5)
    built = build_policy(policy, memory=MemoryConfig(ranking="dense"), agent=AgentConfig())
    attempt = asyncio.run(built.answer(TASK, open_bank(tmp_path / "ana"), seed=0))
    assert "stable" in attempt.trajectory.final_answer and "msg:2" in attempt.context_ids and attempt.context_ranked
    assert built.name == "topic memories dense top 5, extractive" and built.facts["is_reranked"] is False
    with pytest.raises(ConfigError, match="too small"):
        build_policy(replace(policy, top_k=0), memory=MemoryConfig(), agent=AgentConfig())
