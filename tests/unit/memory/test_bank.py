"""The bank on disk: round trip, provenance, search, atomic writes, and an error for everything that can be broken."""

from __future__ import annotations

import dataclasses
import json
import os
import re

import pytest
from bank_maker import edit, find_file, make_levels, make_message, make_record, save_sample

from napmem_rl import atomic
from napmem_rl.errors import BankError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_check import verify_bank
from napmem_rl.memory.bank_tables import render_message_passage, render_record_passage
from napmem_rl.retrieval.encoder import HashingEncoder
from napmem_rl.schema import Profile, RecordType


def test_a_bank_comes_back_exactly_as_it_was_saved(tmp_path):
    version = save_sample(tmp_path / "ana")
    bank = MemoryBank.open(tmp_path / "ana", expected_version=version)
    levels = make_levels()
    assert (bank.bank_id, bank.version, bank.writer) == ("ana", version, "hand")
    assert (bank.messages, bank.records, bank.profile) == (levels["messages"], levels["records"], levels["profile"])
    assert sorted(bank.tracks, key=lambda track: track.track_id) == list(levels["tracks"])
    assert verify_bank(tmp_path / "ana") == []


def test_odd_texts_come_back_exactly(tmp_path):
    text = 'line\u2028sep\r\nnext\x0b "quoted" [rec:99] --- ünïcode 😀\n'
    messages = (make_message(1, text, caption=text, speaker="A: b"),)
    profile = Profile(text="---\n\n# x\r\n\n", time="", source_ids=())
    save_sample(tmp_path / "ana", messages=messages, records=(make_record(1, text),), tracks=(), profile=profile)
    bank = MemoryBank.open(tmp_path / "ana")
    assert bank.messages == messages and bank.records[0].text == text and bank.profile == profile


def test_the_version_follows_the_content_alone(tmp_path):
    first, again = save_sample(tmp_path / "a"), save_sample(tmp_path / "b")
    other = save_sample(tmp_path / "c", messages=(*make_levels()["messages"], make_message(6)))
    assert first == again != other


def test_items_are_looked_up_by_id(tmp_path):
    save_sample(tmp_path / "ana")
    bank = MemoryBank.open(tmp_path / "ana")
    assert bank.message("msg:2").text == "I work as a nurse." and bank.message("msg:99") is None and bank.message("rec:1") is None
    assert bank.record("rec:2").text == "Ana works as a nurse." and bank.record("rec:99") is None
    assert bank.item_of_file("bike.md").track_id == "trk:2" and bank.item_of_file("profile.md") == bank.profile and bank.item_of_file("x.md") is None


def test_provenance_leads_from_every_level_down_to_the_messages(tmp_path):
    save_sample(tmp_path / "ana")
    bank = MemoryBank.open(tmp_path / "ana")
    assert bank.provenance("profile") == ("msg:1", "msg:2", "msg:4")
    assert bank.provenance("trk:1") == ("msg:1", "msg:2")
    assert bank.provenance("rec:2") == ("msg:1", "msg:2")
    assert bank.provenance("msg:5") == ("msg:5",)
    with pytest.raises(BankError, match="holds no item 'rec:99'"):
        bank.provenance("rec:99")


@pytest.mark.parametrize(
    "name",
    ["../ana/profile.md", "./profile.md", "tracks/bike.md", "/etc/passwd", "profile.md\x00", "PROFILE.MD", "profile.md ", "", ".", "bank.json", "bike"],
)
def test_a_file_is_given_by_its_exact_name_and_nothing_else_is(tmp_path, name):
    save_sample(tmp_path / "ana")
    bank = MemoryBank.open(tmp_path / "ana")
    assert bank.file_names == ("bike.md", "life.md", "profile.md")
    assert bank.file(name) is None
    assert "[rec:3]" in bank.file("bike.md") and "Likes tea. [rec:4]" in bank.file("profile.md")


@pytest.mark.parametrize("encoder", [None, HashingEncoder()])
def test_search_finds_records_and_messages_as_of_a_moment(tmp_path, encoder):
    save_sample(tmp_path / "ana")
    bank = MemoryBank.open(tmp_path / "ana", encoder=encoder)
    assert [record.record_id for record in bank.search_records("nurse", k=5, before=None)][0] == "rec:2"
    assert [message.message_id for message in bank.search_messages("red bike", k=1, before=None)] == ["msg:3"]
    assert bank.search_records("bike", k=5, before="2024-03-02T23:59:59") == [] or encoder is not None
    assert all(record.time <= "2024-03-02T23:59:59" for record in bank.search_records("Ana bike", k=5, before="2024-03-02T23:59:59"))
    assert bank.search_records("", k=5, before=None) == bank.search_messages(" ", k=5, before=None) == []


def test_passages_show_date_speaker_and_caption():
    assert render_message_passage(make_message(5, "Look!", caption="a red door")) == "[2024-03-05] Ana: Look! [a red door]"
    assert render_record_passage(make_record(5, type=RecordType.EVENT)) == "[2024-03-05] event: Ana moved to Oslo."


def test_vectors_are_cached_on_disk_and_are_no_part_of_the_version(tmp_path):
    class Counting(HashingEncoder):
        calls = 0

        def encode(self, texts):
            Counting.calls += 1
            return super().encode(texts)

    version = save_sample(tmp_path / "ana")
    MemoryBank.open(tmp_path / "ana", encoder=Counting()).build_index()
    assert Counting.calls == 2
    again = MemoryBank.open(tmp_path / "ana", encoder=Counting(), expected_version=version)
    again.build_index()
    assert Counting.calls == 2
    for path in (tmp_path / "ana" / "index").rglob("*"):
        if path.is_file():
            path.write_bytes(b"broken")
    broken = MemoryBank.open(tmp_path / "ana", encoder=Counting())
    assert broken.search_records("nurse", k=1, before=None)[0].record_id == "rec:2"
    assert Counting.calls == 4  # the corpus again, and the query
    assert verify_bank(tmp_path / "ana") == []


def test_searches_leave_out_what_a_filter_excludes(tmp_path):
    levels = make_levels()
    messages = (*levels["messages"], make_message(6, "A red bike is nice.", session_id="s2", role="assistant", speaker="Bot"))
    save_sample(tmp_path / "ana", messages=messages)
    bank = MemoryBank.open(tmp_path / "ana")

    def find(**where):
        return [message.message_id for message in bank.search_messages("red bike", k=2, **where)]

    assert sorted(find()) == ["msg:3", "msg:6"]
    assert find(before="2024-03-05")[0] == find(roles=["user"])[0] == find(session_ids=["s1"])[0] == "msg:3"
    assert find(after="2024-03-06") == find(roles=["assistant"]) == find(session_ids=["s2"]) == ["msg:6"]
    assert [record.record_id for record in bank.search_records("Ana bike", k=5, types=["event"])] == ["rec:3"]
    assert bank.search_records("Ana", k=5, session_ids=["s2"]) == []


def test_another_version_than_expected_is_refused(tmp_path):
    version = save_sample(tmp_path / "ana")
    with pytest.raises(BankError, match=f"is of another version; got '{version}'; expected 0123"):
        MemoryBank.open(tmp_path / "ana", expected_version="0123")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"records": (make_record(1, source_ids=("msg:77",)),), "tracks": ()}, "rec:1: points to message msg:77, which does not exist"),
        ({"records": (make_record(1, source_ids=()),), "tracks": ()}, "rec:1: rests on no message"),
        ({"records": (make_record(1, time="2024-03-09T10:00:00"),)}, "rec:1: its time 2024-03-09T10:00:00 is after that of its newest source, 2024-03-01"),
        ({"records": (make_record(2, time="2024-03-01T10:00:00"),)}, "rec:2: its time 2024-03-01T10:00:00 is before that of its newest source, 2024-03-02"),
        ({"records": (make_record(1), make_record(1))}, "rec:1: the id occurs twice"),
        ({"messages": (make_message(1), make_message(1))}, "msg:1: the id occurs twice"),
        ({"messages": (make_message(1, message_id="m1"),)}, "'m1': is not an id of the form msg:…"),
        ({"messages": (make_message(1, message_id="msg:a b"),)}, "is not an id of the form"),
        ({"messages": (make_message(1, time="8 May 2023"),)}, "time '8 May 2023' is not ISO 8601"),
        ({"messages": (make_message(1, time="2024-03-01T10:00:00Z"),)}, "is not ISO 8601 without a zone"),
        ({"messages": (make_message(1, role="system"),)}, "role 'system' is neither"),
        ({"records": make_levels()["records"][:2]}, "trk:2: points to record rec:3, which does not exist"),
        ({"tracks": make_levels()["tracks"][1:]}, "profile: points to record or track trk:1, which does not exist"),
        ({"tracks": (dataclasses.replace(make_levels()["tracks"][0], record_ids=()),)}, "trk:1: rests on no record"),
        ({"tracks": (dataclasses.replace(make_levels()["tracks"][0], narrative="x [rec:4]"),)}, r"trk:1: its text links to \[rec:4\], which is not among"),
        ({"tracks": (dataclasses.replace(make_levels()["tracks"][0], file_name="../x.md"),)}, "trk:1: file name '../x.md' is not of the form"),
        ({"tracks": (dataclasses.replace(make_levels()["tracks"][0], file_name="profile.md"),)}, "taken by the profile"),
        ({"tracks": (make_levels()["tracks"][0], dataclasses.replace(make_levels()["tracks"][1], file_name="life.md"))}, "life.md is used by two tracks"),
        ({"tracks": (dataclasses.replace(make_levels()["tracks"][0], summary="a\nb"),)}, "title and summary must be one line"),
        ({"profile": Profile(text="", time="2024-03-01T10:00:00", source_ids=("rec:4",))}, "profile: its time 2024-03-01T10:00:00 is before that"),
        ({"messages": (make_message(1, "\ud800"),), "records": (), "tracks": (), "profile": Profile(text="", time="", source_ids=())}, "not valid Unicode"),
    ],
)
def test_a_broken_level_is_never_written(tmp_path, changes, message):
    with pytest.raises(BankError, match=message):
        save_sample(tmp_path / "ana", **changes)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("records.jsonl", '"msg:3"', '"msg:88"', "rec:3: points to message msg:88, which does not exist"),
        ("records.jsonl", '"event"', '"gossip"', "records.jsonl line 3: rec:3: unknown record type 'gossip'; expected one of fact, event, instruction"),
        ("records.jsonl", '"type": "event", ', "", "records.jsonl line 3: not an object with the fields record_id, type"),
        ("messages.jsonl", '{"message_id": "msg:2"', '{"message_id": msg:2', "messages.jsonl line 2: malformed JSON"),
        ("messages.jsonl", '"text": "I like tea."', '"text": 3', "messages.jsonl line 4: field text has the wrong type, int"),
        ("messages.jsonl", '"caption": null}\n', '"caption": null, "x": 1}\n', "messages.jsonl line 1: not an object with the fields"),
        ("messages.jsonl", "msg:2", "msg:1", "msg:1: the id occurs twice"),
        ("bike.md", "- rec:3", "- rec:33", "trk:2: points to record rec:33"),
        ("bike.md", "id: trk:2", "id: trk:1", "trk:1: the id occurs twice"),
        ("bike.md", "---\n", "", "(bike.md): no YAML front matter"),
        ("bike.md", "records:\n- rec:3", "records: [", "(bike.md): malformed front matter"),
        ("bike.md", "title:", "heading:", "(bike.md): the front matter needs exactly the fields id, title, updated, records"),
        ("bike.md", "A bike.\n\n", "", "(bike.md): the body needs a summary"),
        ("profile.md", "- trk:1", "- trk:9", "profile: points to record or track trk:9"),
    ],
)
def test_a_bank_broken_on_disk_is_named_and_refused(tmp_path, name, old, new, message):
    save_sample(tmp_path / "ana")
    edit(tmp_path / "ana", name, old, new)
    with pytest.raises(BankError, match=re.escape(message)):
        MemoryBank.open(tmp_path / "ana")
    assert any(message in problem for problem in verify_bank(tmp_path / "ana"))


def test_tampering_missing_and_foreign_files_are_all_listed(tmp_path):
    save_sample(tmp_path / "ana")
    path = tmp_path / "ana"
    (path / "messages.jsonl").write_text((path / "messages.jsonl").read_text().replace("nurse", "pilot"))
    find_file(path, "bike.md").unlink()
    problems = verify_bank(path)
    for part in ("messages.jsonl line 2: was changed after version", "(bike.md): cannot be read"):
        assert any(part in problem for problem in problems)
    with pytest.raises(BankError, match=f"bank {path}: .*hash differs"):
        MemoryBank.open(path)


def test_a_cut_off_last_line_is_an_error(tmp_path):
    save_sample(tmp_path / "ana")
    (tmp_path / "ana" / "messages.jsonl").write_text((tmp_path / "ana" / "messages.jsonl").read_text()[:-1])
    with pytest.raises(BankError, match="messages.jsonl: is cut off: it holds .* bytes, commits.jsonl says"):
        MemoryBank.open(tmp_path / "ana")


def test_a_tree_that_points_outside_the_bank_is_refused_unread(tmp_path):
    save_sample(tmp_path / "ana")
    tree = next((tmp_path / "ana" / "files").glob("*.json"))
    tree.write_text(json.dumps(json.loads(tree.read_text()) | {"bike.md": "../../secret"}))
    with pytest.raises(BankError, match="not an object of hashes by file name"):
        MemoryBank.open(tmp_path / "ana")


@pytest.mark.parametrize(
    ("head", "message"),
    [("{", "cannot be read"), ("[]", "is not a bank's head"), ('{"bank_id": "ana", "format": 9}', "this release reads format 2")],
)
def test_a_broken_head_is_named(tmp_path, head, message):
    save_sample(tmp_path / "ana")
    (tmp_path / "ana" / "bank.json").write_text(head)
    with pytest.raises(BankError, match=message):
        MemoryBank.open(tmp_path / "ana")


def test_a_bank_of_format_1_is_refused_with_what_to_do(tmp_path):
    (tmp_path / "ana").mkdir()
    (tmp_path / "ana" / "manifest.json").write_text('{"bank_id": "ana", "format": 1}')
    with pytest.raises(BankError, match="format 1; this release reads format 2: build it again"):
        MemoryBank.open(tmp_path / "ana")
    version = save_sample(tmp_path / "ana")
    assert MemoryBank.open(tmp_path / "ana").version == version


def test_a_missing_bank_is_named(tmp_path):
    with pytest.raises(BankError, match="bank .*nobody: there is no such directory"):
        MemoryBank.open(tmp_path / "nobody")


@pytest.mark.parametrize("has_exchange", [True, False])
def test_a_new_version_takes_the_place_of_the_old_one_whole(tmp_path, monkeypatch, has_exchange):
    if not has_exchange:
        monkeypatch.setattr(atomic, "_exchange", lambda first, second: False)
    old = save_sample(tmp_path / "ana")
    new = save_sample(tmp_path / "ana", tracks=make_levels()["tracks"][:1])
    assert old != new and MemoryBank.open(tmp_path / "ana").version == new
    assert [path.name for path in tmp_path.iterdir()] == ["ana"]
    assert MemoryBank.open(tmp_path / "ana").file("bike.md") is None


@pytest.mark.parametrize("failing_write", range(1, 7))
def test_a_failure_while_writing_leaves_the_old_bank_and_nothing_else(tmp_path, monkeypatch, failing_write):
    old = save_sample(tmp_path / "ana")
    calls = iter(range(1, 100))
    real = os.fsync

    def fail_once(descriptor: int) -> None:
        if next(calls) == failing_write:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fail_once)
    with pytest.raises(OSError, match="No space left"):
        save_sample(tmp_path / "ana", messages=(*make_levels()["messages"], make_message(6)))
    assert MemoryBank.open(tmp_path / "ana").version == old
    assert [path.name for path in tmp_path.iterdir()] == ["ana"]


def test_a_failure_between_the_two_renames_puts_the_old_bank_back(tmp_path, monkeypatch):
    old = save_sample(tmp_path / "ana")
    monkeypatch.setattr(atomic, "_exchange", lambda first, second: False)
    real = os.rename

    def fail_on_new(source, target):
        if ".new-" in str(source):
            raise OSError(5, "Input/output error")
        real(source, target)

    monkeypatch.setattr(os, "rename", fail_on_new)
    with pytest.raises(OSError, match="Input/output"):
        save_sample(tmp_path / "ana", messages=(*make_levels()["messages"], make_message(6)))
    assert MemoryBank.open(tmp_path / "ana").version == old
    assert [path.name for path in tmp_path.iterdir()] == ["ana"]


def test_a_folder_that_is_no_bank_is_never_replaced(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")
    with pytest.raises(BankError, match="which holds something else"):
        save_sample(tmp_path / "photos")
    assert (tmp_path / "photos" / "cat.jpg").read_bytes() == b"cat"
