"""LongMemEval: order, ids, evidence and moments of instances in the published schema (samples of our own), and the real file where it is."""

from __future__ import annotations

import copy
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from napmem_rl.data.longmemeval import load_longmemeval
from napmem_rl.data.source import SourcePart, collect
from napmem_rl.errors import DataError
from napmem_rl.schema import AnswerKind

INSTANCE: dict[str, Any] = {
    "question_id": "q1",
    "question_type": "knowledge-update",
    "question": "How many hens does the user keep now?",
    "answer": 7,
    "question_date": "2023/05/21 (Sun) 12:00",
    "haystack_session_ids": ["late", "early", "early"],
    "haystack_dates": ["2023/05/20 (Sat) 09:00", "2023/05/01 (Mon) 09:00", "2023/05/02 (Tue) 09:00"],
    "haystack_sessions": [
        [{"role": "user", "content": "I have seven hens now.", "has_answer": True}, {"role": "assistant", "content": "Lovely."}],
        [{"role": "assistant", "content": "Hello again!"}, {"role": "user", "content": "I keep four hens.", "has_answer": True}],
        [{"role": "user", "content": "  "}, {"role": "user", "content": "It rains."}],
    ],
    "answer_session_ids": ["late", "early"],
}


def load(tmp_path: Path, **changes: Any) -> SourcePart:
    path = tmp_path / "lme.json"
    path.write_text(json.dumps([copy.deepcopy(INSTANCE) | changes]))
    return next(load_longmemeval(path).parts())


def kinds(part: SourcePart) -> list[str]:
    return sorted(repair.kind for repair in part.repairs)


def test_sessions_are_sorted_ids_made_unique_and_evidence_is_what_is_marked(tmp_path: Path) -> None:
    part = load(tmp_path)
    (bank,), ((task, key),) = part.banks, part.items
    assert [(message.message_id, message.role, message.time) for message in bank.messages] == [
        ("msg:early:0", "assistant", "2023-05-01T09:00:00"),
        ("msg:early:1", "user", "2023-05-01T09:00:01"),
        ("msg:early#2:1", "user", "2023-05-02T09:00:01"),
        ("msg:late:0", "user", "2023-05-20T09:00:00"),
        ("msg:late:1", "assistant", "2023-05-20T09:00:01"),
    ]
    assert key.evidence_ids == ("msg:early:1", "msg:late:0") and key.references == ("7",) and key.kind is AnswerKind.ANSWER
    assert (task.category, task.asked_at, task.bank_id, bank.group_id) == ("knowledge-update", "2023-05-21T12:00:00", "q1", "q1")
    assert kinds(part) == ["answer_number", "empty_turn", "session_id_repeated", "sessions_unsorted"]


def test_evidence_later_on_the_day_of_the_question_moves_the_question_behind_it(tmp_path: Path) -> None:
    part = load(tmp_path, question_date="2023/05/20 (Sat) 08:00")
    assert part.items[0][0].asked_at == "2023-05-20T09:00:02", "one second after the last turn of the evidence's session"
    assert "asked_later" in kinds(part)
    (moved,) = (repair for repair in part.repairs if repair.kind == "asked_later")
    assert (moved.before, moved.after) == ("2023-05-20T08:00:00", "2023-05-20T09:00:02")
    with pytest.raises(DataError, match="instance q1: evidence is of a later day than the question"):
        load(tmp_path, question_date="2023/05/19 (Fri) 08:00")


def test_an_answer_session_without_a_marked_turn_leaves_the_evidence_unknown_but_is_in_sight(tmp_path: Path) -> None:
    sessions = [[{"role": turn["role"], "content": turn["content"]} for turn in session] for session in INSTANCE["haystack_sessions"]]
    part = load(tmp_path, haystack_sessions=sessions, question_date="2023/05/20 (Sat) 08:00")
    assert part.items[0][1].evidence_ids == () and "evidence_unmarked" in kinds(part)
    assert part.items[0][0].asked_at == "2023-05-20T09:00:02"


def test_abstention_and_preference_are_kinds_of_answers_and_keep_their_category(tmp_path: Path) -> None:
    task, key = load(tmp_path, question_id="q1_abs", answer="Nothing was said of geese.").items[0]
    assert key.kind is AnswerKind.UNANSWERABLE and task.category == "knowledge-update"
    task, key = load(tmp_path, question_type="single-session-preference", answer="A good answer speaks of hens.").items[0]
    assert key.kind is AnswerKind.RUBRIC and key.references == ("A good answer speaks of hens.",)


def test_a_session_that_starts_before_the_last_one_ends_is_moved_so_that_time_and_text_agree(tmp_path: Path) -> None:
    long = [{"role": "user", "content": f"Line {number}."} for number in range(65)]
    sessions = [INSTANCE["haystack_sessions"][0], long, INSTANCE["haystack_sessions"][2]]
    dates = ["2023/05/20 (Sat) 09:00", "2023/05/01 (Mon) 09:00", "2023/05/01 (Mon) 09:01"]
    part = load(tmp_path, haystack_sessions=sessions, haystack_dates=dates)
    times = [message.time for message in part.banks[0].messages]
    assert times == sorted(times) and len(set(times)) == len(times) and "session_moved" in kinds(part)


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in INSTANCE.items() if key != name}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (without("haystack_dates"), "instance q1: not LongMemEval's format: no field 'haystack_dates'"),
        (without("question_id"), r"instance 0 \(counting from 0\): not LongMemEval's format: no field 'question_id'"),
        (INSTANCE | {"haystack_dates": ["2023/05/20 (Sat) 09:00"]}, "its lists have different lengths .haystack_session_ids 3, haystack_dates 1"),
        (INSTANCE | {"question_type": "riddle"}, "field 'question_type': is unknown; got 'riddle'"),
        (INSTANCE | {"question_date": "21 May 2023"}, "field 'question_date': not a date"),
        (INSTANCE | {"haystack_sessions": [[{"role": "user"}], [], []]}, "session late, turn 0: not LongMemEval's format: no field 'content'"),
        (INSTANCE | {"haystack_sessions": [[{"role": "tool", "content": "x"}], [], []]}, "field 'role': is unknown; got 'tool'"),
        (INSTANCE | {"haystack_sessions": [[], [], []]}, "holds no turns with text"),
    ],
)
def test_another_version_of_the_file_is_named_with_instance_and_field(tmp_path: Path, raw: dict[str, Any], expected: str) -> None:
    (tmp_path / "lme.json").write_text(json.dumps([raw]))
    with pytest.raises(DataError, match=expected):
        list(load_longmemeval(tmp_path / "lme.json").parts())


def test_an_instance_that_stands_twice_and_a_file_that_is_cut_off_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join([json.dumps(INSTANCE)] * 2).encode()))
    with pytest.raises(DataError, match="instance q1: question_id stands twice"):
        list(load_longmemeval(path).parts())
    path.write_bytes(gzip.compress(json.dumps(INSTANCE).encode())[:-40])
    with pytest.raises(DataError, match="cut off"):
        list(load_longmemeval(path).parts())


def test_the_published_oracle_file_is_read_as_its_figures_say() -> None:
    data = os.environ.get("NAPMEM_DATA")
    if not data:
        pytest.skip("NAPMEM_DATA is not set")
    source = collect(load_longmemeval(Path(data) / "longmemeval" / "oracle.json.gz"))
    found = source.summary()["repairs_by_kind"]
    assert len(source.items) == len(source.banks) == 438 and source.is_benchmark
    assert found == {"answer_number": 30, "asked_later": 40, "sessions_unsorted": 30}
    kinds_found = [key.kind for _, key in source.items]
    assert (kinds_found.count(AnswerKind.UNANSWERABLE), kinds_found.count(AnswerKind.RUBRIC)) == (22, 20)
    for task, key in source.items:
        bank = next(bank for bank in source.banks if bank.bank_id == task.bank_id)
        seen = {message.message_id for message in bank.messages if message.time <= str(task.asked_at)}
        assert set(key.evidence_ids) <= seen, f"{task.task_id}: all evidence is in sight when the question is asked"
        assert key.evidence_ids or key.kind is AnswerKind.UNANSWERABLE
