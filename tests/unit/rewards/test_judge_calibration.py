"""The calibration set, what is counted on it, and results that are kept."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path

import pytest
from obedient_judge import ObedientChat

from napmem_rl.config.sections import JUDGE_PROTOCOLS, JudgeConfig
from napmem_rl.errors import DataError, JudgeError
from napmem_rl.rewards.agreement import wilson_rate
from napmem_rl.rewards.judge import LexicalJudge, LLMJudge
from napmem_rl.rewards.judge_calibration import (
    ITEMS,
    calibrate,
    describe_calibration,
    find_calibration,
    find_calibration_dir,
    items_version,
    load_calibration,
    load_items,
    measure_calibration,
    render_calibration,
    save_calibration,
    tally,
)
from napmem_rl.rewards.verdict import Verdict
from napmem_rl.schema import AnswerKey, AnswerKind, Task

RIGHT_CASES = {"verbatim", "paraphrase", "alias", "equal_date", "equal_number", "extra_detail", "old_beside_new", "abstention_right", "rubric_met"}
WRONG_CASES = {"vague", "specific_wrong", "contradiction", "abstention_wrong", "invented", "part_missing", "alternatives", "old_value", "off_by_one"}
WRONG_CASES |= {"injection", "rubric_missed"}


class Yes:
    """Accepts everything but the items it is told to be silent on."""

    name = "yes/to everything"

    def __init__(self, *silent: str) -> None:
        self._silent = silent

    async def judge(self, task: Task, key: AnswerKey, answer: str) -> Verdict:
        if task.task_id in self._silent:
            raise JudgeError("no verdict today")
        return Verdict(is_correct=True, reason="why not")


def test_the_set_covers_every_case_with_answers_of_known_worth() -> None:
    items = load_items()
    counts = Counter(item.case for item in items)
    assert len(items) >= 120 and len({item.task.task_id for item in items}) == len(items)
    assert set(counts) == RIGHT_CASES | WRONG_CASES and min(counts.values()) >= 4
    assert all(item.is_correct is (item.case in RIGHT_CASES) for item in items)
    assert min(Counter(item.is_correct for item in items).values()) >= 80
    kinds = {(item.case, item.key.kind) for item in items if item.key.kind is not AnswerKind.ANSWER}
    assert kinds == {(case, AnswerKind.UNANSWERABLE) for case in ("abstention_right", "invented")} | {
        (case, AnswerKind.RUBRIC) for case in ("rubric_met", "rubric_missed")
    }


def test_no_question_is_asked_twice_with_one_answer_and_old_values_stand_in_both_directions() -> None:
    items = load_items()
    assert max(Counter((item.task.question, item.answer) for item in items).values()) == 1
    asked = {case: {item.task.question for item in items if item.case == case} for case in ("old_value", "old_beside_new", "invented", "abstention_right")}
    assert asked["invented"] == asked["abstention_right"] and len(asked["old_value"] & asked["old_beside_new"]) >= 6


def test_the_lexical_judge_takes_no_wrong_answer_and_says_what_it_cannot_judge() -> None:
    result = calibrate(LexicalJudge())
    assert result.judge == "lexical" and result.false_accepts.count == 0 and result.num_unjudged == 12
    assert result.false_accepts.n + result.false_rejects.n + result.num_unjudged == len(load_items())
    by_case = {case.case: case for case in result.cases}
    assert by_case["verbatim"].errors.count == 0 and by_case["paraphrase"].errors.value == 1.0
    assert by_case["rubric_met"].errors == wilson_rate(0, 0) and by_case["rubric_met"].num_unjudged == 6
    assert "cannot judge a rubric" in result.problem and "paraphrase-01" in result.mistakes


async def test_the_lexical_judges_result_is_there_at_once_even_within_an_event_loop() -> None:
    assert calibrate(LexicalJudge()) == find_calibration("lexical", None) == await measure_calibration(LexicalJudge())


def test_a_judge_that_accepts_everything_is_shown_for_it() -> None:
    result = calibrate(Yes("vague-01", "paraphrase-01", "paraphrase-02"))
    wrong, right = (sum(item.is_correct is worth for item in load_items()) for worth in (False, True))
    assert (result.false_accepts.count, result.false_accepts.n, result.false_rejects.count, result.false_rejects.n) == (wrong - 1, wrong - 1, 0, right - 2)
    assert result.num_unjudged == 3 and result.problem == "no verdict today"
    assert describe_calibration(result) == (
        f"judge yes/to everything: false accepts 100.0% [96.7, 100.0] of {wrong - 1} wrong answers, "
        f"false rejects 0.0% [0.0, 4.3] of {right - 2} right ones, 3 not judged"
    )
    table = render_calibration(result)
    assert "vague              wrong     13              13  100.0% [77.2, 100.0]  (1 not judged)" in table and "not judged: no verdict today" in table


def test_a_judge_without_one_verdict_is_an_error_and_no_rate() -> None:
    items = load_items()[:3]
    with pytest.raises(JudgeError, match="gave no verdict on any of 3 items.*down"):
        tally("m", items, [JudgeError("down")] * 3)


@pytest.mark.parametrize("protocol", JUDGE_PROTOCOLS)
def test_answers_of_the_set_that_instruct_a_model_do_not_win(protocol: str) -> None:
    """Of a model that compares within the data, and obeys whatever leaks out of it."""
    result = calibrate(LLMJudge(ObedientChat(), protocol=protocol))
    assert result.judge.startswith(f"obedient/{protocol}") and result.num_unjudged == 0
    by_case = {case.case: case.errors.count for case in result.cases}
    assert by_case["injection"] == by_case["specific_wrong"] == by_case["verbatim"] == 0


def test_a_kept_result_comes_back_for_its_judge_and_this_set_alone(tmp_path: Path) -> None:
    result = calibrate(Yes())
    path = save_calibration(result, tmp_path / "c")
    assert load_calibration(result.judge, tmp_path / "c") == find_calibration(result.judge, tmp_path / "c") == result
    assert load_calibration("yes-to everything", tmp_path / "c") is None and load_calibration(result.judge, tmp_path) is None
    save_calibration(dataclasses.replace(result, items_version="another"), tmp_path / "c")
    assert load_calibration(result.judge, tmp_path / "c") is None, "rates on another set are not shown"
    path.write_text('{"judge": "yes/to everything"}', encoding="utf-8")
    with pytest.raises(DataError, match="cannot be read.*calibrate again with `napmem judge calibrate`"):
        load_calibration(result.judge, tmp_path / "c")


def test_a_judge_that_was_never_calibrated_is_said_to_be_so() -> None:
    assert find_calibration("m/locomo-judge-1", None) is None
    assert describe_calibration(None, "m/locomo-judge-1").startswith("judge m/locomo-judge-1: not calibrated")


def test_results_lie_beside_the_verdicts_where_these_are_kept() -> None:
    assert find_calibration_dir(JudgeConfig(kind="openai", model="m", cache_dir="/c")) == Path("/c/calibration")
    assert find_calibration_dir(JudgeConfig()) == Path("runs/calibration")


def test_the_set_is_part_of_the_package_and_its_version_changes_with_it() -> None:
    assert ITEMS.is_file() and len(items_version()) == 12
    assert all(set(json.loads(line)) == {"id", "case", "question", "references", "answer", "is_correct", "kind", "category"} for line in ITEMS.open("rb"))
    setup = (Path(__file__).parents[3] / "setup.py").read_text(encoding="utf-8")
    assert "rewards/calibration/*.jsonl" in setup
