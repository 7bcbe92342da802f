"""Figures of MemChain's packets over hand-made answers."""

from __future__ import annotations

from typing import Any

import pytest

from napmem_rl.evals.packet_summary import summarise_packets
from napmem_rl.evals.packet_tables import list_packet_tables
from napmem_rl.evals.result_rows import AnswerRow
from napmem_rl.schema import AnswerKey

KEYS = {
    "a": AnswerKey(task_id="a", references=("x",), evidence_ids=("msg:1", "msg:2")),
    "b": AnswerKey(task_id="b", references=("x",), evidence_ids=("msg:9",)),
    "c": AnswerKey(task_id="c", references=("x",)),
}


def make_row(task_id: str, category: str, *, cited=(), facts: dict[str, float] | None = None, origin: str = "packet", status: str = "completed") -> AnswerRow:
    candidates = [{"id": "w:1", "sources": ["msg:1"]}, {"id": "w:2", "sources": ["msg:2", "msg:3"]}, {"id": "w:4", "sources": ["msg:4"]}]
    packet: dict[str, Any] = {"candidates": candidates, "cited": list(cited), "evidence_origin": origin, "facts": facts or {}}
    return AnswerRow(
        benchmark="b", task_id=task_id, sample=0, seed=0, group_id="g", trajectory={"category": category, "status": status}, context_ids=(),
        context_ranked=False, prompt_tokens=None, completion_tokens=None, latency_s=1.0, retrieval_s=0.1, details={"packet": packet},
    )  # fmt: skip


def count(**actions: float) -> dict[str, float]:
    return {f"actions/{name}": float(actions.get(name, 0)) for name in ("KEEP", "DROP", "MERGE", "REFINE", "ADD")}


def test_citations_actions_and_faults_are_counted_by_hand() -> None:
    rows = [
        make_row("a", "lookup", cited=("w:1", "w:4"), facts=count(KEEP=1, DROP=3) | {"parsed": 1.0, "evidence_tokens": 10.0, "faults/foreign_id": 2.0}),
        make_row("b", "time", cited=("w:2",), facts=count(ADD=1, MERGE=1) | {"parsed": 0.0, "evidence_tokens": 30.0, "faults/foreign_id": 1.0}),
        make_row("c", "time", cited=("w:2",), facts=count(), origin="none"),
        make_row("a", "lookup", status="error_llm"),
    ]
    found = summarise_packets(rows, KEYS)
    assert found["n"] == 3 and found["origins"] == {"none": 1, "packet": 2} and found["shares"]["parsed"] == 0.5
    citations = found["citations"]  # a: 1 of 2 cited, 1 of 2 references (w:1, w:2); b: its gold was not retrieved, all 0; c: no gold is known
    assert (citations["n"], citations["precision"], citations["recall"], citations["f1"]) == (2, 0.25, 0.25, 0.25)
    assert citations["gold_among_candidates"] == 0.5
    assert found["actions"]["all"] == {
        "n": 3,
        "per_packet": 2.0,
        "shares": pytest.approx({"KEEP": 1 / 6, "DROP": 0.5, "MERGE": 1 / 6, "REFINE": 0, "ADD": 1 / 6}),
    }
    assert found["actions"]["lookup"]["per_packet"] == 4 and found["actions"]["time"]["shares"]["ADD"] == 0.5
    assert found["faults"] == {"foreign_id": {"faults": 3, "packets": 2}}
    assert found["sizes"]["evidence_tokens"] == {"mean": 20.0, "p50": 20.0, "p95": pytest.approx(29.0)}
    assert "candidate_tokens" not in found["sizes"], "what nobody measured is absent"


def test_tables_hold_one_row_a_type_and_nothing_where_there_are_no_packets() -> None:
    rows = [make_row("a", "lookup", cited=("w:1",), facts=count(KEEP=1)), make_row("c", "time", facts=count(), origin="none")]
    tables = {title.split(" (")[0]: found for title, _, found in list_packet_tables(summarise_packets(rows, KEYS))}
    assert [row[0] for row in tables["Actions by type of question"]] == ["all", "lookup", "time"]
    assert tables["Actions by type of question"][2][2:] == ("0.00", "–", "–", "–", "–", "–")
    assert list_packet_tables(summarise_packets([], KEYS)) == []


def test_evidence_without_packets_has_sizes_and_no_actions() -> None:
    found = summarise_packets([make_row("a", "lookup", cited=("w:1", "w:2", "w:4"), facts={"evidence_tokens": 9.0}, origin="candidates")], KEYS)
    assert found["actions"] == {} and found["shares"] == {} and found["citations"]["precision"] == pytest.approx(2 / 3)
