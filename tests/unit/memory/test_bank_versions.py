"""Versions of a bank: their list, what changed between two, and an older one as a bank of its own."""

from __future__ import annotations

import pytest
from bank_maker import make_levels, make_message, make_record, save_sample

from napmem_rl.cli import main
from napmem_rl.errors import BankError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_check import verify_bank
from napmem_rl.memory.bank_writer import BankWriter
from napmem_rl.memory.changes import Changes, relink
from napmem_rl.memory.versions import checkout_version, diff_versions, list_versions
from napmem_rl.schema import RecordOperation, RecordRevision


@pytest.fixture
def bank(tmp_path):
    """Three versions: the sample; then a message, a new record and an updated one; then a merge."""
    save_sample(tmp_path / "ana")
    stored = RecordRevision(operation=RecordOperation.STORE, record=make_record(6, "Ana sold\nthe bike."))
    tea = make_record(4, "Ana likes green tea.", time="2024-03-06T10:00:00", source_ids=("msg:4", "msg:6"))
    updated = RecordRevision(operation=RecordOperation.UPDATE, record=tea)
    bike = make_record(3, "Ana bought a red bike and sold it.", time="2024-03-06T10:00:00", source_ids=("msg:3", "msg:6"))
    merged = RecordRevision(operation=RecordOperation.MERGE, record=bike, merged_ids=("rec:6",))
    with BankWriter.open(tmp_path / "ana", bank_id="ana", writer="hand") as writer:
        for messages, revisions, note in (((make_message(6, "Sold it."),), (stored, updated), "session s2"), ((), (merged,), "tidy")):
            tracks, profile = relink(writer.tracks, writer.profile, revisions)
            writer.commit(Changes(messages=messages, revisions=revisions, tracks=tracks, profile=profile, note=note, state={"note": note}))
    return tmp_path / "ana"


@pytest.fixture
def versions(bank):
    return [commit.version for commit in list_versions(bank)]


def test_versions_are_listed_with_writer_note_and_counts(bank, capsys):
    commits = list_versions(bank)
    assert [(commit.note, commit.num_messages, commit.num_records) for commit in commits] == [("", 5, 4), ("session s2", 6, 5), ("tidy", 6, 4)]
    assert commits[0].parent is None and commits[2].parent == commits[1].version
    assert main(["bank", "log", str(bank)]) == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == f"{commits[2].version}  {commits[2].time}  hand  6 messages, 4 records, 2 tracks  tidy"
    assert second.endswith("6 messages, 5 records, 2 tracks  session s2") and third.endswith("5 messages, 4 records, 2 tracks")


def test_a_diff_names_what_was_added_revised_and_rewritten(bank, versions):
    diff = diff_versions(bank, versions[0], versions[2])
    assert [message.message_id for message in diff.messages] == ["msg:6"]
    stored, updated, merged = diff.records
    assert stored.revision.record.record_id == "rec:6" and stored.before is None and stored.merged == ()
    assert (updated.before.text, updated.revision.record.text) == ("Ana likes tea.", "Ana likes green tea.")
    assert merged.before.text == "Ana bought a red bike." and [record.record_id for record in merged.merged] == ["rec:6"]
    assert set(diff.files) == {"bike.md", "profile.md"}
    assert "-updated: '2024-03-03T10:00:00'" in diff.files["bike.md"] and "+updated: '2024-03-06T10:00:00'" in diff.files["bike.md"]
    assert diff_versions(bank, versions[1], versions[1]).records == ()


def test_the_diff_command_prints_old_and_new_text_each_on_one_line(bank, versions, capsys):
    assert main(["bank", "diff", str(bank), versions[0], versions[2]]) == 0
    lines = capsys.readouterr().out.splitlines()
    for line in (
        "1 messages added",
        "+ msg:6 2024-03-06T10:00:00 Ana: Sold it.",
        "3 changes of records",
        "rec:6 stored, from msg:6",
        "+ rec:6 2024-03-06T10:00:00 fact: Ana sold the bike.",
        "rec:4 updated, from msg:4, msg:6",
        "- rec:4 2024-03-04T10:00:00 preference: Ana likes tea.",
        "+ rec:4 2024-03-06T10:00:00 fact: Ana likes green tea.",
        "rec:3 merged with rec:6, from msg:3, msg:6",
        "2 files changed",
        "--- bike.md",
    ):
        assert line in lines
    assert main(["bank", "diff", str(bank), versions[2], versions[0]]) == 1
    assert "is later than" in capsys.readouterr().err


def test_show_tells_what_a_record_was_before_and_shows_older_versions(bank, versions, capsys):
    assert main(["bank", "show", str(bank), "rec:4"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "rec:4 2024-03-06T10:00:00 fact: Ana likes green tea.",
        "  before: 2024-03-04T10:00:00 preference: Ana likes tea.",
    ]
    assert main(["bank", "show", str(bank), "--version", versions[0]]) == 0
    assert f"bank ana, version {versions[0]}, written by hand\n5 messages, 4 records" in capsys.readouterr().out


def test_a_checkout_is_a_bank_with_that_version_at_its_head_and_the_history_before_it(bank, versions, tmp_path, capsys):
    assert main(["bank", "checkout", str(bank), versions[1], "--out", str(tmp_path / "older")]) == 0
    assert versions[1] in capsys.readouterr().out
    older = MemoryBank.open(tmp_path / "older", expected_version=versions[1])
    assert len(older.messages) == 6 and older.record("rec:6") is not None and older.state == {"note": "session s2"}
    assert [commit.version for commit in list_versions(tmp_path / "older")] == versions[:2]
    assert verify_bank(tmp_path / "older") == verify_bank(bank) == []
    assert MemoryBank.open(bank).version == versions[2], "the bank keeps all its versions"
    with BankWriter.open(tmp_path / "older", bank_id="ana", writer="hand") as writer:
        writer.commit(Changes(messages=(make_message(7),)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ana", "older"]


def test_a_checkout_replaces_nothing(bank, versions, tmp_path):
    for out in (bank, tmp_path):
        with pytest.raises(BankError, match="is not empty"):
            checkout_version(bank, versions[0], out)
    with pytest.raises(BankError, match="holds no version 0123"):
        checkout_version(bank, "0123", tmp_path / "x")
    assert MemoryBank.open(bank).version == versions[2] and not (tmp_path / "x").exists()


def test_a_broken_bank_is_not_checked_out(bank, versions, tmp_path):
    log = bank / "messages.jsonl"
    log.write_bytes(log.read_bytes().replace(b"nurse", b"pilot", 1))
    with pytest.raises(BankError, match="hash differs"):
        checkout_version(bank, versions[0], tmp_path / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["ana"]


def test_verify_can_stop_at_a_version(bank, versions, capsys):
    log = bank / "records.jsonl"
    log.write_bytes(log.read_bytes().replace(b"and sold it", b"and lost it", 1))
    assert verify_bank(bank, version=versions[1]) == []
    assert main(["bank", "verify", str(bank), "--version", versions[1]]) == 0
    (problem,) = verify_bank(bank)
    assert problem == f"records.jsonl line 7: was changed after version {versions[2]} brought it (hash differs)"
    assert main(["bank", "verify", str(bank), "--version", "0123"]) == 1
    assert "holds no version 0123" in capsys.readouterr().out


def test_the_newest_of_equal_versions_is_the_one_that_opens(tmp_path):
    save_sample(tmp_path / "ana")
    with BankWriter.open(tmp_path / "ana", bank_id="ana", writer="hand") as writer:
        version = writer.commit(Changes(state={"step": 1}))
        writer.commit(Changes(tracks=make_levels()["tracks"][:1]))
        assert writer.commit(Changes(tracks=make_levels()["tracks"], state={"step": 2})) == version
    assert MemoryBank.open(tmp_path / "ana", version=version).state == {"step": 2}
    assert len(list_versions(tmp_path / "ana")) == 4 and verify_bank(tmp_path / "ana") == []
