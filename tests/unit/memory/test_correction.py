"""What a user puts right stays right: the record says the user's words, tracks and profile follow, and no later work brings the wrong words back."""

from __future__ import annotations

import asyncio

import pytest
from byte_search import find_traces
from scripted_memory import ScriptedWriter, say, talk

from napmem_rl.errors import BankError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_check import verify_bank
from napmem_rl.memory.builder import build_bank, grow_bank, load_writer
from napmem_rl.memory.correction import correct
from napmem_rl.memory.forget_selection import Selectors
from napmem_rl.memory.forgetting import forget

MESSAGES = [
    say(1, "I prefer tea to coffee.", time="2024-03-01T10:00:00"),
    say(2, "I work as a nurse.", time="2024-03-01T10:01:00"),
    say(3, "I bought a red bike.", session="s2", time="2024-03-02T10:00:00"),
]


def rules():
    return load_writer("ana", "rules")


@pytest.fixture
def path(tmp_path):
    build_bank(tmp_path / "ana", "ana", MESSAGES)
    return tmp_path / "ana"


def find_id(path, text: str) -> str:
    return next(record.record_id for record in MemoryBank.open(path).records if text in record.text)


def test_a_corrected_record_says_the_users_words_and_keeps_what_it_said_in_its_history(path):
    wrong = find_id(path, "tea")
    done = correct(path, wrong, "  Ana prefers coffee\nto tea. ", make_writer=rules)
    bank = MemoryBank.open(path, expected_version=done.version)
    record = bank.record(wrong)
    assert record.text == "Ana prefers coffee to tea." and record.source_ids == ("msg:1", done.message_id)
    assert [revision.record.text for revision in bank.history(wrong)] == ["Ana prefers tea to coffee.", "Ana prefers coffee to tea."]
    message = bank.message(done.message_id)
    assert (message.role, message.speaker, message.text, message.session_id) == ("user", "Ana", record.text, "corrections")
    assert "coffee to tea" in bank.profile.text and "tea to coffee" not in bank.profile.text
    assert verify_bank(path) == [] and done.pending == ()
    assert bank.search_records("coffee", k=1)[0].record_id == wrong


def test_a_statement_of_the_profile_is_corrected_by_its_number(path):
    done = correct(path, "profile:1", "Ana prefers milk.", make_writer=rules)
    assert MemoryBank.open(path).record(done.record_id).text == "Ana prefers milk." and "milk" in MemoryBank.open(path).profile.text


def test_later_work_does_not_bring_the_wrong_words_back(path):
    wrong = find_id(path, "tea")
    correct(path, wrong, "Ana prefers coffee to tea.", make_writer=rules)
    asyncio.run(grow_bank(path, "ana", [*MESSAGES, say(9, "I like chess.", session="s9", time="2024-05-01T10:00:00")]))
    forget(path, Selectors(message_ids=("msg:2",)), make_writer=rules)  # draws the rest of that session again
    bank = MemoryBank.open(path)
    assert [record.text for record in bank.records if "tea" in record.text] == ["Ana prefers coffee to tea."]
    assert "tea to coffee" not in bank.profile.text and verify_bank(path) == []
    forget(path, Selectors(message_ids=("msg:1",)), make_writer=rules)
    bank = MemoryBank.open(path)
    assert bank.record(wrong).text == "Ana prefers coffee to tea." and find_traces("tea to coffee", path) == [] and verify_bank(path) == []


def test_forgetting_the_old_words_leaves_the_correction_alone_under_the_same_id(path):
    wrong = find_id(path, "tea")
    asked = []
    done = correct(path, wrong, "Ana prefers milk.", make_writer=rules, forgets_old=True, confirm=lambda plan: asked.append(plan) or True)
    assert [message.message_id for message in asked[0].messages] == ["msg:1"]
    bank = MemoryBank.open(path)
    assert [revision.record.text for revision in bank.history(wrong)] == ["Ana prefers milk."] and bank.record(wrong).source_ids == (done.message_id,)
    assert find_traces("coffee", path) == [] and "milk" in bank.profile.text and verify_bank(path) == []


def test_who_says_no_changes_nothing(path):
    version = MemoryBank.open(path).version
    assert correct(path, "rec:1", "Ana prefers milk.", make_writer=rules, forgets_old=True, confirm=lambda plan: False) is None
    assert MemoryBank.open(path).version == version


def test_a_language_models_bank_loses_the_wrong_statement_at_once_and_gets_the_right_one_with_the_next_run(tmp_path):
    build_bank(tmp_path / "ana", "ana", [*talk("set city Oslo"), *talk("add tea green", first=3, session="s2", date="2024-03-02")], ScriptedWriter())
    correct(tmp_path / "ana", "rec:1", "city Bergen")
    bank = MemoryBank.open(tmp_path / "ana")
    assert not any("Oslo" in bank.file(name) for name in bank.file_names) and bank.record("rec:1").text == "city Bergen"
    report = asyncio.run(grow_bank(tmp_path / "ana", "ana", writer=ScriptedWriter()))
    bank = MemoryBank.open(tmp_path / "ana")
    assert report.is_complete and any("city Bergen" in bank.file(name) for name in bank.file_names) and verify_bank(tmp_path / "ana") == []


@pytest.mark.parametrize(
    ("item_id", "text", "message"),
    [
        ("rec:99", "x", "is no record that is there"),
        ("msg:1", "x", "Messages are what was said and stay as they are"),
        ("profile", "x", "is no statement of the profile; expected profile:1 Ana prefers tea"),
        ("profile:99", "x", "is no statement of the profile"),
        ("rec:1", " \n", "has 0 characters"),
        ("rec:1", "x" * 1001, "has 1001 characters"),
        ("rec:1", "\ud800", "is not valid Unicode"),
    ],
)
def test_what_cannot_be_corrected_is_a_clear_error_and_the_bank_stays(path, item_id, text, message):
    version = MemoryBank.open(path).version
    with pytest.raises(BankError, match=message):
        correct(path, item_id, text, make_writer=rules)
    assert MemoryBank.open(path).version == version
