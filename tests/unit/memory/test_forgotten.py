"""What a bank was made to forget is not taken in again, whatever way messages come."""

from __future__ import annotations

import asyncio

import pytest
from scripted_memory import say

from napmem_rl.errors import BankError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_check import verify_bank
from napmem_rl.memory.builder import build_bank, grow_bank
from napmem_rl.memory.forgotten import FORGOTTEN_FILE, Forgetting, RemovedVersion, forgotten_ids, list_forgettings, list_removed_versions, render_forgettings
from napmem_rl.memory.versions import checkout_version

REMOVED = RemovedVersion(version="0" * 16, time="2026-01-01T00:00:00", writer="rules", num_messages=2, num_records=1, num_tracks=0)
FORGETTING = Forgetting(time="2026-01-02T00:00:00", selector="message", message_ids=("msg:2",), record_ids=(), track_ids=(), versions=(REMOVED,))


def note(path, *forgettings):
    (path / FORGOTTEN_FILE).write_bytes(render_forgettings(forgettings))


def test_a_bank_that_forgot_nothing_and_a_place_without_a_bank_have_no_forgotten_ids(tmp_path):
    build_bank(tmp_path / "ana", "ana", [say(1)])
    assert forgotten_ids(tmp_path / "ana") == forgotten_ids(tmp_path / "nowhere") == frozenset()


def test_the_list_reads_back_as_it_was_written(tmp_path):
    note(tmp_path, FORGETTING, FORGETTING)
    assert list_forgettings(tmp_path) == [FORGETTING, FORGETTING] and forgotten_ids(tmp_path) == {"msg:2"}
    assert list_removed_versions(tmp_path) == [(REMOVED, FORGETTING.time)] * 2


def test_forgotten_messages_are_passed_over_and_counted_when_they_come_again(tmp_path):
    build_bank(tmp_path / "ana", "ana", [say(1)])
    note(tmp_path / "ana", FORGETTING)
    report = asyncio.run(grow_bank(tmp_path / "ana", "ana", [say(1), say(2), say(3)]))
    assert report.counts["messages_forgotten"] == 1
    assert [message.message_id for message in MemoryBank.open(tmp_path / "ana").messages] == ["msg:1", "msg:3"]
    assert verify_bank(tmp_path / "ana") == []


def test_a_bank_that_is_built_anew_in_the_same_place_does_not_bring_them_back(tmp_path):
    build_bank(tmp_path / "ana", "ana", [say(1)])
    note(tmp_path / "ana", FORGETTING)
    build_bank(tmp_path / "ana", "ana", [say(1), say(2)])
    assert [message.message_id for message in MemoryBank.open(tmp_path / "ana").messages] == ["msg:1"]
    assert forgotten_ids(tmp_path / "ana") == {"msg:2"}


def test_a_version_that_is_written_elsewhere_takes_the_list_along(tmp_path):
    version = build_bank(tmp_path / "ana", "ana", [say(1)])
    note(tmp_path / "ana", FORGETTING)
    checkout_version(tmp_path / "ana", version, tmp_path / "copy")
    assert forgotten_ids(tmp_path / "copy") == {"msg:2"}


@pytest.mark.parametrize("content", [b"no json\n", b'{"time": ""}\n', b"[]\n", b"\xff\n"])
def test_a_damaged_list_is_an_error_for_who_adds_messages_and_a_problem_for_verify(tmp_path, content):
    build_bank(tmp_path / "ana", "ana", [say(1)])
    (tmp_path / "ana" / FORGOTTEN_FILE).write_bytes(content)
    with pytest.raises(BankError, match="forgotten.jsonl line 1: cannot be read"):
        asyncio.run(grow_bank(tmp_path / "ana", "ana", [say(2)]))
    assert any("forgotten.jsonl" in problem for problem in verify_bank(tmp_path / "ana"))
