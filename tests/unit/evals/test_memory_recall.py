"""Recall by ranking: what is searched, what counts once, hand-worked shares. Latency: what a row holds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from napmem_rl.data.locomo import load_locomo
from napmem_rl.data.source import SourceBank, SourceSet
from napmem_rl.evals.memory_latency import measure_latency
from napmem_rl.evals.memory_recall import DEPTHS, Setting, measure_recall, render_without_date
from napmem_rl.retrieval.encoder import HashingEncoder
from napmem_rl.retrieval.fusion import Ranking
from napmem_rl.schema import AnswerKey, Message, Task

TALK = ["Where do you live now?", "In Oslo, near the harbour.", "And your brother?", "He bakes bread in Bergen.", "I bought a red bike."]
BM25 = Setting(name="bm25", ranking=Ranking.BM25)


def build_bank(user: str) -> SourceBank:
    lines = [("msg:D0:1", "Hello harbour, hello Oslo, hello bread."), *((f"msg:D1:{number}", text) for number, text in enumerate(TALK, start=1))]
    messages = [
        Message(message_id=message_id, session_id="D1", role="user", speaker=("Ana", "Leo")[number % 2], text=text, time=f"2024-01-01T10:00:{number:02d}")
        for number, (message_id, text) in enumerate(lines)
    ]
    return SourceBank(bank_id=f"c_{user}", group_id="c", messages=tuple(messages))


def build_source() -> SourceSet:
    """Question 0 went to both banks, 1 to one of them, 2 has no evidence."""
    asked = [
        ("a", 0, "harbour", ("msg:D1:2", "msg:D1:3")),
        ("b", 0, "harbour", ("msg:D1:2", "msg:D1:3")),
        ("a", 1, "bread in Bergen", ("msg:D1:4",)),
        ("a", 2, "bike", ()),
    ]
    items = [
        (
            Task(task_id=f"locomo:c_{bank}:{number}", bank_id=f"c_{bank}", question=text, category="single-hop", needs_memory=True),
            AnswerKey(task_id=f"locomo:c_{bank}:{number}", references=("x",), evidence_ids=evidence),
        )
        for bank, number, text, evidence in asked
    ]
    return SourceSet(name="locomo", banks=(build_bank("a"), build_bank("b")), items=tuple(items))


def test_a_question_of_both_banks_counts_once_and_recall_is_the_share_of_its_evidence_found():
    row = measure_recall(build_source(), encoder=None, settings=(BM25,), report=lambda line: None)[0]
    assert row["questions"] == 2
    assert row["recall@5"] == row["single-hop @5"] == pytest.approx((1 / 2 + 1) / 2)


def test_the_setup_turn_is_not_searched():
    """It holds every word that is asked for, and would be the one hit beside each."""
    source = build_source()
    without = SourceSet(
        name="locomo", banks=tuple(SourceBank(bank_id=b.bank_id, group_id="c", messages=b.messages[1:]) for b in source.banks), items=source.items
    )
    rows = [measure_recall(data, encoder=None, settings=(BM25,), report=lambda line: None) for data in (source, without)]
    assert rows[0] == rows[1]


def test_neighbours_bring_the_answer_and_the_gain_over_the_baseline_is_counted():
    settings = (Setting(name="rrf", ranking=Ranking.RRF), Setting(name="fused"))
    rows = {row["setting"]: row for row in measure_recall(build_source(), encoder=None, settings=settings, report=lambda line: None)}
    assert rows["rrf"]["gain@5"] == 0.0
    assert rows["fused"]["recall@5"] == 1.0
    assert rows["fused"]["gain@5"] == pytest.approx(0.25) and rows["fused"]["gain@5 low"] <= 0.25 <= rows["fused"]["gain@5 high"]


def test_without_an_encoder_there_is_no_dense_row():
    names = [row["setting"] for row in measure_recall(build_source(), encoder=None, report=lambda line: None)]
    assert "bm25" in names and "dense" not in names
    assert "dense" in [row["setting"] for row in measure_recall(build_source(), encoder=HashingEncoder(), report=lambda line: None)]


def test_a_latency_row_times_every_search_of_a_size():
    row = measure_latency([40], report=lambda line: None)[0]
    assert row["passages"] == 40
    assert all(row[name] > 0 for name in ("fused_p50_ms", "fused_filtered_p50_ms", "rrf_p50_ms", "bm25s_p50_ms", "faiss_flat_p50_ms", "fused_to_plain"))


@pytest.mark.skipif("NAPMEM_DATA" not in os.environ, reason="NAPMEM_DATA is not set")
def test_bm25_on_locomo_is_what_others_measured_and_the_fused_ranking_is_far_above_it():
    source = load_locomo(Path(os.environ["NAPMEM_DATA"]) / "locomo" / "locomo8.json")
    settings = (Setting(name="bm25, no date", ranking=Ranking.BM25, render=render_without_date), Setting(name="fused"))
    rows = {row["setting"]: row for row in measure_recall(source, encoder=None, settings=settings, report=lambda line: None)}
    assert rows["fused"]["questions"] == 1222
    assert [rows["bm25, no date"][f"recall@{k}"] for k in DEPTHS] == pytest.approx([0.466, 0.552, 0.632], abs=0.01)
    assert rows["fused"]["recall@5"] > 0.65
