"""Agreement statistics against numbers worked out by hand, and what has no value."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from napmem_rl.errors import DataError
from napmem_rl.rewards.agreement import cohen_kappa, compare_labels, fleiss_kappa, wilson_rate
from napmem_rl.rewards.agreement_report import LabelRow, find_majority, load_labels, render_agreement, report_agreement


def labels(text: str) -> list[bool]:
    """Labels out of "++-"."""
    return [sign == "+" for sign in text]


def test_the_judge_of_the_paper_comes_out_as_its_appendix_says() -> None:
    """NapMem, table 8: 100 examples, one right answer rejected, none accepted wrongly; half of them right."""
    found = compare_labels([True] * 49 + [False] * 51, [True] * 50 + [False] * 50)
    assert (found.accuracy.value, found.precision.value, found.recall.value) == (0.99, 1.0, 0.98)
    assert found.f1.value == pytest.approx(0.98990, abs=1e-5) and round(found.f1.value, 2) == 0.99
    assert found.kappa.value == pytest.approx(0.98), "p_o .99, p_e .49*.5 + .51*.5 = .5"
    assert (found.num_false_accepts, found.num_false_rejects) == (0, 1)
    assert (found.accuracy.n, found.precision.n, found.recall.n, found.kappa.n) == (100, 49, 50, 100)


def test_three_annotators_as_in_the_paper_give_its_kappas() -> None:
    """Five of 100 items are not unanimous, each with one other voice: once the first rater's, twice each of the others'."""
    rows = [[True] * 3] * 47 + [[False] * 3] * 48
    odd = [[False, True, True], [True, False, True], [True, False, True], [False, False, True], [False, False, True]]
    ratings = rows + odd
    pairs = [cohen_kappa([row[a] for row in ratings], [row[b] for row in ratings]).value for a, b in ((0, 1), (0, 2), (1, 2))]
    assert [round(value, 2) for value in pairs] == [0.94, 0.94, 0.92]
    assert fleiss_kappa(ratings).value == pytest.approx(0.933, abs=5e-4)


def test_kappas_worked_by_hand() -> None:
    assert cohen_kappa(labels("++--"), labels("+-+-")).value == 0.0
    assert cohen_kappa(labels("+-"), labels("-+")).value == -1.0
    assert cohen_kappa("aabbc", "aabcc").value == pytest.approx((0.8 - 0.32) / (1 - 0.32)), "p_e = (2*2 + 2*1 + 1*2) / 25"
    assert fleiss_kappa([labels("++-"), labels("+++")]).value == pytest.approx((2 / 3 - 26 / 36) / (1 - 26 / 36)), "P = (1/3 + 1)/2, p_e = (5/6)^2 + (1/6)^2"
    assert fleiss_kappa([labels("++"), labels("--")]).value == 1.0


def test_the_table_of_fleiss_paper_gives_its_kappa() -> None:
    """14 raters, 10 subjects, 5 categories; the worked example that is found in textbooks: .21."""
    table = ["0 0 0 0 14", "0 2 6 4 2", "0 0 3 5 6", "0 3 9 2 0", "2 2 8 1 1", "7 7 0 0 0", "3 2 6 3 0", "2 5 3 2 2", "6 5 2 1 0", "0 2 2 3 7"]
    ratings = [[category for category, count in enumerate(map(int, row.split())) for _ in range(count)] for row in table]
    assert fleiss_kappa(ratings).value == pytest.approx(0.2099, abs=1e-4)


def test_what_does_not_exist_is_absent_with_a_reason_and_never_zero() -> None:
    everything = compare_labels(labels("++"), labels("++"))
    assert everything.kappa.value is None and "one and the same label" in everything.kappa.absent and everything.kappa.n == 2
    nothing = compare_labels(labels("--"), labels("--"))
    assert (nothing.precision.absent, nothing.recall.absent) == ("the judge calls nothing correct", "nothing is labelled correct")
    assert nothing.f1.value is None and nothing.accuracy.value == 1.0
    missed = compare_labels(labels("--"), labels("+-"))
    assert missed.precision.value is None and missed.recall.value == 0.0 and missed.f1.value == 0.0 and missed.kappa.value == 0.0
    empty = compare_labels([], [])
    assert all(one.value is None for one in (empty.accuracy, empty.precision, empty.recall, empty.f1, empty.kappa))
    assert fleiss_kappa([]).absent == "no item" and fleiss_kappa([[True]]).absent == "one rater agrees with nobody"
    assert "one and the same label" in fleiss_kappa([[True] * 3] * 4).absent


def test_labels_that_do_not_pair_up_are_refused() -> None:
    with pytest.raises(ValueError):
        compare_labels(labels("+"), labels("++"))
    with pytest.raises(ValueError, match=r"rows of \[2, 3\] labels"):
        fleiss_kappa([labels("++"), labels("+++")])


@pytest.mark.parametrize(("count", "n", "low", "high"), [(0, 10, 0.0, 0.2775), (3, 96, 0.0107, 0.0879), (10, 10, 0.7225, 1.0), (50, 100, 0.4038, 0.5962)])
def test_wilson_intervals_are_those_of_the_tables(count: int, n: int, low: float, high: float) -> None:
    rate = wilson_rate(count, n)
    assert (rate.value, rate.low, rate.high) == (count / n, pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))
    assert wilson_rate(0, 0).value is None


def test_a_file_of_labels_is_read_in_all_its_forms(tmp_path: Path) -> None:
    rows = [
        {"id": "q1", "labels": {"ana": True, "ben": 1, "cem": "correct"}, "judge": "correct"},
        {"id": "q2", "labels": {"ana": False, "ben": True, "cem": None}, "judge": True},
        {"id": "q3", "labels": {"ana": 0, "ben": "incorrect", "cem": False}},
    ]
    lines, listed = tmp_path / "l.jsonl", tmp_path / "l.json"
    lines.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n", encoding="utf-8")
    listed.write_text(json.dumps(rows), encoding="utf-8")
    read = load_labels(lines)
    assert read == load_labels(listed) and read[1] == LabelRow(labels={"ana": False, "ben": True}, judge=True)
    assert [find_majority(row) for row in read] == [True, None, False]
    report = report_agreement(read)
    assert (report.raters, report.num_rows, report.num_ties) == (("ana", "ben", "cem"), 3, 1)
    assert report.judge is not None and report.judge.accuracy.n == 1, "a tie and an item without a verdict are left out"
    assert report.pairs["ana, cem"].n == 2 and report.pairs["ana, cem"].value == 1.0 and report.fleiss is not None and report.fleiss.n == 2


def test_lists_of_labels_name_raters_by_number_and_one_rater_needs_no_majority(tmp_path: Path) -> None:
    path = tmp_path / "l.json"
    path.write_text('[{"labels": [true], "judge": true}, {"labels": [false], "judge": true}]', encoding="utf-8")
    report = report_agreement(load_labels(path))
    text = render_agreement(report)
    assert report.raters == ("rater 1",) and report.fleiss is None and not report.pairs
    assert "judge against the labels" in text and "precision     0.500 (n=2)" in text and "wrong answers accepted: 1" in text
    assert "Cohen's kappa 0.000 (n=2)" in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "hold no label"),
        ("{", r"line 1: is not JSON"),
        ("[{]", "is not JSON"),
        ('{"labels": {"ana": true}}\n{"judge": true}', r"row 2 \(counting from 1\): holds no labels"),
        ('{"labels": {"ana": "yes"}}', "label of ana: is no label; got 'yes'"),
        ('{"labels": {"ana": 2}}', "is no label"),
        ('{"labels": {"ana": true}, "judge": "right"}', "judge: is no label"),
        ('{"labels": {"ana": null}}', "hold no label"),
        ("[3]", "holds no labels"),
    ],
)
def test_a_file_that_holds_something_else_is_refused_with_its_row(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "l.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=words):
        load_labels(path)
    with pytest.raises(DataError, match="cannot be read"):
        load_labels(tmp_path / "none")
