"""The summary of an evaluation, as JSON, text and page: hand-made answers, hand-worked figures."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from prepared_maker import write_prepared

from napmem_rl.evals.evaluation import NotAsked
from napmem_rl.evals.evaluation_page import MAX_QUESTIONS, render_evaluation_page
from napmem_rl.evals.prepared import Benchmark, load_split
from napmem_rl.evals.result_rows import AnswerRow, ScoreRow
from napmem_rl.evals.summary import NO_CALL, BenchmarkResult, build_summary, find_main_metric, render_summary, sort_metrics, summarise_tool_use
from napmem_rl.evals.summary_text import render_markdown

HOSTILE = "<img src=x onerror=alert(1)>$style </script>\u2028"


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Benchmark:
    data = write_prepared(tmp_path_factory.mktemp("summary") / "things", users=2, questions=4)
    return load_split(data, "test", name="things")


def make_call(level: str, *, ok: bool = True) -> dict:
    return {"name": f"search_{level}", "arguments": {}, "text": "", "is_success": ok, "failure": None, "level": level, "item_ids": [], "message_ids": []}


def make_answer(task_id: str, *, answer: str | None = "attic", status: str = "completed", calls: tuple[dict, ...] = (), **fields) -> AnswerRow:
    category = "none" if task_id.endswith("3") else ("fact", "place")[int(task_id[-1]) % 2]
    trajectory = {"status": status, "final_answer": answer, "detail": "no\nconnection", "category": category, "question": f"Where? {HOSTILE}"}
    trajectory |= {"options": [], "turns": [{"calls": list(calls)}]}
    plain = {"benchmark": "things", "sample": 0, "seed": 1, "group_id": f"group-{task_id[2]}", "context_ids": ("msg:0",), "context_ranked": True}
    spent = {"prompt_tokens": 100, "completion_tokens": 4, "latency_s": 0.5, "retrieval_s": 0.1}
    return AnswerRow(task_id=task_id, trajectory=trajectory, **plain | spent | fields)


def make_score(task_id: str, value: float | None, **fields) -> ScoreRow:
    kind = "unanswerable" if task_id.endswith("3") else "answer"
    known = {"scores": {"judge": value, "recall@5": 1.0}} if value is not None else {"absent": {"judge": "the judge gave no verdict"}}
    base = {"sample": 0, "group_id": f"group-{task_id[2]}", "category": "none" if kind != "answer" else ("fact", "place")[int(task_id[-1]) % 2], "kind": kind}
    return ScoreRow(task_id=task_id, final_answer=HOSTILE, references=(HOSTILE,), evidence_ids=("msg:0",), judge="lexical", **base | known | fields)


def make_result(benchmark: Benchmark) -> BenchmarkResult:
    """Eight questions: six with scores (two of them unanswerable), one that failed, one that could not be asked."""
    ids = [f"q:{user}:{number}" for user in range(2) for number in range(4)]
    answers = [make_answer(task_id) for task_id in ids[:6]] + [make_answer("q:1:2", answer=None, status="error_llm")]
    values = {"q:0:0": 1.0, "q:0:1": 0.0, "q:0:2": 1.0, "q:0:3": 1.0, "q:1:0": 0.0, "q:1:1": None}
    scores = [make_score(task_id, value) for task_id, value in values.items()]
    not_asked = [NotAsked(benchmark="things", task_id="q:1:3", sample=0, reason="bank: gone")]
    return BenchmarkResult(benchmark=benchmark, samples=1, answers=answers, scores=scores, not_asked=not_asked)


def make_summary(*results: BenchmarkResult) -> dict:
    judge = {"name": "lexical", "calibration": None, "calibration_line": "judge lexical: false accepts 0.0%"}
    return build_summary(results, policy={"name": f"policy {HOSTILE}", "facts": {"access": "passive", "model": None}}, judge=judge, notes=[f"a note {HOSTILE}"])


def test_every_figure_says_on_how_many_answers_it_rests(benchmark: Benchmark) -> None:
    summary = json.loads(render_summary(make_summary(make_result(benchmark))))
    part = summary["benchmarks"]["things"]
    assert (part["num_questions"], part["num_wanted"], part["num_answers"], part["num_missing"]) == (8, 8, 6, 2) and not summary["is_complete"]
    assert part["errors"] == [{"status": "error_llm", "detail": "no connection", "count": 1}] and part["not_asked"]["by_reason"] == {"bank: gone": 1}
    judge = part["scores"]["overall"]["judge"]
    assert (judge["interval"]["mean"], judge["interval"]["num_values"], judge["interval"]["num_users"]) == (0.5, 4, 2)
    assert judge["absent"] == {"the judge gave no verdict": 1}
    assert part["scores"]["unanswerable"]["judge"]["interval"]["num_values"] == 1 and part["main_metric"] == "judge"
    assert part["cost"]["prompt_tokens"] == {"n": 6, "mean": 100.0, "p50": 100.0, "p95": 100.0, "total": 600.0}
    assert set(part["cost_by_category"]) == {"fact", "place", "none"}


def test_what_the_engine_did_not_tell_is_absent_and_not_zero(benchmark: Benchmark) -> None:
    answers = [make_answer("q:0:0", prompt_tokens=None, completion_tokens=None), make_answer("q:0:1", prompt_tokens=None, completion_tokens=2)]
    result = BenchmarkResult(benchmark=benchmark, samples=1, answers=answers, scores=[], not_asked=[])
    summary = make_summary(result)
    cost = summary["benchmarks"]["things"]["cost"]
    assert "prompt_tokens" not in cost and cost["completion_tokens"]["n"] == 1
    assert "Not told by the engine: prompt tokens." in render_markdown(summary)


def test_tool_use_is_counted_by_level_and_by_first_action() -> None:
    rows = [
        make_answer("q:0:0", calls=(make_call("record"), make_call("raw"))),
        make_answer("q:0:1", calls=(make_call("record", ok=False),)),
        make_answer("q:0:2"),
        make_answer("q:1:0", calls=(make_call("profile"),)),
    ]
    use = summarise_tool_use(rows)
    assert use["calls_per_question"] == 1.0 and use["calls_by_level"] == {"raw": 0.25, "record": 0.5, "track": 0.0, "profile": 0.25}
    assert use["first_action"] == {"raw": 0.0, "record": 0.5, "track": 0.0, "profile": 0.25, NO_CALL: 0.25} and use["failed_calls"] == 1
    assert summarise_tool_use([make_answer("q:0:0")]) == {}


def test_the_text_shows_intervals_counts_calibration_and_what_is_missing(benchmark: Benchmark) -> None:
    text = render_markdown(make_summary(make_result(benchmark)))
    assert "| judge | 0.500 [" in text and "| 4 | 2 |" in text and "false accepts 0.0%" in text and "Not complete" in text
    assert "6 of 8 attempts answered; 1 failed by our doing and are not scored; 1 could not be asked." in text
    assert "2 groups are few: such intervals are narrower than they should be." in text and "- absent: judge: the judge gave no verdict (1)" in text
    assert "Unanswerable questions (1), which are not in the table above" in text and "- 1 not asked: bank: gone" in text


def test_a_figure_of_fewer_answers_than_others_of_its_row_says_so(benchmark: Benchmark) -> None:
    result = make_result(benchmark)
    words = {"q:0:1": {"judge": 0.0, "token_f1": 0.5}, "q:1:1": {"token_f1": 0.5}}
    scores = [dataclasses.replace(make_score(task_id, None), scores=given) for task_id, given in words.items()]
    text = render_markdown(make_summary(dataclasses.replace(result, scores=scores)))
    assert "| place | 2 | 0.000 [one group] (n 1) | 0.500 [0.500, 0.500] |" in text


def test_known_wrong_references_stand_beside_all(benchmark: Benchmark) -> None:
    result = make_result(benchmark)
    scores = [make_score(row.task_id, row.scores["judge"], audited=row.task_id != "q:0:1") for row in result.scores if "judge" in row.scores]
    audited = BenchmarkResult(benchmark=benchmark, samples=1, answers=result.answers, scores=scores, not_asked=[])
    summary = make_summary(audited)
    assert "without known wrong references" in render_markdown(summary)
    assert summary["benchmarks"]["things"]["scores"]["overall"]["judge"]["audited"]["mean"] == pytest.approx(2 / 3)
    assert "whose reference is known to be wrong" in render_evaluation_page(summary, [audited])


def test_the_page_fetches_nothing_runs_nothing_and_lets_no_text_become_markup(benchmark: Benchmark) -> None:
    result = make_result(benchmark)
    page = render_evaluation_page(make_summary(result), [result])
    assert "<img" not in page and "<script" not in page and "onerror=alert" in page  # as text
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page) and "default-src 'none'" in page and not re.search(r"<[^>]+\sstyle=", page)
    assert page.count("<table") == page.count("</table>") and page.count('role="region" tabindex="0"') >= 4
    assert page.count('<details class="question">') == 7 and page.count('class="scatter"') == 2


def test_the_page_of_many_questions_shows_those_that_went_wrong_of_every_type(benchmark: Benchmark) -> None:
    answers = [make_answer(f"q:{number % 2}:{number % 2}", sample=number) for number in range(MAX_QUESTIONS + 100)]
    scores = [make_score(row.task_id, float(row.sample % 3 == 0), sample=row.sample) for row in answers]
    result = BenchmarkResult(benchmark=benchmark, samples=MAX_QUESTIONS, answers=answers, scores=scores, not_asked=[])
    page = render_evaluation_page(make_summary(result), [result])
    shown = page[page.index("<h3>Questions</h3>") :]
    marks = re.findall(r'class="mark (\w+)"', shown)
    assert len(marks) == MAX_QUESTIONS and marks.count("bad") == sum(row.scores["judge"] == 0 for row in scores)
    assert f"{MAX_QUESTIONS:,} of {len(answers):,}" in shown


def test_metrics_stand_in_the_order_in_which_they_are_read() -> None:
    names = ["recall@20", "recall@5", "token_f1", "exact_match", "judge", "evidence_hit"]
    assert sort_metrics(names) == ["judge", "token_f1", "exact_match", "evidence_hit", "recall@5", "recall@20"]
    assert find_main_metric(names) == "judge" and find_main_metric(names, is_strict=True) == "token_f1"
    assert find_main_metric(["recall@5", "bleu4"]) == "bleu4" and find_main_metric([]) is None


def test_an_evaluation_of_nothing_still_has_a_page(benchmark: Benchmark, tmp_path: Path) -> None:
    result = BenchmarkResult(benchmark=benchmark, samples=1, answers=[], scores=[], not_asked=[])
    summary = make_summary(result)
    assert "0 of 8 attempts answered" in render_markdown(summary) and "0 of 8 attempts answered" in render_evaluation_page(summary, [result])
