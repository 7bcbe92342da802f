"""Plain files of messages: what is read, what is put right, and what is refused with file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from napmem_rl.data.messages_file import RepairKind, load_messages
from napmem_rl.errors import DataError
from napmem_rl.schema import Message

GOOD = {"user_id": "ana", "message_id": "msg:1", "session_id": "s1", "role": "user", "speaker": "Ana", "text": "I moved.", "time": "2024-03-05T13:56:00"}


def write(path: Path, *lines: dict[str, Any] | str | bytes) -> Path:
    raw = [line if isinstance(line, bytes) else (line if isinstance(line, str) else json.dumps(line)).encode() for line in lines]
    path.write_bytes(b"\n".join(raw) + b"\n")
    return path


def but(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in (GOOD | fields).items() if value is not ...}


def test_a_line_becomes_a_message_of_its_user(tmp_path: Path) -> None:
    loaded = load_messages(write(tmp_path / "m.jsonl", GOOD, "", but(message_id="msg:2", role="assistant", speaker=..., caption="a red door", text="Nice")))
    assert loaded.banks == {
        "ana": [
            Message(message_id="msg:1", session_id="s1", role="user", speaker="Ana", text="I moved.", time="2024-03-05T13:56:00"),
            Message(message_id="msg:2", session_id="s1", role="assistant", speaker="Assistant", text="Nice", time="2024-03-05T13:56:00", caption="a red door"),
        ]
    }
    assert loaded.repairs.total() == 0 and loaded.bad_lines == []


def test_a_file_without_user_ids_is_one_users_and_a_directory_holds_many(tmp_path: Path) -> None:
    for name in ("ben", "cleo"):
        write(tmp_path / f"{name}.jsonl", but(user_id=...))
    write(tmp_path / "more.jsonl", but(user_id="ben", message_id="msg:2"))
    loaded = load_messages(tmp_path)
    assert {bank: len(messages) for bank, messages in loaded.banks.items()} == {"ben": 2, "cleo": 1}
    assert list(load_messages(tmp_path / "cleo.jsonl").banks) == ["cleo"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"user_id": "ana", ', "is not JSON"),
        ("[1, 2]", "is a JSON list, expected one object a line"),
        (json.dumps(GOOD).encode("utf-8").replace(b"moved", b"m\xf6ved"), "is not UTF-8 (byte 0xf6"),
        ('{"message_id": "msg:1", "text": "\\ud83d"}', "half of a surrogate pair"),
        (but(message_id=...), "message_id is missing"),
        (but(message_id=None), "message_id is None, expected a text"),
        (but(message_id="msg:a b"), "holds blanks or square brackets"),
        (but(session_id="  "), "session_id is blank"),
        (but(text=None), "text is None"),
        (but(text=5), "text is 5, expected a text"),
        (but(role="system"), "role is 'system', expected user or assistant"),
        (but(time="yesterday"), "time is 'yesterday', expected ISO 8601"),
        (but(time="2024-02-31"), "is no moment of the calendar"),
        (but(time=1709647000), "time is 1709647000"),
        (but(time="0001-01-01T00:00:00+14:00"), "expected ISO 8601"),
        (but(bank_id="ben"), "bank_id and user_id differ"),
        (but(user_id=True), "user_id is True"),
        (but(caption=["x"]), "caption is"),
    ],
)
def test_a_bad_line_is_named_and_left_out_only_where_asked_for(tmp_path: Path, line: Any, problem: str) -> None:
    path = write(tmp_path / "m.jsonl", but(message_id="msg:0"), line)
    with pytest.raises(DataError) as caught:
        load_messages(path)
    assert f"{path}, line 2: " in caught.value.message and problem in caught.value.message
    loaded = load_messages(path, on_bad_line="skip")
    assert [message.message_id for message in loaded.banks["ana"]] == ["msg:0"]
    assert loaded.repairs == {RepairKind.BAD_LINE: 1} and problem in loaded.bad_lines[0]


def test_many_bad_lines_are_counted_and_the_first_told(tmp_path: Path) -> None:
    path = write(tmp_path / "m.jsonl", *["nonsense"] * 9)
    with pytest.raises(DataError, match=r"9 bad lines: .*line 1: .*line 5: .*\(and 4 more\)\. Put them right"):
        load_messages(path)
    with pytest.raises(DataError, match="hold no messages"):
        load_messages(path, on_bad_line="skip")


def test_what_has_one_clear_meaning_is_put_right_and_counted(tmp_path: Path) -> None:
    lines = [
        b"\xef\xbb\xbf" + json.dumps(GOOD).encode(),
        but(message_id=2, user_id="ana", time="2024-03-05T14:00:00+01:00"),
        but(message_id="msg:3", time="2024-03-05 13:56:00.25"),
        but(message_id="msg:4", mood="happy"),
        GOOD,
    ]
    loaded = load_messages(write(tmp_path / "m.jsonl", *lines))
    assert [(message.message_id, message.time[11:]) for message in loaded.banks["ana"]] == [
        ("msg:1", "13:56:00"),
        ("msg:2", "13:00:00"),
        ("msg:3", "13:56:00"),
        ("msg:4", "13:56:00"),
    ]
    assert {kind: number for kind, number in loaded.repairs.items() if number} == {
        RepairKind.BYTE_ORDER_MARK: 1,
        RepairKind.ID_PREFIXED: 1,
        RepairKind.TIME_CONVERTED: 2,
        RepairKind.UNKNOWN_FIELD: 1,
        RepairKind.SAME_LINE_AGAIN: 1,
    }


def test_an_id_with_two_contents_is_a_bad_line_and_the_first_one_stays(tmp_path: Path) -> None:
    path = write(tmp_path / "m.jsonl", GOOD, but(text="I stayed."), but(user_id="ben", text="I stayed."))
    with pytest.raises(DataError, match="line 2: message_id msg:1 of ana stands earlier with other content"):
        load_messages(path)
    loaded = load_messages(path, on_bad_line="skip")
    assert [message.text for message in loaded.banks["ana"]] == ["I moved."] and len(loaded.banks["ben"]) == 1


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_another_encoding_is_named(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(("\ufeff" + json.dumps(GOOD)).encode(encoding))
    with pytest.raises(DataError, match="is UTF-16; expected UTF-8. Convert it: iconv -f UTF-16"):
        load_messages(path, on_bad_line="skip")


def test_what_is_not_there_and_what_is_empty_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        load_messages(tmp_path / "absent.jsonl")
    with pytest.raises(DataError, match=r"holds no file \*.jsonl"):
        load_messages(tmp_path)
    with pytest.raises(DataError, match="hold no messages"):
        load_messages(write(tmp_path / "empty.jsonl"))
    with pytest.raises(DataError, match="on_bad_line: is unknown; got 'ignore'"):
        load_messages(tmp_path / "empty.jsonl", on_bad_line="ignore")


def test_a_message_of_a_megabyte_and_ten_thousand_sessions_are_read(tmp_path: Path) -> None:
    lines = [but(message_id=f"msg:{n}", session_id=f"s{n}") for n in range(10_000)]
    loaded = load_messages(write(tmp_path / "m.jsonl", *lines, but(message_id="msg:long", text="x" * 2**20)))
    assert len(loaded.banks["ana"]) == 10_001 and len({message.session_id for message in loaded.banks["ana"]}) == 10_000
    assert len(loaded.banks["ana"][-1].text) == 2**20
