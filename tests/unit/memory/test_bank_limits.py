"""Odd ids, large and many items, derived files that are lost or damaged: it works, or the error is clear."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from bank_maker import TEXTS, edit, find_file, make_levels, make_message, make_record, save_sample

from napmem_rl.errors import BankError
from napmem_rl.memory.bank import MemoryBank, save_bank
from napmem_rl.memory.bank_check import verify_bank
from napmem_rl.memory.bank_tables import MAX_NAMES
from napmem_rl.memory.bank_writer import BankWriter
from napmem_rl.memory.changes import Changes
from napmem_rl.memory.storage import find_bank_dir
from napmem_rl.schema import Message, Profile, RecordOperation, RecordRevision

NOTHING = {"tracks": (), "profile": Profile(text="", time="", source_ids=())}
ODD_IDS = ("msg:../../etc/passwd", "msg:a/b", "msg:..", "msg:C:\\x", "msg:%2e%2e", "msg:-rf", "msg:\u202e", "msg:💥", "msg:" + "x" * 5000)


def open_writer(path: Path, **options) -> BankWriter:
    return BankWriter.open(path, bank_id="ana", writer="hand", **options)


def test_path_characters_in_ids_of_items_stay_text(tmp_path):
    messages = tuple(make_message(number, message_id=message_id) for number, message_id in enumerate(ODD_IDS, 1))
    records = tuple(make_record(number, record_id=f"rec:{message_id[4:]}", source_ids=(message_id,)) for number, message_id in enumerate(ODD_IDS, 1))
    save_bank(tmp_path / "ana", bank_id="../../ana", writer="../x", messages=messages, records=records, **NOTHING)
    bank = MemoryBank.open(tmp_path / "ana")
    assert bank.bank_id == "../../ana" and verify_bank(tmp_path / "ana") == []
    assert [bank.message(message_id).message_id for message_id in ODD_IDS] == list(ODD_IDS) and bank.provenance("rec:a/b") == ("msg:a/b",)
    assert [path.name for path in tmp_path.iterdir()] == ["ana"]
    assert {path.name for path in (tmp_path / "ana").iterdir()} == {
        "bank.json", "messages.jsonl", "records.jsonl", "commits.jsonl", "files", "index", ".lock"
    }  # fmt: skip


@pytest.mark.parametrize("bank_id", ["", ".", "..", "a/b", "/etc", "../ana", "a\0b", "x" * 256])
def test_a_bank_id_that_cannot_name_a_directory_is_refused_where_one_is_derived_from_it(tmp_path, bank_id):
    with pytest.raises(BankError, match="bank id: cannot name a directory"):
        find_bank_dir(tmp_path, bank_id)


@pytest.mark.parametrize("bank_id", ["ana", "user 7", "..ana", "a:b", "ünï", "x" * 255])
def test_any_other_bank_id_names_its_directory(tmp_path, bank_id):
    assert find_bank_dir(tmp_path, bank_id) == tmp_path / bank_id


def test_a_message_of_a_megabyte_comes_back(tmp_path):
    text = "Grüße! " * 150_000
    with open_writer(tmp_path / "ana") as writer:
        writer.commit(Changes(messages=(make_message(1, text), make_message(2, "Short."))))
        assert writer.message("msg:1").text == text
    bank = MemoryBank.open(tmp_path / "ana")
    assert bank.messages[0].text == text and bank.messages[-1].text == "Short." and bank.messages.texts(1, 2) == ["[2024-03-02] Ana: Short."]
    assert verify_bank(tmp_path / "ana") == []


def test_ten_thousand_sessions_in_as_many_versions_are_listed_opened_and_verified(tmp_path):
    with open_writer(tmp_path / "ana", durable=False) as writer:
        for number in range(10_000):
            message = Message(message_id=f"msg:{number}", session_id=f"s{number}", role="user", speaker="Ana", text=f"Turn {number}.", time="2024-03-01")
            version = writer.commit(Changes(messages=(message,), state={"session": number}))
    bank = MemoryBank.open(tmp_path / "ana", expected_version=version)
    assert len(bank.messages) == len(bank.messages.session_names) == 10_000 and bank.state == {"session": 9_999}
    assert bank.message("msg:7777").session_id == "s7777" and bank.search_messages("turn", k=1, session_ids=["s4321"])[0].message_id == "msg:4321"
    assert verify_bank(tmp_path / "ana") == []


def test_more_speakers_than_a_bank_holds_are_refused(tmp_path):
    with open_writer(tmp_path / "ana", durable=False) as writer:
        base = {"session_id": "s1", "role": "user", "text": "Hi.", "time": "2024-03-01"}
        many = tuple(Message(message_id=f"msg:{number}", speaker=f"P{number}", **base) for number in range(MAX_NAMES + 1))
        with pytest.raises(BankError, match="more than 32767 speakers"):
            writer.commit(Changes(messages=many))
        writer.commit(Changes(messages=many[:-1]))
        with pytest.raises(BankError, match="more than 32767 speakers"):
            writer.commit(Changes(messages=many[-1:]))
    assert MemoryBank.open(tmp_path / "ana").messages[-1].speaker == f"P{MAX_NAMES - 1}"


@pytest.mark.parametrize("field", ["message_id", "session_id", "speaker", "text", "caption"])
def test_a_lone_surrogate_is_refused_with_the_item_that_holds_it(tmp_path, field):
    with open_writer(tmp_path / "ana") as writer, pytest.raises(BankError, match=rf"{field} is not valid Unicode \(a lone surrogate\)"):
        writer.commit(Changes(messages=(make_message(1, **{field: "msg:\udcff"}),)))


def test_lookups_by_sequence_behave_as_those_of_a_tuple(tmp_path):
    save_sample(tmp_path / "ana")
    bank, levels = MemoryBank.open(tmp_path / "ana"), make_levels()
    for lazy, plain in ((bank.messages, levels["messages"]), (bank.records, levels["records"])):
        assert lazy[-1] == plain[-1] and lazy[1:3] == plain[1:3] and lazy[::-2] == plain[::-2] and list(lazy) == list(plain) and plain[2] in lazy
        assert lazy == plain and lazy == list(plain) and lazy != plain[:-1] and lazy != "x" and lazy[:0] == ()
        for position in (len(plain), -len(plain) - 1):
            with pytest.raises(IndexError):
                lazy[position]


def test_what_a_search_index_is_built_over_has_a_column_for_each_filter(tmp_path):
    with open_writer(tmp_path / "ana") as writer:
        writer.commit(Changes(messages=(make_message(1), make_message(2, session_id="s2", role="assistant", speaker="Bot", time="2024-03-02"))))
        store = RecordRevision(operation=RecordOperation.STORE, record=make_record(1))
        first = writer.commit(Changes(revisions=(store,)))
        newer = make_record(1, "New.", time="2024-03-02", source_ids=("msg:1", "msg:2"), session_id="s2")
        writer.commit(Changes(revisions=(RecordRevision(operation=RecordOperation.UPDATE, record=newer),)))
    bank = MemoryBank.open(tmp_path / "ana")
    messages, revisions = bank.snapshot.messages, bank.snapshot.revisions
    assert messages.times.tolist() == [b"2024-03-01T10:00:00", b"2024-03-02"] and messages.times.dtype == "S19"
    assert [messages.kind_names[code] for code in messages.kinds] == ["user", "assistant"] and messages.live.all()
    assert [messages.session_names[code] for code in messages.sessions] == ["s1", "s2"]
    assert [messages.speaker_names[code] for code in messages.speakers] == ["Ana", "Bot"]
    assert revisions.live.tolist() == [False, True] and revisions.speakers.tolist() == [-1, -1] and len(revisions) == 2
    assert revisions.texts(0, 9) == ["[2024-03-01] fact: Ana moved to Oslo.", "[2024-03-02] fact: New."] and revisions.texts(5, 9) == []
    older = MemoryBank.open(tmp_path / "ana", version=first).snapshot.revisions
    assert older.live.tolist() == [True] and older.prefix_key(1) == revisions.prefix_key(1) is not None
    assert messages.prefix_key(2) is not None and messages.prefix_key(1) is None, "a key at the end of a commit alone"


@pytest.mark.parametrize("damage", ["gone", "garbage", "shorter", "another format", "of another bank"])
def test_columns_that_are_lost_or_damaged_are_built_again(tmp_path, damage):
    version = save_sample(tmp_path / "ana")
    index = tmp_path / "ana" / "index"
    whole = {path.name: path.read_bytes() for path in index.iterdir()}
    save_sample(tmp_path / "other", messages=(*make_levels()["messages"][:4], make_message(5, "Other.")))
    for path in index.iterdir():
        match damage:
            case "gone":
                path.unlink()
            case "garbage":
                path.write_bytes(b"\xff" * len(whole[path.name]))
            case "shorter":
                path.write_bytes(whole[path.name][:-3])
            case "another format":
                path.write_bytes(whole[path.name].replace(b'"format": [1', b'"format": [9'))
            case _:
                path.write_bytes((tmp_path / "other" / "index" / path.name).read_bytes())
    bank = MemoryBank.open(tmp_path / "ana", expected_version=version)
    assert bank.messages == make_levels()["messages"] and bank.records == make_levels()["records"]
    again = {path.name: path.read_bytes() for path in index.iterdir() if path.name != ".columns.lock"}
    assert {name: content for name, content in whole.items() if name != ".columns.lock"} == again
    assert MemoryBank.open(tmp_path / "ana", verify=False).message("msg:5").text == TEXTS[4]


def test_columns_hold_the_same_whether_they_grew_or_were_built_at_once(tmp_path):
    revision = RecordRevision(operation=RecordOperation.STORE, record=make_record(1))
    newer = make_record(3, "All.", time="2024-03-03T10:00:00", source_ids=("msg:1", "msg:2", "msg:3"))
    merge = RecordRevision(operation=RecordOperation.MERGE, record=newer, merged_ids=("rec:1", "rec:2"))
    with open_writer(tmp_path / "ana") as writer:
        writer.commit(Changes(messages=(make_message(1), make_message(2)), revisions=(revision,)))
        writer.commit(Changes(messages=(make_message(3, session_id="s1", speaker="Bob"),)))
        stores = tuple(RecordRevision(operation=RecordOperation.STORE, record=make_record(number)) for number in (2, 3))
        writer.commit(Changes(revisions=(*stores, merge)))
        grown = writer.snapshot
    files = {path.name: path.read_bytes() for path in (tmp_path / "ana" / "index").glob("*.rows")}
    for path in (tmp_path / "ana" / "index").iterdir():
        path.unlink()
    built = MemoryBank.open(tmp_path / "ana").snapshot
    assert np.array_equal(grown.messages.rows, built.messages.rows) and np.array_equal(grown.revisions.rows, built.revisions.rows)
    assert np.array_equal(grown.revisions.ends, built.revisions.ends) and grown.revisions.current.tolist() == built.revisions.current.tolist() == [-1, -1, 3]
    assert {path.name: path.read_bytes() for path in (tmp_path / "ana" / "index").glob("*.rows")} == files


def test_a_directory_that_cannot_be_written_is_read_all_the_same(tmp_path, monkeypatch, caplog):
    save_sample(tmp_path / "ana")
    for path in (tmp_path / "ana" / "index").iterdir():
        path.unlink()
    real = Path.mkdir

    def refuse(path: Path, *args, **options) -> None:
        if path.name == "index":
            raise OSError(30, "Read-only file system")
        real(path, *args, **options)

    monkeypatch.setattr(Path, "mkdir", refuse)
    with caplog.at_level("INFO"):
        assert len(MemoryBank.open(tmp_path / "ana").messages) == 5
    assert "columns cannot be written" in caplog.text


@pytest.mark.parametrize(
    ("name", "old", "new", "problem"),
    [
        ("messages.jsonl", b"nurse", b"pilot", "messages.jsonl line 2: was changed after version"),
        ("messages.jsonl", b'"text": "I like', b'"text": "I \xffike', "messages.jsonl line 4: is not UTF-8"),
        ("messages.jsonl", b"msg:3", b"msg:2", "messages.jsonl line 3: msg:2: the id occurs twice"),
        ("records.jsonl", b'"msg:3"', b'"msg:9"', "records.jsonl line 3: rec:3: points to message msg:9, which does not exist"),
        ("records.jsonl", b'"operation": "store"', b'"operation": "erase"', "records.jsonl line 1: unknown operation 'erase'"),
        ("records.jsonl", b"{", b"[", "records.jsonl line 1: malformed JSON"),
        ("commits.jsonl", b'"writer": "hand"', b'"writer": "hond"', "commits.jsonl line 1: its checksum does not fit"),
        ("commits.jsonl", b'"}\n', b'"}\x0b', "commits.jsonl: the end of its last line was changed"),
        ("bank.json", b"ana", b"eva", "commits.jsonl line 1: version"),
        ("bike.md", b"red", b"rad", "its content is not what its name says (hash differs)"),
        ("bike.md", b"---\n", b"-\xff-\n", "is not UTF-8"),
    ],
)
def test_a_flipped_byte_is_named_and_the_bank_refused(tmp_path, name, old, new, problem):
    tracks = make_levels()["tracks"]
    save_sample(tmp_path / "ana", tracks=(tracks[0], type(tracks[1])(**{**json.loads(json.dumps(_fields(tracks[1]))), "narrative": "A red one. [rec:3]"})))
    path = find_file(tmp_path / "ana", name)
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))
    assert any(problem in found for found in verify_bank(tmp_path / "ana")), verify_bank(tmp_path / "ana")
    with pytest.raises(BankError):
        MemoryBank.open(tmp_path / "ana")


def _fields(track) -> dict:
    return {name: getattr(track, name) for name in track.__slots__}


def test_every_flipped_bit_of_every_file_of_a_version_is_noticed(tmp_path):
    save_sample(tmp_path / "ana", messages=(make_message(1),), records=(make_record(1),), **NOTHING)
    path = tmp_path / "ana"
    for file in sorted(entry for entry in path.rglob("*") if entry.is_file() and entry.name != ".lock" and "index" not in entry.parts):
        content = file.read_bytes()
        for position in range(0, len(content), 7):
            flipped = bytearray(content)
            flipped[position] ^= 1 << (position % 8)
            file.write_bytes(flipped)
            assert verify_bank(path) != [], f"{file.name}, byte {position}"
            with pytest.raises(BankError):
                MemoryBank.open(path)
        file.write_bytes(content)
    assert verify_bank(path) == []


def test_files_that_are_none_of_a_banks_are_named(tmp_path):
    save_sample(tmp_path / "ana")
    (tmp_path / "ana" / "notes.txt").write_text("x")
    (tmp_path / "ana" / "files" / "bike.md").write_text("x")
    (tmp_path / "ana" / "files" / f"{'0' * 16}.md").write_text("x")
    assert verify_bank(tmp_path / "ana") == [
        "notes.txt: is no file of a bank",
        f"files/{'0' * 16}.md: its content is not what its name says (hash differs)",
        "files/bike.md: is no file of a bank",
    ]
    assert len(MemoryBank.open(tmp_path / "ana").messages) == 5, "they are no part of any version"


def test_a_link_that_breaks_in_an_older_version_alone_is_found(tmp_path):
    save_sample(tmp_path / "ana")
    edit(tmp_path / "ana", "bike.md", "- rec:3", "- rec:33")
    with pytest.raises(BankError, match="trk:2: points to record rec:33"):
        open_writer(tmp_path / "ana")
    assert any("trk:2: points to record rec:33, which does not exist" in problem for problem in verify_bank(tmp_path / "ana"))
