"""Two evaluations side by side: hand-worked differences, and what is said of what does not pair up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from napmem_rl import cli
from napmem_rl.errors import DataError
from napmem_rl.evals.comparison import ALL, UNANSWERABLE, compare_evaluations
from napmem_rl.evals.result_rows import ScoreRow
from napmem_rl.evals.scored_evaluation import load_scores, save_scores


def make_score(task_id: str, *, judged_by: str = "lexical", kind: str = "answer", category: str = "fact", **scores: float) -> ScoreRow:
    plain = {"sample": 0, "group_id": task_id[0], "final_answer": "x", "references": ("y",), "evidence_ids": ()}
    return ScoreRow(task_id=task_id, category=category, kind=kind, scores=scores, judge=judged_by, **plain)


def write(out: Path, rows: list[ScoreRow], *, name: str = "b", data: str = "d1") -> Path:
    facts = {"split": "test", "questions": len(rows), "data_sha256": data, "banks_sha256": "v"}
    settings = {"format": 1, "policy": {"name": out.name, "facts": {}}, "answers_depend_on": {"benchmarks": {name: facts}}}
    out.mkdir(parents=True)
    (out / "evaluation.yaml").write_text(yaml.safe_dump(settings))
    save_scores(out / name / "scores.jsonl", rows)
    return out


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    first = [make_score("a1", judge=0.0), make_score("a2", judge=1.0, category="place"), make_score("b1", judge=0.0)]
    second = [make_score("a1", judge=1.0), make_score("a2", judge=1.0, category="place"), make_score("b1", judge=1.0), make_score("b9", judge=0.0)]
    alone = make_score("a3", judge=1.0, kind="unanswerable")
    return write(tmp_path / "first", [*first, alone]), write(tmp_path / "second", [*second, alone])


def test_differences_are_over_shared_questions_and_the_rest_is_named(sides: tuple[Path, Path]) -> None:
    found = compare_evaluations(*sides)
    assert (found.a, found.b) == ("first", "second") and any("1 questions are in B alone, such as b9" in note for note in found.notes)
    rows = {row.questions: row.comparison for row in found.rows}
    assert set(rows) == {ALL, "fact", "place", UNANSWERABLE}
    # a1 +1, a2 0, b1 +1: groups a (mean 1/2) and b (mean 1)
    assert rows[ALL].num_tasks == 3 and rows[ALL].difference.mean == pytest.approx(2 / 3) and rows[ALL].mean_a == pytest.approx(1 / 3)
    assert rows[ALL].mcnemar.only_b == 2 and rows[ALL].mcnemar.only_a == 0
    assert rows["place"].difference.mean == 0.0 and rows[UNANSWERABLE].num_tasks == 1


def test_the_command_prints_a_table_or_json(sides: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", *map(str, sides)]) == 0
    text = capsys.readouterr().out
    assert "judged by lexical on both sides" in text
    assert "A: first" in text and "+0.667" in text and "n pairs" in text
    assert cli.main(["compare", *map(str, sides), "--json", "--metric", "judge"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 4
    assert cli.main(["compare", *map(str, sides), "--metric", "bleu4"]) == 1
    assert "metric bleu4: is on neither side, or not on both; expected one of judge" in capsys.readouterr().err


def test_what_was_not_measured_the_same_way_is_said(tmp_path: Path, sides: tuple[Path, Path]) -> None:
    other = write(tmp_path / "other", [make_score("a1", judge=1.0, judged_by="gpt/napmem-2")], data="d2")
    notes = compare_evaluations(sides[0], other).notes
    assert any("the data differ" in note for note in notes) and any("judged by lexical in A and by gpt/napmem-2 in B" in note for note in notes)


def test_the_same_data_under_two_names_are_compared(tmp_path: Path, sides: tuple[Path, Path]) -> None:
    other = write(tmp_path / "renamed", [make_score("a1", judge=1.0)], name="copy")
    found = compare_evaluations(sides[0], other)
    assert "b of A is copy of B: the data are the same" in found.notes and not any(note.startswith("only") for note in found.notes)
    assert [(row.benchmark, row.comparison.num_tasks) for row in found.rows if row.questions == ALL] == [("b", 1)]


def test_evaluations_that_share_nothing_are_refused(tmp_path: Path, sides: tuple[Path, Path]) -> None:
    with pytest.raises(DataError, match="share no benchmark"):
        compare_evaluations(sides[0], write(tmp_path / "elsewhere", [make_score("a1", judge=1.0)], name="c", data="d9"))
    with pytest.raises(DataError, match="is no evaluation"):
        compare_evaluations(sides[0], tmp_path)


def test_scores_are_read_back_as_they_were(tmp_path: Path) -> None:
    rows = [make_score("a1", judge=1.0, recall=0.5), make_score("\ud800", kind="rubric")]
    save_scores(tmp_path / "scores.jsonl", rows)
    assert load_scores(tmp_path / "scores.jsonl") == rows
    (tmp_path / "scores.jsonl").write_text('{"task_id": 1}\n')
    with pytest.raises(DataError, match="line 1: is no score"):
        load_scores(tmp_path / "scores.jsonl")
