"""From answers to scores: what is scored, what is 0, and what is absent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from napmem_rl.errors import BankError, DataError, JudgeError
from napmem_rl.evals.aggregate_scores import summarise_scores
from napmem_rl.evals.result_rows import AnswerRow, ScoreRow
from napmem_rl.evals.scoring import JUDGE, check_audit, load_audit, score_answers, score_corpus
from napmem_rl.evals.text_metrics.registry import load_metrics
from napmem_rl.evals.trajectory_rows import render_trajectory
from napmem_rl.rewards.judge import LexicalJudge
from napmem_rl.rewards.verdict import Verdict
from napmem_rl.schema import AnswerKey, AnswerKind, Status, Task, Trajectory

METRICS = load_metrics(["exact_match", "locomo_f1", "multiple_choice", "recall", "bertscore"])


def answer(task_id: str, text: str | None, *, category: str = "single-hop", status: Status | None = None, options: tuple[str, ...] = (), **fields) -> AnswerRow:
    task = Task(task_id=task_id, bank_id="bank", question="Where?", category=category, needs_memory=True, options=options)
    status = status or (Status.COMPLETED if text is not None else Status.TRUNCATED)
    trajectory = render_trajectory(Trajectory(task=task, turns=(), final_answer=text, status=status, detail="why"))
    base = {
        "benchmark": "b", "task_id": task_id, "sample": 0, "seed": 0, "group_id": "g1", "trajectory": trajectory, "context_ids": ("msg:1",),
        "context_ranked": True, "prompt_tokens": None, "completion_tokens": None, "latency_s": 1.0, "retrieval_s": 0.0,
    }  # fmt: skip
    return AnswerRow(**base | fields)


def key(task_id: str, *references: str, **fields) -> tuple[str, AnswerKey]:
    return task_id, AnswerKey(task_id=task_id, references=references, **fields)


async def score(answers: list[AnswerRow], keys: Mapping[str, AnswerKey], **options) -> list[ScoreRow]:
    return await score_answers(answers, keys, metrics=METRICS, **{"judge": LexicalJudge()} | options)


async def test_an_answer_has_every_metric_that_fits_and_a_reason_for_each_that_does_not() -> None:
    (row,) = await score([answer("t", "in Oslo")], dict([key("t", "Oslo", evidence_ids=("msg:1", "msg:2"))]))
    assert row.scores == {
        "exact_match": 0.0, "locomo_f1": pytest.approx(2 / 3), "judge": 0.0, "evidence_recall": 0.5, "evidence_hit": 1.0,
        "recall@1": 0.5, "recall@5": 0.5, "recall@10": 0.5, "recall@20": 0.5,
    }  # fmt: skip
    assert set(row.absent) == {"multiple_choice", "bertscore"} and "needs a model" in row.absent["bertscore"]
    assert (row.judge, row.verdict_reason, row.kind, row.final_answer) == ("lexical", "equals no reference", "answer", "in Oslo")


async def test_an_end_of_the_policys_own_doing_is_worth_zero_and_a_failure_of_ours_nothing() -> None:
    answers = [answer("t", None, status=status) for status in (Status.TRUNCATED, Status.OVER_BUDGET, Status.ERROR_PARSE, Status.ERROR_LLM, Status.ERROR_TOOL)]
    rows = await score(answers, dict([key("t", "Oslo")]))
    for row in rows[:3]:
        assert (row.scores["exact_match"], row.scores["locomo_f1"], row.scores[JUDGE]) == (0.0, 0.0, 0.0) and row.verdict_reason.startswith("no answer")
    for row, status in zip(rows[3:], ("error_llm", "error_tool"), strict=True):
        assert row.scores == {} and row.absent[JUDGE] == row.absent["exact_match"] == f"the attempt failed by the system's doing: {status}"


async def test_kinds_of_questions_have_the_metrics_that_mean_something_for_them() -> None:
    answers = [
        answer("choice", "(b)", options=("x", "y")),
        answer("rubric", "Try the new café", category="preference"),
        answer("abstain", "I don't know", category="multi-session"),
        answer("bait", "That was not mentioned", category="adversarial"),
    ]
    keys = dict(
        [
            key("choice", "B"), key("rubric", "recalls that she likes coffee", kind=AnswerKind.RUBRIC),
            key("abstain", "never told", kind=AnswerKind.UNANSWERABLE, evidence_ids=("msg:1",)), key("bait", "x", kind=AnswerKind.UNANSWERABLE),
        ]
    )  # fmt: skip
    choice, rubric, abstain, bait = await score(answers, keys)
    assert (choice.scores["multiple_choice"], choice.scores[JUDGE]) == (1.0, 1.0) and "exact_match" in choice.absent
    assert not rubric.scores and "rubric" in rubric.absent["exact_match"] and rubric.absent[JUDGE] == "the judge gave no verdict"
    assert "rubric" in rubric.verdict_reason, "the judge's own words"
    assert abstain.scores == {JUDGE: 1.0} and "unanswerable" in abstain.absent["recall@5"]
    assert bait.scores["locomo_f1"] == 1.0 and bait.absent["exact_match"] == "unanswerable: the reference is no answer"
    assert "none of LoCoMo's" in abstain.absent["locomo_f1"]


class SilentJudge:
    name = "silent"

    async def judge(self, task: Task, key: AnswerKey, answer: str) -> Verdict:
        if answer == "fine":
            return Verdict(is_correct=True, reason="equal")
        raise JudgeError.of(f"judge silent, task {task.task_id}", "gave no verdict")


async def test_a_judge_without_a_verdict_leaves_the_score_absent_and_never_zero() -> None:
    done: list[int] = []
    answers = [answer("t", "fine"), answer("t", "else", sample=1)]
    first, second = await score(answers, dict([key("t", "fine")]), judge=SilentJudge(), max_concurrency=1, on_done=done.append)
    assert first.scores[JUDGE] == 1.0 and JUDGE not in second.scores and second.absent[JUDGE] == "the judge gave no verdict"
    assert second.verdict_reason == "judge silent, task t: gave no verdict" and done == [1, 2]
    assert (first.sample, second.sample) == (0, 1)
    summary = summarise_scores([first, second]).overall[JUDGE]
    assert summary.interval is not None and (summary.interval.mean, summary.interval.num_values) == (1.0, 1)
    assert summary.absent == {"the judge gave no verdict": 1}


async def test_a_judge_that_cannot_judge_rubrics_says_nothing_of_those_without_an_answer_either() -> None:
    answers = [answer("r", "likes tea"), answer("r", None, sample=1)]
    rows = await score(answers, dict([key("r", "recalls that she likes tea", kind=AnswerKind.RUBRIC)]))
    assert [row.absent[JUDGE] for row in rows] == ["the judge gave no verdict"] * 2 and all("rubric" in row.verdict_reason for row in rows)
    assert summarise_scores(rows).overall[JUDGE].interval is None, "a mean over the missing answers alone would be 0"


async def test_without_a_judge_nothing_is_said_of_verdicts() -> None:
    (row,) = await score([answer("t", "Oslo")], dict([key("t", "Oslo")]), judge=None)
    assert JUDGE not in row.scores and JUDGE not in row.absent and row.judge == "" and row.scores["exact_match"] == 1.0


async def test_recall_by_sessions_needs_the_banks() -> None:
    keys = dict([key("t", "Oslo", evidence_ids=("msg:2",))])
    (row,) = await score([answer("t", "Oslo")], keys, find_sessions=lambda bank_id: {"msg:1": f"{bank_id}-s1", "msg:2": f"{bank_id}-s1"})
    assert (row.scores["evidence_recall"], row.scores["session_recall@1"]) == (0.0, 1.0)


async def test_of_a_bank_that_is_gone_the_figures_by_sessions_are_absent_and_all_others_there() -> None:
    def find_sessions(bank_id: str) -> Mapping[str, str]:
        raise BankError.of(f"bank {bank_id}", "is not there")

    (row,) = await score([answer("t", "Oslo")], dict([key("t", "Oslo", evidence_ids=("msg:1",))]), find_sessions=find_sessions)
    assert (row.scores["recall@5"], row.scores[JUDGE]) == (1.0, 1.0)
    assert row.absent["session_recall@5"] == row.absent["session_recall"] == "its bank cannot be opened: bank bank: is not there"


async def test_answers_that_do_not_belong_to_the_questions_are_an_error() -> None:
    with pytest.raises(DataError, match="answer t, sample 0: has no key"):
        await score([answer("t", "x")], {})
    stray = answer("t", "x")
    with pytest.raises(DataError, match="holds the trajectory of another task"):
        await score([AnswerRow(**{name: getattr(stray, name) for name in AnswerRow.__slots__} | {"task_id": "u"})], dict([key("u", "x")]))
    with pytest.raises(DataError, match="pair t, field .gold.: is not the letter of an option"):
        await score([answer("t", "A", options=("x", "y"))], dict([key("t", "Oslo")]))


def test_a_corpus_metric_is_one_value_over_open_answers_with_what_is_missing_counted_as_empty() -> None:
    answers = [answer("a", "we moved to Oslo last spring"), answer("b", None), answer("c", None, status=Status.ERROR_LLM), answer("d", "A", options=("x",))]
    keys = dict([key("a", "we moved to Oslo last spring"), key("b", "tea"), key("c", "tea"), key("d", "A")])
    figures = score_corpus(answers, keys, metrics=load_metrics(["bleu4_corpus", "exact_match"]))
    assert set(figures) == {"bleu4_corpus"} and figures["bleu4_corpus"].num_answers == 2
    assert figures["bleu4_corpus"].value == pytest.approx(2.718281828 ** (1 - 7 / 6)), "six words for seven: the brevity penalty is all that is lost"
    nothing = score_corpus(answers[2:], keys, metrics=load_metrics(["bleu4_corpus"]))["bleu4_corpus"]
    assert nothing.value is None and nothing.absent == "no answer that it fits"


async def test_audited_labels_stand_beside_raw_ones(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text('{"task_id": "a", "is_reference_correct": false, "by": "me"}\n\n{"task_id": "b", "is_reference_correct": true}\n')
    keys = dict([key("a", "Oslo"), key("b", "Rome"), key("c", "Bonn")])
    rows = await score([answer("a", "Bergen"), answer("b", "Rome"), answer("c", "Köln", group_id="g2")], keys, audit=load_audit(path))
    assert [row.audited for row in rows] == [False, True, None]
    summary = summarise_scores(rows)
    assert (summary.num_answers, summary.num_labelled, summary.num_known_wrong) == (3, 2, 1)
    raw, audited = summary.overall["exact_match"].interval, summary.overall["exact_match"].audited
    assert raw is not None and audited is not None and (raw.mean, audited.mean, audited.num_values) == (pytest.approx(1 / 3), 0.5, 2)
    assert all(part.audited is None for part in summarise_scores(rows[2:]).overall.values()), "nobody looked at these"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no label"),
        ('{"task_id": "a"}', "line 1: is no label"),
        ('{"task_id": "a", "is_reference_correct": "no"}', "line 1: is no label"),
        ('{"task_id": "a", "is_reference_correct": true}\n{"task_id": "a", "is_reference_correct": false}', "line 2: contradicts an earlier line"),
        ("[1]", "line 1: is no label"),
    ],
)
def test_an_audit_that_cannot_be_read_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "audit.jsonl").write_text(text)
    with pytest.raises(DataError, match=words):
        load_audit(tmp_path / "audit.jsonl")


def test_an_audit_of_something_else_is_refused(tmp_path: Path) -> None:
    check_audit({}, ["t"])
    check_audit({"t": True, "other": False}, ["t"])
    with pytest.raises(DataError, match="names no task of this evaluation; got \\['x'\\]; expected ids such as t"):
        check_audit({"x": True}, ["t"])
    with pytest.raises(DataError, match="no such file"):
        load_audit(tmp_path / "none.jsonl")


async def test_unanswerable_questions_are_a_table_of_their_own() -> None:
    keys = dict([key("a", "Oslo"), key("n", "never told", kind=AnswerKind.UNANSWERABLE), key("r", "likes tea", kind=AnswerKind.RUBRIC)])
    rows = await score([answer("a", "Bergen"), answer("n", "I don't know", category="user"), answer("r", "x", category="preference")], keys)
    summary = summarise_scores(rows)
    assert (summary.num_answers, summary.num_unanswerable) == (3, 1)
    overall, apart = summary.overall[JUDGE], summary.unanswerable[JUDGE]
    assert overall.interval is not None and overall.interval.mean == 0.0 and overall.interval.num_values == 1 and sum(overall.absent.values()) == 1
    assert apart.interval is not None and apart.interval.mean == 1.0
    assert list(summary.by_category) == ["preference", "single-hop"] and list(summary.unanswerable_by_category) == ["user"]
    assert summary.by_category["preference"][JUDGE].interval is None
    assert summarise_scores([]).overall == {} and summary.as_json()["overall"][JUDGE]["interval"]["mean"] == 0.0
