"""The before/after summary and table, on hand-made facts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from napmem_rl.errors import DataError
from napmem_rl.evals.report import BeforeAfter, Reference, build_summary, render_table
from napmem_rl.evals.reproduce import BEGIN, END, build_table, load_summaries, write_reproduction


def facts(rewards: dict[str, float], category_of: dict[str, str]) -> list[dict]:
    return [
        {
            "task_id": task,
            "bank_id": task.split("-")[0],
            "category": category_of[task],
            "status": "completed",
            "reward": reward,
            "correctness": float(reward > 0),
        }
        for task, reward in rewards.items()
    ]


CATEGORIES = {"a-1": "fact", "a-2": "control", "b-1": "fact", "b-2": "control"}
BEFORE = facts({"a-1": -1.0, "a-2": 0.0, "b-1": 1.0, "b-2": 0.0}, CATEGORIES)
AFTER = facts({"a-1": 1.0, "a-2": 1.0, "b-1": 1.0, "b-2": 1.0}, CATEGORIES)
PAIRS = [BeforeAfter(mode=mode, before=BEFORE, after=AFTER) for mode in ("sampled", "greedy")]
REFERENCES = [Reference(name="script", mode="fixed", facts=AFTER)]


def test_summary_holds_hand_worked_gains() -> None:
    summary = build_summary(PAIRS, REFERENCES, control="control")
    # before: mean of -1, 0, 1, 0; after: 1. Gains of user a: 2 and 1, of user b: 0 and 1, so users' means are 1.5 and 0.5.
    assert summary["greedy"] == {"before": 0.0, "after": 1.0, "gain": 1.0, "gain_low": 0.5, "gain_high": 1.5}
    # without the control questions: gains 2 (a) and 0 (b)
    assert summary["needs_memory"]["sampled"] == {"before": 0.0, "after": 1.0, "gain": 1.0, "gain_low": 0.0, "gain_high": 2.0}
    assert summary["correctness"]["greedy"] == {"before": 0.25, "after": 1.0}
    assert summary["references"][0]["reward"] == {"mean": 1.0, "low": 1.0, "high": 1.0}


def test_a_metric_nobody_could_compute_is_a_dash_and_not_a_zero() -> None:
    table = render_table(PAIRS, REFERENCES, judge="lexical")
    row = next(line for line in table.splitlines() if line.startswith("fact"))
    assert "0.00→1.00" in row and "–→–" in row and "0→0" not in row.replace("0.00→1.00", "")
    assert "judge: lexical" in table


def make_summary(seed: int, gain: float) -> dict:
    value = {"before": 0.0, "after": gain, "gain": gain, "gain_low": gain - 0.1, "gain_high": gain + 0.1}
    modes = {"sampled": value, "greedy": value}
    seconds = {"banks": 1.0, "sft": 2.0, "grpo": 3.0, "eval": 4.0, "job": 10.0}
    correct = {mode: {"before": 0.1, "after": 0.2} for mode in modes}
    reference = {"name": "script", "mode": "fixed", "reward": {"mean": 0.5, "low": 0.4, "high": 0.6}}
    return {
        "seed": seed,
        "steps": 2,
        "judge": "lexical",
        "load_at_start": 0.1,
        "seconds": seconds,
        "correctness": correct,
        "references": [reference],
        **modes,
        "needs_memory": modes,
    }


def test_means_over_seeds_are_means() -> None:
    table = build_table([make_summary(0, 0.2), make_summary(1, 0.4)])
    assert table["mean"]["all/greedy"] == {"before": 0.0, "after": 0.3, "gain": 0.3}


def test_the_page_keeps_what_stands_around_the_table(tmp_path: Path) -> None:
    page = tmp_path / "reproduce.md"
    page.write_text(f"intro\n{BEGIN}\nold\n{END}\noutro\n")
    write_reproduction([make_summary(0, 0.2)], json_path=tmp_path / "out" / "table.json", docs_path=page)
    text = page.read_text()
    assert text.startswith("intro\n") and text.endswith("outro\n") and "old" not in text and "+0.20 [+0.10, +0.30]" in text and "Judge: lexical." in text
    assert json.loads((tmp_path / "out" / "table.json").read_text())["seeds"][0]["seed"] == 0


def test_a_page_without_markers_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    page = tmp_path / "reproduce.md"
    page.write_text("no markers")
    with pytest.raises(DataError, match="lacks the place for the table"):
        write_reproduction([make_summary(0, 0.2)], json_path=tmp_path / "table.json", docs_path=page)
    assert page.read_text() == "no markers" and not (tmp_path / "table.json").exists()


def test_a_missing_summary_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="summary.json"):
        load_summaries([tmp_path])
