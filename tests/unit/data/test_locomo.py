"""LoCoMo's format with its quirks, on a conversation invented here; and the real file where NAPMEM_DATA points to it."""

from __future__ import annotations

import copy
import gzip
import json
import os
from pathlib import Path

import pytest

from napmem_rl.data.locomo import load_locomo, parse_date, repair_evidence
from napmem_rl.data.source import Repair
from napmem_rl.errors import DataError
from napmem_rl.memory.writers.rules import build_pyramid
from napmem_rl.schema import AnswerKind

CONVERSATION = {
    "sample_id": "conv-7",
    "conversation": {
        "speaker_a": "Ines",
        "speaker_b": "Tomas",
        "session_2_date_time": "12:05 am on 1 March, 2024",
        "session_2": [
            {"speaker": "Ines", "dia_id": "D2:1", "text": "My kiln broke.", "blip_caption": "a cracked kiln", "query": "kiln from Lisbon", "img_url": []},
            {"speaker": "Tomas", "dia_id": "D2:2", "text": "Oh no."},
        ],
        "session_1_date_time": "9:30 pm on 28 February, 2024",
        "session_1": [
            {"speaker": "Tomas", "dia_id": "D1:1", "text": "Any news?"},
            {"speaker": "Ines", "dia_id": "D1:2", "text": "I bought two kilns."},
            {"speaker": "Tomas", "dia_id": "D1:3", "text": "  "},
        ],
        "session_3_date_time": "1:00 pm on 2 March, 2024",
    },
    "qa": [
        {"question": "How many kilns did Ines buy?", "answer": 2, "evidence": ["D1:2", "D1:2"], "category": 4},
        {"question": "What broke first, said ines's friend Tomas?", "answer": "the kiln", "evidence": ["D2:01; D1:2"], "category": 1},
        {"question": "Is pottery hard?", "answer": "likely", "evidence": ["D", "D2:2"], "category": 3},
        {"question": "When did Tomas ask?", "answer": "28 February", "evidence": ["D9:9"], "category": 2},
        {"question": "Did Tomas buy a kiln?", "adversarial_answer": "two", "evidence": ["D1:2"], "category": 5},
        {"question": "What did Ines say?", "answer": None, "evidence": ["D2:1"], "category": 4},
    ],
}


def write(path: Path, *conversations: dict) -> Path:
    path.write_text(json.dumps(list(conversations)))
    return path


def changed(**fields: object) -> dict:
    return {**copy.deepcopy(CONVERSATION), **fields}


def test_a_conversation_becomes_two_banks_with_roles_swapped(tmp_path: Path) -> None:
    loaded = load_locomo(write(tmp_path / "l.json", CONVERSATION))
    assert loaded.groups == {"conv-7_ines": "conv-7", "conv-7_tomas": "conv-7"}
    ines, tomas = loaded.banks
    assert [(message.message_id, message.role) for message in ines.messages] == [
        ("msg:D0:1", "user"), ("msg:D1:1", "assistant"), ("msg:D1:2", "user"), ("msg:D2:1", "user"), ("msg:D2:2", "assistant"),
    ]  # fmt: skip
    assert [(message.message_id, message.role) for message in tomas.messages] == [
        ("msg:D0:1", "user"), ("msg:D0:2", "assistant"), ("msg:D1:1", "user"), ("msg:D1:2", "assistant"), ("msg:D2:1", "assistant"), ("msg:D2:2", "user"),
    ]  # fmt: skip
    assert "Ines" in ines.messages[0].text and "Tomas" in ines.messages[0].text and ines.messages[0].speaker == "Ines"


def test_the_setup_turn_tells_nothing_that_would_become_a_memory(tmp_path: Path) -> None:
    for bank in load_locomo(write(tmp_path / "l.json", CONVERSATION)).banks:
        setup = [message for message in bank.messages if message.message_id.startswith("msg:D0:")]
        assert setup and build_pyramid(setup)[0] == ()


def test_sessions_are_ordered_by_number_and_turns_by_the_second(tmp_path: Path) -> None:
    messages = load_locomo(write(tmp_path / "l.json", CONVERSATION)).banks[1].messages
    assert [message.time for message in messages] == [
        "2024-02-28T21:30:00", "2024-02-28T21:30:01", "2024-02-28T21:30:02", "2024-02-28T21:30:03", "2024-03-01T00:05:02", "2024-03-01T00:05:03",
    ]  # fmt: skip
    assert [message.session_id for message in messages] == ["D1", "D1", "D1", "D1", "D2", "D2"]


def test_the_caption_is_kept_and_the_image_query_is_nowhere(tmp_path: Path) -> None:
    loaded = load_locomo(write(tmp_path / "l.json", CONVERSATION))
    assert loaded.banks[0].messages[3].caption == "a cracked kiln"
    assert "Lisbon" not in repr(loaded)


def test_questions_go_to_the_speaker_they_name_and_to_both_otherwise(tmp_path: Path) -> None:
    loaded = load_locomo(write(tmp_path / "l.json", CONVERSATION))
    assert [(task.bank_id, task.category, key.references, key.evidence_ids) for task, key in loaded.items] == [
        ("conv-7_ines", "single-hop", ("2",), ("msg:D1:2",)),
        ("conv-7_ines", "multi-hop", ("the kiln",), ("msg:D2:1", "msg:D1:2")),
        ("conv-7_tomas", "multi-hop", ("the kiln",), ("msg:D2:1", "msg:D1:2")),
        ("conv-7_ines", "open-domain", ("likely",), ("msg:D2:2",)),
        ("conv-7_tomas", "open-domain", ("likely",), ("msg:D2:2",)),
    ]
    assert {task.asked_at for task, _ in loaded.items} == {"2024-03-01T00:06:03"}
    assert all(task.needs_memory and task.task_id == key.task_id for task, key in loaded.items)


def test_everything_repaired_or_dropped_is_reported(tmp_path: Path) -> None:
    loaded = load_locomo(write(tmp_path / "l.json", CONVERSATION))
    assert [(repair.where, repair.kind, repair.before, repair.after) for repair in loaded.repairs] == [
        ("D1:3", "empty_turn", "", ""),
        ("question 0", "answer_number", "2", '"2"'),
        ("question 0", "evidence_duplicate", "D1:2", ""),
        ("question 1", "evidence_malformed", "D2:01; D1:2", "D2:1, D1:2"),
        ("question 2", "evidence_malformed", "D", ""),
        ("question 3", "evidence_without_turn", "D9:9", ""),
        ("question 3", "dropped_no_evidence", "When did Tomas ask?", ""),
        ("question 5", "dropped_no_answer", "What did Ines say?", ""),
    ]
    assert isinstance(loaded.repairs[0], Repair) and loaded.summary()["repairs_by_kind"]["evidence_malformed"] == 2


def test_adversarial_questions_are_off_unless_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "l.json", CONVERSATION)
    assert "adversarial" not in {task.category for task, _ in load_locomo(path).items}
    task, key = next(item for item in load_locomo(path, adversarial=True).items if item[0].category == "adversarial")
    assert key.kind is AnswerKind.UNANSWERABLE and {other.kind for _, other in load_locomo(path).items} == {AnswerKind.ANSWER}
    assert task.bank_id == "conv-7_tomas" and "Not mentioned" in key.references and "two" not in key.references


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        (["D8:6; D9:17"], ["D8:6", "D9:17"]),
        (["D:11:26"], ["D11:26"]),
        (["D9:1 D4:4 D4:6"], ["D9:1", "D4:4", "D4:6"]),
        (["D30:05"], ["D30:5"]),
        (["D"], []),
        (["D4:5", "D4:5"], ["D4:5"]),
        (["D99:1", None, 3], []),
    ],
)
def test_evidence_ids_are_repaired_where_their_meaning_is_clear(raw: list, kept: list[str]) -> None:
    turn_ids = {"D8:6", "D9:17", "D11:26", "D9:1", "D4:4", "D4:6", "D30:5", "D4:5"}
    assert repair_evidence(raw, turn_ids)[0] == kept
    assert repair_evidence(kept, turn_ids) == (kept, [])


def test_noon_and_midnight_are_read_right() -> None:
    assert parse_date("1:56 pm on 8 May, 2023", "x").isoformat() == "2023-05-08T13:56:00"
    assert parse_date("12:09 am on 13 September, 2023", "x").isoformat() == "2023-09-13T00:09:00"
    assert parse_date("12:00 pm on 1 May, 2023", "x").hour == 12
    with pytest.raises(DataError, match='like "1:56 pm'):
        parse_date("2023-05-08", "session_1")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("not json", "is cut off or no JSON"),
        ("[]", "holds nothing"),
        ('{"qa": []}', "conversation 0 .*no field 'sample_id'"),
        ("[3]", "item 0 .*is no JSON object; got 3"),
        ('[{"messages": []}]', "no field 'sample_id'"),
        (json.dumps([changed(qa={})]), "conversation conv-7, field 'qa'.*wrong type"),
        (json.dumps([changed(conversation={"speaker_a": "Ines", "speaker_b": "Tomas"})]), "holds no turns"),
        (json.dumps([changed(conversation={**CONVERSATION["conversation"], "speaker_b": "Ana"})]), "unknown speaker.*'Tomas'"),
        (json.dumps([changed(conversation={**CONVERSATION["conversation"], "session_1_date_time": "soon"})]), "session_1_date_time: not a date"),
        (json.dumps([changed(qa=[{"question": "?", "answer": "x", "evidence": [], "category": 6}])]), "question 0: unknown category"),
        (json.dumps([changed(qa=[{"answer": "x", "evidence": ["D1:2"], "category": 4}])]), "question 0: not LoCoMo's format: no field 'question'"),
        (json.dumps([changed(qa=[{"question": 7, "answer": "x", "evidence": ["D1:2"], "category": 4}])]), "question 0, field 'question'.*wrong type"),
        (json.dumps([changed(qa=[{"question": "?", "answer": {"a": 1}, "evidence": ["D1:2"], "category": 4}])]), "question 0, field 'answer'.*wrong type"),
        (json.dumps([CONVERSATION, CONVERSATION]), "sample_id stands twice"),
        (json.dumps([changed(sample_id="A b"), changed(sample_id="a-b")]), "two users get one bank name"),
    ],
)
def test_bad_input_is_one_clear_data_error(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "l.json"
    path.write_text(content)
    with pytest.raises(DataError, match=expected):
        load_locomo(path)


def test_a_gzipped_file_is_read_as_a_plain_one(tmp_path: Path) -> None:
    text = json.dumps([CONVERSATION]).encode()
    (tmp_path / "l.json").write_bytes(text)
    (tmp_path / "l.json.gz").write_bytes(gzip.compress(text))
    assert load_locomo(tmp_path / "l.json.gz") == load_locomo(tmp_path / "l.json")


def test_a_missing_file_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load_locomo(tmp_path / "none.json")


REAL = Path(os.environ.get("NAPMEM_DATA", ""), "locomo", "locomo8.json")


@pytest.mark.skipif(not (os.environ.get("NAPMEM_DATA") and REAL.is_file()), reason="NAPMEM_DATA does not point to a directory with locomo/locomo8.json")
def test_the_real_file_gives_sixteen_banks_and_known_counts() -> None:
    loaded = load_locomo(REAL, adversarial=True)
    assert len(loaded.banks) == 16 and loaded.summary()["messages"] == 9076
    asked = {(loaded.groups[task.bank_id], task.task_id.rpartition(":")[2]): task.category for task, _ in loaded.items}
    counts = {category: list(asked.values()).count(category) for category in set(asked.values())}
    assert counts == {"multi-hop": 231, "temporal": 255, "open-domain": 79 - 4, "single-hop": 661, "adversarial": 363}  # 4 have no evidence
    assert loaded.summary()["questions_by_category"] == {"adversarial": 365, "multi-hop": 262, "open-domain": 93, "single-hop": 746, "temporal": 266}
    assert loaded.summary()["repairs_by_kind"] == {
        "answer_number": 6, "dropped_no_evidence": 4, "evidence_duplicate": 1, "evidence_malformed": 7, "evidence_without_turn": 2,
    }  # fmt: skip
    for bank in loaded.banks:
        assert [message.time for message in bank.messages] == sorted(message.time for message in bank.messages)
