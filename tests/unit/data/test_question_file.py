"""Users' own questions: what a line may hold, and what is a bad line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from napmem_rl.data.question_file import load_own_data
from napmem_rl.data.source import SourceSet
from napmem_rl.errors import DataError
from napmem_rl.schema import AnswerKind

MESSAGE = {"user_id": "ana", "message_id": "1", "session_id": "s1", "role": "user", "text": "I moved to Oslo.", "time": "2024-03-05T13:56:00"}
QUESTION = {"bank_id": "ana", "question": "Where does Ana live?", "answer": "Oslo", "evidence_ids": ["1"]}


def load(tmp_path: Path, *questions: Any, on_bad_line: str = "error") -> SourceSet:
    (tmp_path / "m.jsonl").write_text(json.dumps(MESSAGE) + "\n")
    (tmp_path / "q.jsonl").write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in questions))
    return load_own_data(tmp_path / "m.jsonl", tmp_path / "q.jsonl", name="mine", on_bad_line=on_bad_line)


def test_a_plain_question_gets_what_it_does_not_say(tmp_path: Path) -> None:
    source = load(tmp_path, QUESTION)
    ((task, key),) = source.items
    assert (task.task_id, task.bank_id, task.category, task.needs_memory, task.asked_at) == ("q:1", "ana", "question", True, None)
    assert key.references == ("Oslo",) and key.evidence_ids == ("msg:1",) and key.kind is AnswerKind.ANSWER
    assert source.name == "mine"
    assert [(repair.kind, repair.before, repair.after) for repair in source.repairs] == [("id_prefixed", "1 lines", "'msg:' stands before the id")]


def test_options_kinds_and_moments_are_taken_and_the_answer_of_a_choice_may_be_its_text_or_letter(tmp_path: Path) -> None:
    choice = QUESTION | {"options": ["Rome", "Oslo"], "task_id": 7, "asked_at": "2024-06-01T00:00:00Z"}
    open_end = {key: value for key, value in QUESTION.items() if key != "answer"} | {"references": ["warm words", 3], "kind": "rubric", "needs_memory": False}
    items = load(tmp_path, choice, choice | {"answer": "B", "task_id": "x"}, open_end).items
    assert [key.references for _, key in items] == [("B",), ("B",), ("warm words", "3")]
    assert items[0][0].task_id == "7" and items[0][0].asked_at == "2024-06-01T00:00:00" and items[0][0].options == ("Rome", "Oslo")
    assert items[2][1].kind is AnswerKind.RUBRIC and items[2][0].needs_memory is False


def test_evidence_that_no_message_has_is_left_out_and_reported(tmp_path: Path) -> None:
    source = load(tmp_path, QUESTION | {"evidence_ids": ["msg:1", "msg:9", "msg:1"]})
    assert source.items[0][1].evidence_ids == ("msg:1",)
    assert [(repair.kind, repair.before) for repair in source.repairs if repair.where == "q:1"] == [("evidence_without_message", "msg:9")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("oops", "line 1: is not JSON"),
        (QUESTION | {"bank_id": "bob"}, "line 1: no messages of bank 'bob'"),
        (QUESTION | {"anwser": "x"}, "'anwser' is no field of a question"),
        (QUESTION | {"question": " "}, "question is blank"),
        (QUESTION | {"answer": ""}, "an answer is blank"),
        (QUESTION | {"references": ["x"]}, "needs either answer or references"),
        (QUESTION | {"options": ["Rome", "Lima"]}, "neither one of the options nor a letter of AB"),
        (QUESTION | {"options": ["Rome"]}, "expected a list of two texts or more"),
        (QUESTION | {"kind": "maybe"}, "kind is 'maybe', expected answer, rubric, unanswerable"),
        (QUESTION | {"needs_memory": "yes"}, "needs_memory is 'yes'"),
        (QUESTION | {"asked_at": "soon"}, "time is 'soon'"),
        (QUESTION | {"user_id": "eve"}, "bank_id and user_id differ"),
    ],
)
def test_a_bad_line_is_told_with_its_number_or_left_out_and_reported(tmp_path: Path, line: Any, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        load(tmp_path, line)
    source = load(tmp_path, line, QUESTION, on_bad_line="skip")
    assert [task.task_id for task, _ in source.items] == ["q:2"]
    (left_out,) = (repair for repair in source.repairs if repair.kind == "bad_line")
    assert (left_out.group_id, left_out.where) == ("q.jsonl", "line 1") and re.search(expected, f"{left_out.where}: {left_out.before}")


def test_a_repeated_task_id_is_a_bad_line_and_no_question_at_all_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 2: task_id a stands earlier"):
        load(tmp_path, QUESTION | {"task_id": "a"}, QUESTION | {"task_id": "a"})
    with pytest.raises(DataError, match="hold no questions that can be used"):
        load(tmp_path, "{", on_bad_line="skip")
