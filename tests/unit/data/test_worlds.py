"""Synthetic users: deterministic, consistent, and answerable by whoever reads the right memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

from napmem_rl.data.world_reader import read_answer
from napmem_rl.data.worlds import MAX_DAYS, MAX_ITEMS, QUESTION_TYPES, START, UNKNOWN, generate_user

USERS = [generate_user("unit", index) for index in range(20)]


def test_a_user_is_the_same_in_another_process() -> None:
    code = "from napmem_rl.data.worlds import generate_user as g; print(hash(0), g('unit', 3).messages, g('unit', 3).questions)"
    runs = {subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout for _ in range(2)}
    assert len(runs) == 1
    assert str(USERS[3].messages) in runs.pop()


def test_two_populations_and_two_users_differ() -> None:
    assert len({str(user.messages) for user in [*USERS, generate_user("other", 0)]}) == len(USERS) + 1


def test_question_types_are_balanced_and_only_control_needs_no_memory() -> None:
    for user in USERS:
        kinds = [question.task.category for question in user.questions]
        assert kinds == [*QUESTION_TYPES, *QUESTION_TYPES]
        assert all(question.task.needs_memory == (question.task.category != "control") for question in user.questions)


def test_evidence_holds_the_answer_and_control_questions_have_none() -> None:
    for user in USERS:
        text_of = {message.message_id: message.text for message in user.messages}
        for question in user.questions:
            if question.task.needs_memory:
                assert question.key.references[0] in text_of[question.key.evidence_ids[-1]]
            else:
                assert question.key.evidence_ids == ()


def test_the_newest_value_of_a_changed_fact_is_the_gold_one() -> None:
    for user in USERS:
        for question in (q for q in user.questions if q.task.category == "changed"):
            gold = int(question.key.evidence_ids[0].removeprefix("msg:"))
            stem = user.messages[gold - 1].text.removesuffix(question.key.references[0] + ".")
            positions = [
                i for i, message in enumerate(user.messages, start=1) if message.text.startswith(stem) and len(message.text.split()) == len(stem.split()) + 1
            ]
            values = [user.messages[i - 1].text.rstrip(".").split()[-1] for i in positions]
            assert positions[-1] == gold
            assert question.stale == tuple(values[:-1]) and question.stale


def test_histories_stay_within_the_vocabulary_of_ids_and_dates() -> None:
    for user in USERS:
        assert len(user.messages) < MAX_ITEMS
        assert (max(m.time for m in user.messages)) < START.replace(month=START.month + MAX_DAYS // 31).isoformat()
        assert [m.time for m in user.messages] == sorted(m.time for m in user.messages)
        assert all(q.task.asked_at > user.messages[-1].time for q in user.questions)


def test_the_perfect_reader_answers_every_question_from_the_whole_history() -> None:
    for user in USERS:
        shown = ["\n".join(f"{m.message_id} {m.time[:10]} {m.speaker}: {m.text}" for m in user.messages)]
        for question in user.questions:
            assert read_answer(question.task.question, shown) == question.key.references[0]


def test_the_perfect_reader_knows_nothing_of_a_user_without_results() -> None:
    for user in USERS:
        for question in user.questions:
            expected = question.key.references[0] if question.task.category == "control" else UNKNOWN
            assert read_answer(question.task.question, []) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("rec:1 2024-01-05 event: User moved home to Rome. [msg:1]\nrec:2 2024-02-05 event: User moved home to Oslo. [msg:9]", "Oslo"),
        ("rec:2 2024-02-05 event: User moved home to Oslo. [msg:9]\nrec:1 2024-01-05 event: User moved home to Rome. [msg:1]", "Oslo"),
        ("rec:1 2024-01-05 fact: Mia lives in Rome. [msg:1]", UNKNOWN),
    ],
)
def test_the_perfect_reader_takes_the_latest_date_whatever_the_order(lines: str, expected: str) -> None:
    assert read_answer("Which city is the home of User now?", [lines]) == expected
