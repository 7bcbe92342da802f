"""The table of RMM's proof, and the benchmark of its reranker."""

from __future__ import annotations

from pathlib import Path

import pytest

from napmem_rl.errors import ConfigError, DataError
from napmem_rl.evals import reproduce_rmm
from napmem_rl.evals.rerank_benchmark import measure_reranker, render_benchmark

ARM = {"questions": 9, "retriever": 0.4, "recall": 0.5, "closed": 0.25, "low": 0.1, "high": 0.4, "closed_by_seed": [0.2, 0.3]}
ROW = {
    "questions": 9,
    "users": 3,
    "groups": 2,
    "retriever": 0.4,
    "oracle": 0.8,
    "seconds": [1.0, 2.0],
    "arms": {"learned": ARM},
    "courses": {"learned": [0.1, 0.2, 0.3]},
}
TABLE = {"sets": {"LoCoMo": ROW}, "absent": {"LongMemEval s_dev60": "not there"}}


def test_the_table_says_simulated_and_names_what_is_absent() -> None:
    text = reproduce_rmm.render_table(TABLE)
    assert "| simulated citations |" in text and "+0.250 [+0.100, +0.400]" in text and "+0.200, +0.300" in text
    assert "| learned | 0.100 | 0.200 | 0.300 |" in text
    assert "Not measured: LongMemEval s_dev60 (not there)." in text


def test_it_stands_between_its_markers_and_a_page_without_them_is_left_as_it_is(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- rmm: begin -->\nwas here\n<!-- rmm: end -->\nafter\n")
    reproduce_rmm._write(TABLE, tmp_path / "table.json", page)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "was here" not in text and "**LoCoMo**" in text
    page.write_text("no markers")
    with pytest.raises(DataError, match="lacks the place"):
        reproduce_rmm._write(TABLE, tmp_path / "table.json", page)
    assert page.read_text() == "no markers"


def test_without_data_it_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAPMEM_DATA", str(tmp_path))
    with pytest.raises(ConfigError, match="NAPMEM_DATA"):
        reproduce_rmm.reproduce_rmm(tmp_path, [0], report=lambda line: None)


def test_the_benchmark_measures_all_three_steps() -> None:
    figures = measure_reranker(dim=16, num_candidates=6, repeats=5)
    assert all(figures[name]["p50_ms"] > 0 for name in ("rank", "draw", "learn")) and set(figures["reached"]) == {"rerank", "learn"}
    assert "d = 16, K = 6" in render_benchmark(figures)
