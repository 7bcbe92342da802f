"""The memory benchmark's parts on tiny inputs: what they count, and what they leave out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from napmem_rl.data.source import SourceBank, SourceSet
from napmem_rl.errors import ConfigError
from napmem_rl.evals.memory_benchmark import PARTS, BenchmarkRun, render_figures, render_rows
from napmem_rl.evals.memory_coverage import Setting, measure_coverage
from napmem_rl.evals.memory_scale import SESSION_MESSAGES, generate_session, measure_scale
from napmem_rl.evals.memory_storage import RandomEncoder, count_bytes, measure_storage
from napmem_rl.memory.builder import build_bank
from napmem_rl.memory.writers.rules import RulesWriter
from napmem_rl.retrieval.encoder import HashingEncoder
from napmem_rl.schema import AnswerKey, Message, Task

ROOT = Path(__file__).parents[3]
SAID = (
    ("user", "Ana", "I adopted a greyhound from the shelter in Split."),
    ("assistant", "Ben", "Wow! What name did the greyhound get?"),
    ("user", "Ana", "Zephyr, after the wind."),
    ("assistant", "Ben", "Good luck! Bye!"),
)


def build_messages(user: str) -> tuple[Message, ...]:
    """The same talk from one side: `user` is the user."""
    return tuple(
        Message(
            message_id=f"msg:{n}",
            session_id="s1",
            role="user" if speaker == user else "assistant",
            speaker=speaker,
            text=text,
            time=f"2024-03-05T10:00:0{n}",
        )
        for n, (_, speaker, text) in enumerate(SAID)
    )


def build_source() -> SourceSet:
    """One conversation, two banks, a question to each; the second one's evidence is small talk that no record holds."""
    banks = tuple(SourceBank(bank_id=f"c1_{user.lower()}", group_id="c1", messages=build_messages(user)) for user in ("Ana", "Ben"))
    asked = (("c1_ana", "What is the name of Ana's greyhound?", ("msg:0", "msg:2")), ("c1_ben", "What did Ben wish Ana?", ("msg:3",)))
    items = []
    for bank_id, question, evidence in asked:
        task = Task(task_id=f"{bank_id}:0", bank_id=bank_id, question=question, category="fact", needs_memory=True, asked_at="2024-04-01")
        items.append((task, AnswerKey(task_id=task.task_id, references=("x",), evidence_ids=evidence)))
    return SourceSet(name="tiny", banks=banks, items=tuple(items))


def test_coverage_counts_gold_turns_by_provenance_per_bank_and_per_conversation():
    progress: list[str] = []
    (row,) = measure_coverage(build_source(), encoder=None, settings=(Setting(name="default"),), report=progress.append)
    assert (row["banks"], row["questions"], row["messages"]) == (2, 2, 8) and len(progress) == 1
    assert (row["coverage_bank"], row["coverage_bank_min"]) == (0.5, 0.0)
    assert row["coverage_conversation"] == pytest.approx(2 / 3)
    assert row["recall@5_records"] == 0.5 and row["recall@5_messages"] == 1.0


def test_fewer_sources_a_record_give_more_records_and_splits_are_reported_apart():
    settings = (Setting(name="default"), Setting(name="one", build=lambda: RulesWriter(max_sources=1)))
    rows = measure_coverage(build_source(), encoder=HashingEncoder(64), split_of={"c1": "dev"}, settings=settings, report=lambda line: None)
    assert [(row["setting"], row["split"]) for row in rows] == [("default", "dev"), ("one", "dev")]
    assert rows[0]["sources_per_record"] > 1.0 == rows[1]["sources_per_record"] and rows[1]["records"] >= rows[0]["records"]


def test_scale_measures_each_size_in_its_own_processes(tmp_path):
    figures = measure_scale(2 * SESSION_MESSAGES, tmp_path)
    assert figures["size"] == 2 * SESSION_MESSAGES <= figures["messages"] and 0 < figures["records"] < figures["messages"]
    assert all(figures[name] > 0 for name in ("build_s", "commit_ms_p50", "durable_commit_ms_p95", "open_s", "search_ms_p50", "open_peak_mb", "disk_mb"))
    assert figures["session_ms_p50"] > 0


def test_synthetic_sessions_are_the_same_everywhere_and_differ_from_each_other():
    assert generate_session(3) == generate_session(3) != generate_session(4)
    ids = [message.message_id for number in range(3) for message in generate_session(number)]
    assert ids == [f"msg:{n + 1}" for n in range(3 * SESSION_MESSAGES)]


def test_storage_counts_every_byte_of_a_bank_by_kind(tmp_path):
    build_bank(tmp_path / "b", "b", build_messages("Ana"))
    assert count_bytes(tmp_path / "b").total() == sum(path.stat().st_size for path in (tmp_path / "b").rglob("*") if path.is_file())
    row = measure_storage(build_source().banks, dim=16, report=lambda line: None)
    assert row["total_mb"] == pytest.approx(sum(value for name, value in row.items() if name.endswith("_mb") and name != "total_mb"))
    vectors = 2 * 16 * (row["messages"] + row["records"]) / 1e6  # two bytes a number
    assert vectors <= row["vectors_mb"] <= vectors + 0.002


def test_random_vectors_are_unit_rows_that_follow_from_the_text():
    rows = RandomEncoder(8).encode(["a", "b", "a"])
    assert (rows[0] == rows[2]).all() and (rows[0] != rows[1]).any() and abs(float((rows[0] ** 2).sum()) - 1) < 1e-5


def test_a_part_without_its_needs_is_absent_with_the_reason_and_never_zero():
    run = BenchmarkRun(locomo=None, encoder_name="none", sizes=(SESSION_MESSAGES,), report=lambda line: None)
    figures = run.measure(("coverage", "recall", "storage"))
    for part in ("coverage", "recall", "storage"):
        assert "rows" not in figures[part] and "--locomo" in figures[part]["absent"]
    assert "absent: no LoCoMo file was given" in render_figures(figures)


def test_search_is_measured_beside_plain_libraries_at_each_size():
    run = BenchmarkRun(locomo=None, encoder_name="none", sizes=(SESSION_MESSAGES, 2 * SESSION_MESSAGES), report=lambda line: None)
    rows = run.measure(("latency",))["latency"]["rows"]
    assert [row["passages"] for row in rows] == [SESSION_MESSAGES, 2 * SESSION_MESSAGES]
    assert all(row[name] > 0 for row in rows for name in ("fused_p50_ms", "bm25s_p50_ms", "faiss_flat_p50_ms", "fused_to_plain"))
    assert "fused_to_plain" in render_figures({"machine": "m", "encoder": "none", "latency": {"seconds": 0.0, "rows": rows}})


def test_tables_stand_so_that_they_are_narrow():
    few = render_rows([{"a long name": 1, "another long name": 0.25}])
    many = render_rows([{"n": n, "x": None if n else 1234567} for n in range(3)])
    assert few.splitlines() == ["a long name            1", "another long name  0.250"]
    assert many.splitlines() == ["n          x", "0  1,234,567", "1          –", "2          –"]


def test_an_unknown_part_is_refused():
    with pytest.raises(ConfigError, match="unknown part; got 'speed'; expected one of coverage, recall"):
        BenchmarkRun(locomo=None, report=print).measure(("speed",))
    assert PARTS == ("coverage", "recall", "latency", "scale", "storage")


def test_the_command_prints_json_alone_on_stdout_and_progress_on_stderr():
    options = ["--parts", "scale,coverage", "--sizes", str(SESSION_MESSAGES), "--encoder", "none", "--json"]
    command = [sys.executable, str(ROOT / "launch" / "bench_memory.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    figures = json.loads(done.stdout)
    assert figures["scale"]["rows"][0]["size"] == SESSION_MESSAGES and "absent" in figures["coverage"] and "scale: " in done.stderr
