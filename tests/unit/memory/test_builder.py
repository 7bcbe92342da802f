"""The doors to construction: banks that are built whole or grow, with what must stay as it was where something fails."""

from __future__ import annotations

import asyncio

import pytest
from scripted_memory import Faults, ScriptedWriter, say, talk

from napmem_rl.errors import BankError, BudgetError, ConfigError, LLMError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_check import verify_bank
from napmem_rl.memory.bank_writer import BankWriter
from napmem_rl.memory.builder import build_bank, grow_bank

HISTORY = [*talk("add tea green", "set city Oslo"), *talk("set city Rome", first=5, session="s2", date="2024-03-02")]


def snapshot(folder) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_bank_is_built_from_messages_in_any_order(tmp_path):
    reports = []
    version = build_bank(tmp_path / "a", "ana", HISTORY[::-1], ScriptedWriter(), on_report=reports.append)
    assert build_bank(tmp_path / "b", "ana", HISTORY, ScriptedWriter()) == version == reports[0].version
    bank = MemoryBank.open(tmp_path / "a", expected_version=version)
    assert (list(bank.messages), bank.writer, [record.text for record in bank.records]) == (HISTORY, "scripted", ["tea green", "city Rome"])
    assert verify_bank(tmp_path / "a") == [] and sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_building_replaces_a_bank_and_growing_adds_to_it(tmp_path):
    build_bank(tmp_path / "a", "ana", HISTORY, ScriptedWriter())
    report = asyncio.run(grow_bank(tmp_path / "a", "ana", talk("add tea black", first=20, session="s9", date="2024-04-01"), writer=ScriptedWriter()))
    assert (report.counts["messages_added"], len(MemoryBank.open(tmp_path / "a").messages)) == (2, 8)
    build_bank(tmp_path / "a", "ana", HISTORY[:2], ScriptedWriter())
    assert len(MemoryBank.open(tmp_path / "a").messages) == 2


@pytest.mark.parametrize("durable", [True, False])
def test_a_bank_that_grows_in_steps_has_the_version_of_one_built_in_one_go(tmp_path, durable):
    for part in (HISTORY[:4], HISTORY[4:], HISTORY):
        report = asyncio.run(grow_bank(tmp_path / "a", "ana", part, writer=ScriptedWriter(), durable=durable))
    assert report.version == build_bank(tmp_path / "b", "ana", HISTORY, ScriptedWriter()) and report.counts == {"messages_known": 6}


def test_steps_that_could_not_be_done_keep_a_bank_from_its_place(tmp_path):
    build_bank(tmp_path / "a", "ana", HISTORY[:2], ScriptedWriter())
    before = snapshot(tmp_path)
    with pytest.raises(LLMError, match="bank ana: 1 steps could not be done .topics: topics 1 is down.*Nothing was written"):
        build_bank(tmp_path / "a", "ana", HISTORY, ScriptedWriter(before_call=Faults("topics", *range(9), error=lambda _: LLMError("topics 1 is down"))))
    assert snapshot(tmp_path) == before


def test_steps_may_be_left_to_a_later_run(tmp_path):
    down = ScriptedWriter(before_call=Faults("topics", *range(9)))
    build_bank(tmp_path / "a", "ana", HISTORY, down, allow_pending=True)
    assert MemoryBank.open(tmp_path / "a").tracks == ()
    report = asyncio.run(grow_bank(tmp_path / "a", "ana", writer=ScriptedWriter()))
    assert report.is_complete and [track.title for track in MemoryBank.open(tmp_path / "a").tracks] == ["city", "tea"]


def test_a_spent_budget_ends_a_run_and_the_next_one_goes_on(tmp_path):
    spent = ScriptedWriter(before_call=Faults("extract", 2, error=BudgetError))
    with pytest.raises(BudgetError):
        asyncio.run(grow_bank(tmp_path / "a", "ana", HISTORY, writer=spent))
    assert [record.text for record in MemoryBank.open(tmp_path / "a").records] == ["tea green"]
    report = asyncio.run(grow_bank(tmp_path / "a", "ana", HISTORY, writer=ScriptedWriter()))
    assert report.is_complete and report.version == build_bank(tmp_path / "b", "ana", HISTORY, ScriptedWriter())


@pytest.mark.parametrize("messages", [[say(1, time="today")], [say(1), say(1, "other")]])
def test_messages_that_cannot_be_stored_leave_everything_as_it_was(tmp_path, messages):
    build_bank(tmp_path / "a", "ana", HISTORY, ScriptedWriter())
    before = snapshot(tmp_path)
    with pytest.raises(BankError):
        build_bank(tmp_path / "a", "ana", messages, ScriptedWriter())
    assert snapshot(tmp_path) == before


def test_a_place_that_holds_something_else_is_refused(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "thesis.txt").write_text("mine")
    with pytest.raises(BankError, match="holds something else"):
        build_bank(tmp_path / "a", "ana", HISTORY, ScriptedWriter())
    with pytest.raises(BankError, match="holds something else"):
        asyncio.run(grow_bank(tmp_path / "a", "ana", HISTORY, writer=ScriptedWriter()))
    assert snapshot(tmp_path) == {"a/thesis.txt": b"mine"}


def test_a_bank_that_is_being_written_and_one_of_another_user_are_refused(tmp_path):
    build_bank(tmp_path / "a", "ana", HISTORY, ScriptedWriter())
    with BankWriter.open(tmp_path / "a", bank_id="ana", writer="x"), pytest.raises(BankError, match="is being written"):
        asyncio.run(grow_bank(tmp_path / "a", "ana", [], writer=ScriptedWriter()))
    with pytest.raises(BankError, match="that of another user"):
        asyncio.run(grow_bank(tmp_path / "a", "bo", [], writer=ScriptedWriter()))


def test_an_unknown_writer_is_refused_before_anything_is_made(tmp_path):
    with pytest.raises(ConfigError, match="bank ana: unknown memory writer; got 'magic'; expected one of rules"):
        asyncio.run(grow_bank(tmp_path / "a", "ana", HISTORY, writer="magic"))
    assert list(tmp_path.iterdir()) == []


async def test_the_synchronous_door_opens_where_an_event_loop_runs_too(tmp_path):
    assert build_bank(tmp_path / "a", "ana", HISTORY, ScriptedWriter()) == build_bank(tmp_path / "b", "ana", HISTORY, ScriptedWriter())


def test_rules_give_one_memory_in_one_go_and_session_by_session(tmp_path):
    messages = talk("I moved to Oslo.", "I live near my sister Mia.", "I prefer tea.", "Mia works in Oslo.") + talk("Mia likes jazz.", first=9, session="s2")
    for part in (messages[:8], messages[8:]):
        asyncio.run(grow_bank(tmp_path / "a", "ana", part))
    assert MemoryBank.open(tmp_path / "a").version == build_bank(tmp_path / "b", "ana", messages)
    assert MemoryBank.open(tmp_path / "b").records and MemoryBank.open(tmp_path / "b").profile.text
