"""What an episode writes is its own: a scratch over a bank."""

from __future__ import annotations

import asyncio

import pytest
from bank_maker import make_levels, make_message, make_record, save_sample

from napmem_rl.errors import BankError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.changes import Changes, relink
from napmem_rl.memory.scratch import Scratch
from napmem_rl.retrieval.encoder import HashingEncoder
from napmem_rl.schema import Profile, RecordOperation, RecordRevision, ToolCall
from napmem_rl.tools.memory_tools import MemoryToolbox, ToolLimits

STORED = RecordRevision(operation=RecordOperation.STORE, record=make_record(6, "Ana adopted a parrot.", source_ids=("msg:6",)))
PARROT = Changes(messages=(make_message(6, "I adopted a parrot.", session_id="s1"),), revisions=(STORED,), state={"step": 1})


@pytest.fixture
def bank(tmp_path):
    save_sample(tmp_path / "ana")
    return MemoryBank.open(tmp_path / "ana", encoder=HashingEncoder())


def list_files(bank):
    return {path: path.read_bytes() for path in bank.path.rglob("*") if path.is_file()}


def test_a_scratch_without_changes_is_the_bank(bank):
    scratch = Scratch(bank)
    assert (scratch.messages, scratch.records, scratch.tracks, scratch.profile) == (bank.messages, bank.records, bank.tracks, bank.profile)
    assert (scratch.version, scratch.bank_id, scratch.state, scratch.file_names) == (bank.version, "ana", {}, bank.file_names)
    assert scratch.search_records("nurse", k=2) == bank.search_records("nurse", k=2)


def test_changes_are_found_in_the_scratch_and_reach_neither_the_bank_nor_another_scratch(bank):
    bank.build_index()
    files, version = list_files(bank), bank.version
    scratch, other = Scratch(bank), Scratch(bank)
    scratch.apply(PARROT)
    assert scratch.search_messages("parrot", k=1)[0].message_id == "msg:6" and scratch.search_records("parrot", k=1) == [STORED.record]
    assert scratch.search_records("nurse", k=1)[0].record_id == "rec:2", "what the bank holds is searched too"
    assert scratch.message("msg:6") == PARROT.messages[0] and scratch.provenance("rec:6") == ("msg:6",) and len(scratch.messages) == 6
    assert scratch.version == f"{version}+1" and scratch.state == {"step": 1} and scratch.history("rec:6") == (STORED,)
    for untouched in (bank, other):
        assert len(untouched.messages) == 5 and untouched.message("msg:6") is None and untouched.record("rec:6") is None
        assert all(message.message_id != "msg:6" for message in untouched.search_messages("parrot", k=5)) and untouched.version == version
        assert untouched.messages.session_names == ["s1"] and untouched.messages.speaker_names == ["Ana"]
    other.apply(Changes(messages=(make_message(6, "Another sixth one.", speaker="Ben", session_id="s9"),)))
    assert other.message("msg:6").text == "Another sixth one." and scratch.message("msg:6").text == "I adopted a parrot."
    assert scratch.search_messages("parrot", k=1)[0].speaker == "Ana"
    assert list_files(bank) == files and MemoryBank.open(bank.path).version == version


def test_updates_merges_tracks_and_profile_change_in_the_scratch_alone(bank):
    scratch = Scratch(bank)
    scratch.apply(PARROT)
    merged = make_record(3, "Ana has a bike and a parrot.", time="2024-03-06T10:00:00", source_ids=("msg:3", "msg:6"))
    revision = RecordRevision(operation=RecordOperation.MERGE, record=merged, merged_ids=("rec:6",))
    tracks, _ = relink(scratch.tracks, scratch.profile, [revision])
    profile = Profile(text="Has a parrot. [rec:3]", time="2024-03-06T10:00:00", source_ids=("rec:3",))
    scratch.apply(Changes(revisions=(revision,), tracks=tracks, profile=profile))
    assert scratch.record("rec:6") is None and scratch.record("rec:3") == merged and scratch.search_records("parrot", k=1) == [merged]
    assert "Has a parrot" in scratch.file("profile.md") and scratch.item_of_file("bike.md").time == merged.time and scratch.version.endswith("+2")
    assert bank.record("rec:3").text == "Ana bought a red bike." and bank.profile == make_levels()["profile"] and "parrot" not in bank.file("profile.md")


def test_changes_that_would_not_hold_leave_the_scratch_as_it_was(bank):
    scratch = Scratch(bank)
    with pytest.raises(BankError, match="scratch over bank ana: msg:1: the id occurs twice"):
        scratch.apply(Changes(messages=(make_message(1),)))
    assert scratch.version == bank.version and len(scratch.messages) == 5


def test_the_memory_tools_work_over_a_scratch(bank):
    scratch = Scratch(bank)
    scratch.apply(PARROT)
    toolbox = MemoryToolbox(scratch, asked_at="2024-03-06T12:00:00", limits=ToolLimits(top_k=2), count_tokens=lambda text: len(text.split()))
    result = asyncio.run(toolbox.call(ToolCall(name="search_records", arguments={"query": "parrot"})))
    assert "rec:6" in result.item_ids and "msg:6" in result.message_ids
    late = MemoryToolbox(scratch, asked_at="2024-03-05T12:00:00", limits=ToolLimits(top_k=2), count_tokens=lambda text: len(text.split()))
    assert "rec:6" not in asyncio.run(late.call(ToolCall(name="search_records", arguments={"query": "parrot"}))).item_ids
