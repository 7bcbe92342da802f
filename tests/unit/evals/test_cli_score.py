"""`napmem score`: rows out, summary aside, one clear line where it cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from napmem_rl.cli import main

ROWS = [
    {"id": "q1", "category": 4, "gold": "a red kite", "prediction": "the kite"},
    {"category": 1, "gold": "bread, cheese", "prediction": "cheese"},
    {"id": 9, "category": 5, "gold": "x", "prediction": "not mentioned"},
]


def run(tmp_path: Path, metric: str, rows: list[dict], *more: str) -> int:
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps({"pairs": rows}))
    return main(["score", "--metric", metric, "--pairs", str(path), *more])


def test_a_row_a_pair_in_the_order_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "locomo_f1", ROWS) == 0
    out, err = capsys.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row.pop("score") for row in rows] == [pytest.approx(2 / 3), 0.5, 1.0]
    assert rows == [
        {"id": "q1", "category": 4, "metric": "locomo_f1"},
        {"id": 1, "category": 1, "metric": "locomo_f1"},
        {"id": 9, "category": 5, "metric": "locomo_f1"},
    ]
    assert "locomo_f1: mean 0.7222, 95% " in err and "n = 3" in err and "category 5: mean 1.0000, n = 1" in err


def test_a_metric_over_all_pairs_is_one_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"gold": "we moved to Oslo", "prediction": "we moved to Oslo"}] * 2
    assert run(tmp_path, "bleu4_corpus", rows) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == {"metric": "bleu4_corpus", "num_pairs": 2, "score": pytest.approx(1.0)} and "one figure of 2 pairs" in err


@pytest.mark.parametrize(
    ("metric", "rows", "words"),
    [
        ("rouge", ROWS, "Did you mean rouge_l?"),
        ("recall", ROWS, "is of what a policy read"),
        ("bertscore", ROWS, "needs a model"),
        ("meteor", ROWS, "needs the files of WordNet"),
        ("locomo_f1", [*ROWS, {"category": "fact", "gold": "x", "prediction": "x"}], "json, row 3 (counting from 0), field 'category': is none of LoCoMo's"),
        ("token_f1", [{"category": 5, "gold": None, "prediction": "x"}], "row 0 (counting from 0), field 'gold': is empty"),
        ("exact_match", [{"gold": "x"}], "field 'prediction': is missing"),
    ],
)
def test_what_cannot_be_scored_is_one_line_and_no_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], metric: str, rows: list[dict], words: str
) -> None:
    assert run(tmp_path, metric, rows) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("napmem: ") and words in err and err.count("\n") == 1


def test_a_model_for_a_metric_that_takes_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "exact_match", ROWS, "--model", str(tmp_path)) == 1
    assert "--model: would do nothing: the metric exact_match needs no model (these do: bertscore, mauve, meteor)" in capsys.readouterr().err


def test_a_category_given_as_number_and_as_name_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"category": category, "gold": "tea", "prediction": "tea"} for category in (1, "multi-hop", "temporal")]
    assert run(tmp_path, "token_f1", rows) == 0
    summary = capsys.readouterr().err.splitlines()[1:]
    assert [line.partition(": ")[0].strip() for line in summary] == ["category 1, multi-hop", "category temporal"] and "n = 2" in summary[0]


def test_a_pair_of_json_lines_that_cannot_be_scored_is_named_by_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"gold": "x", "prediction": "x"}\n\n{"id": "q", "gold": null, "prediction": "x"}\n')
    assert main(["score", "--metric", "exact_match", "--pairs", str(path)]) == 1
    assert "pairs.jsonl, line 3, field 'gold': is empty" in capsys.readouterr().err
