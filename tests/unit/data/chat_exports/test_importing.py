"""Imports into banks: what comes twice, what grew, what was forgotten, what was killed; and counts that add up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from chat_samples import claude_chat, claude_message, gpt_chain, make_uuid, write_json
from memory_endpoint import serve_memory_model

from napmem_rl.cli import main
from napmem_rl.data.chat_exports.importing import import_chats
from napmem_rl.data.chat_exports.reading import ReadOptions
from napmem_rl.data.chat_exports.writer_choice import read_writer_choice
from napmem_rl.errors import BankError, ConfigError, DataError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_check import verify_bank
from napmem_rl.memory.builder import build_bank
from napmem_rl.memory.forgotten import FORGOTTEN_FILE, Forgetting, render_forgettings
from napmem_rl.memory.import_state import IMPORT_FILE, load_import_state
from napmem_rl.memory.versions import checkout_version, list_versions

CHAT = "13/04/2024, 10:00 - Ana: My sister Mia moved to Oslo.\n13/04/2024, 10:01 - Bo: wow\n"
MORE = "15/05/2024, 09:00 - Ana: I prefer tea to coffee.\n"


def write_chat(tmp_path: Path, text: str, name: str = "_chat.txt") -> Path:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / name


def ids(bank: Path) -> list[str]:
    return [message.message_id for message in MemoryBank.open(bank).messages]


def test_the_same_file_again_adds_nothing_and_says_so(tmp_path):
    chat, options = write_chat(tmp_path, CHAT), ReadOptions(user="Ana")
    first = import_chats([chat], tmp_path / "bank", options=options)
    versions = list_versions(tmp_path / "bank")
    second = import_chats([chat], tmp_path / "bank")
    assert (first.tally.num_new, second.tally.num_new, second.tally.num_known) == (2, 0, 2)
    assert list_versions(tmp_path / "bank") == versions and verify_bank(tmp_path / "bank") == []
    assert "2 messages read = 2 kept (0 new)" in "\n".join(second.describe())


def test_a_later_export_under_another_name_adds_only_what_is_new_for_the_same_user(tmp_path):
    import_chats([write_chat(tmp_path, CHAT)], tmp_path / "bank", options=ReadOptions(user="Ana"))
    summary = import_chats([write_chat(tmp_path, CHAT + MORE, "WhatsApp Chat (2).txt")], tmp_path / "bank")
    assert (summary.tally.num_new, summary.tally.num_known) == (1, 2)
    bank = MemoryBank.open(tmp_path / "bank")
    assert [message.role for message in bank.messages] == ["user", "assistant", "user"] and len(bank.records) >= 2


def test_several_files_and_a_directory_that_hold_the_same_messages_merge_them(tmp_path):
    (tmp_path / "chats").mkdir()
    write_chat(tmp_path / "chats", CHAT, "a.txt")
    write_chat(tmp_path / "chats", CHAT + MORE, "b.txt")
    write_json(tmp_path / "chats" / "user.json", {"id": "u"})
    (tmp_path / "chats" / "photo.jpg").write_bytes(b"x")
    summary = import_chats([tmp_path / "chats", tmp_path / "chats" / "a.txt"], tmp_path / "bank", options=ReadOptions(user="Ana"))
    assert summary.tally.num_read == 5 and summary.tally.num_new == 3 and summary.tally.merged == {"same_message": 2}


def test_chats_of_one_name_in_several_directories_are_read_each_with_its_own_people(tmp_path):
    for name, other in (("a", "Bo"), ("b", "Cy")):
        (tmp_path / "chats" / name).mkdir(parents=True)
        write_chat(tmp_path / "chats" / name, f"13/04/2024, 10:00 - Ana: Hello {other}.\n13/04/2024, 10:01 - {other}: I moved.\n")
    (tmp_path / "chats" / "empty.txt").write_text("")
    (tmp_path / "chats" / "diary.txt").write_text("Dear diary")
    summary = import_chats([tmp_path / "chats"], tmp_path / "bank")
    assert summary.tally.speakers == {"Ana": 2, "Bo": 1, "Cy": 1} and sorted(summary.tally.other_files) == ["diary.txt", "empty.txt"]
    assert [name for name, _ in summary.tally.files] == ["a/_chat.txt", "b/_chat.txt"] and load_import_state(tmp_path / "bank").user == "Ana"


def test_a_language_model_that_a_file_describes_writes_the_records(tmp_path):
    export = write_json(tmp_path / "c.json", [gpt_chain("c1", ["My sister Mia moved to Oslo.", "Nice.", "I prefer tea to coffee."])])
    with serve_memory_model() as model:
        (tmp_path / "writer.yaml").write_text(f'model: scripted\nbase_url: {model.url}\napi_key_env: ""\n')
        summary = import_chats([export], tmp_path / "bank", writer=read_writer_choice(str(tmp_path / "writer.yaml")))
    bank = MemoryBank.open(tmp_path / "bank")
    assert summary.problem is None and summary.num_records == len(bank.records) > 0 and "scripted" in bank.writer


def test_a_budget_that_is_spent_leaves_counts_that_add_up_and_the_next_run_goes_on(tmp_path):
    chats = [gpt_chain(f"c{number}", ["My sister Mia moved to Oslo.", "Nice."], start=1714e6 + number * 90000, first_id=number * 10) for number in range(6)]
    export, writer = write_json(tmp_path / "c.json", chats), tmp_path / "writer.yaml"
    with serve_memory_model() as model:
        settings = f'model: scripted\nbase_url: {model.url}\napi_key_env: ""\n'
        writer.write_text(settings + "max_total_tokens: 4000\n")
        spent = import_chats([export], tmp_path / "bank", writer=read_writer_choice(str(writer)))
        writer.write_text(settings)
        whole = import_chats([export], tmp_path / "bank", writer=read_writer_choice(str(writer)))
    assert "budget" in (spent.problem or "") and spent.tally.left_out["not_yet"] > 0
    assert whole.problem is None and whole.num_messages == 12 and whole.tally.num_new == spent.tally.left_out["not_yet"]


def test_exports_of_several_programs_go_into_one_bank(tmp_path):
    gpt = write_json(tmp_path / "conversations.json", [gpt_chain("c1", ["I bought a kayak.", "Nice."])])
    claude = write_json(tmp_path / "claude.json", [claude_chat([claude_message(1, "human", "I sold the kayak.")])])
    summary = import_chats([gpt, claude, write_chat(tmp_path, CHAT)], tmp_path / "bank", options=ReadOptions(user="Ana"))
    assert {name for _, name in summary.tally.files} == {"chatgpt", "claude", "whatsapp"} and summary.num_messages == 5
    messages = MemoryBank.open(tmp_path / "bank").messages
    assert [message.time for message in messages] == sorted(message.time for message in messages)
    assert {message.speaker for message in messages if message.role == "user"} == {"Ana"}


def test_what_was_forgotten_does_not_come_back(tmp_path):
    chat, bank = write_chat(tmp_path, CHAT), tmp_path / "bank"
    import_chats([chat], bank, options=ReadOptions(user="Ana"))
    gone = ids(bank)[0]
    note = Forgetting(time="2026-01-01T00:00:00", selector="message", message_ids=(gone,), record_ids=(), track_ids=(), versions=())
    key = (bank / IMPORT_FILE).read_bytes()
    for entry in bank.rglob("*"):
        entry.unlink() if entry.is_file() else None
    (bank / "bank.json").write_text(json.dumps({"bank_id": "bank", "format": 2}) + "\n")
    (bank / IMPORT_FILE).write_bytes(key)
    (bank / FORGOTTEN_FILE).write_bytes(render_forgettings([note]))
    summary = import_chats([chat], bank)
    assert summary.tally.left_out == {"forgotten_earlier": 1} and gone not in ids(bank) and len(ids(bank)) == 1


def test_a_message_that_was_changed_since_is_kept_beside_the_old_one_once(tmp_path):
    export, bank = tmp_path / "c.json", tmp_path / "bank"
    import_chats([write_json(export, [claude_chat([claude_message(1, "human", "I moved to Oslo.")])])], bank)
    changed = [claude_chat([claude_message(1, "human", "I moved to Bergen.")])]
    summary = import_chats([write_json(export, changed)], bank)
    assert summary.tally.notes == {"changed": 1} and [message.text for message in MemoryBank.open(bank).messages] == ["I moved to Oslo.", "I moved to Bergen."]
    assert import_chats([export], bank).tally.num_new == 0


def test_other_flags_for_what_the_bank_has_change_nothing_and_say_so(tmp_path):
    chat, bank = write_chat(tmp_path, CHAT), tmp_path / "bank"
    import_chats([chat], bank, options=ReadOptions(user="Ana"))
    summary = import_chats([chat], bank, options=ReadOptions(user="Bo", time_zone="Europe/Oslo"))
    assert (summary.tally.num_new, summary.num_messages) == (0, 2) and summary.tally.notes == {"other_time": 2, "other_role": 2}


def test_two_texts_of_one_message_are_both_kept_in_whichever_order_they_come(tmp_path):
    both = [claude_chat([claude_message(1, "human", text)], uuid=f"chat-{text[-3:-1]}") for text in ("I moved to Oslo.", "I moved to Bergen.")]
    bank = tmp_path / "bank"
    assert import_chats([write_json(tmp_path / "c.json", both)], bank).tally.num_new == 2
    assert import_chats([write_json(tmp_path / "c.json", both[::-1])], bank).tally.num_new == 0


def test_a_changed_text_that_was_forgotten_does_not_come_back(tmp_path):
    export, bank = tmp_path / "c.json", tmp_path / "bank"
    import_chats([write_json(export, [claude_chat([claude_message(1, "human", "I moved to Oslo.")])])], bank)
    gone = (f"{ids(bank)[0]}.v2",)
    note = Forgetting(time="2026-01-01T00:00:00", selector="message", message_ids=gone, record_ids=(), track_ids=(), versions=())
    (bank / FORGOTTEN_FILE).write_bytes(render_forgettings([note]))
    summary = import_chats([write_json(export, [claude_chat([claude_message(1, "human", "I moved to Bergen.")])])], bank)
    assert summary.tally.left_out == {"forgotten_earlier": 1} and len(ids(bank)) == 1


def test_messages_alone_come_first_and_records_later_as_if_they_had_been_drawn_at_once(tmp_path):
    export = write_json(tmp_path / "c.json", [gpt_chain("c1", ["My sister Mia moved to Oslo.", "Nice.", "I prefer tea to coffee."])])
    summary = import_chats([export], tmp_path / "two", writer=read_writer_choice("none"))
    assert summary.num_records == 0 and summary.num_messages == 3 and "messages alone" in (summary.hint or "")
    import_chats([export], tmp_path / "two")
    import_chats([export], tmp_path / "one")
    one, two = MemoryBank.open(tmp_path / "one"), MemoryBank.open(tmp_path / "two")
    assert list(one.records) == list(two.records) and one.profile == two.profile and one.records


def test_ids_say_nothing_of_what_a_message_says_and_differ_from_bank_to_bank(tmp_path):
    chat = write_chat(tmp_path, CHAT)
    for name in ("a", "b"):
        import_chats([chat], tmp_path / name, options=ReadOptions(user="Ana"))
    assert not set(ids(tmp_path / "a")) & set(ids(tmp_path / "b"))


def test_a_copy_of_a_version_and_a_bank_built_anew_know_the_same_messages_again(tmp_path):
    chat = write_chat(tmp_path, CHAT)
    import_chats([chat], tmp_path / "bank", options=ReadOptions(user="Ana"))
    checkout_version(tmp_path / "bank", list_versions(tmp_path / "bank")[-1].version, tmp_path / "copy")
    assert import_chats([chat], tmp_path / "copy").tally.num_new == 0
    build_bank(tmp_path / "bank", "bank", MemoryBank.open(tmp_path / "bank").messages)
    assert import_chats([chat], tmp_path / "bank").tally.num_new == 0


def test_bad_input_leaves_a_bank_as_it_was(tmp_path):
    bank = tmp_path / "bank"
    import_chats([write_chat(tmp_path, CHAT)], bank, options=ReadOptions(user="Ana"))
    before = {path: path.read_bytes() for path in bank.rglob("*") if path.is_file()}
    with pytest.raises(DataError):
        import_chats([write_chat(tmp_path, "no chat at all\n", "x.txt")], bank)
    assert {path: path.read_bytes() for path in bank.rglob("*") if path.is_file()} == before
    assert not list(tmp_path.glob(".import-*"))


def test_a_directory_of_something_else_and_a_damaged_key_are_refused(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.doc").write_text("x")
    chat = write_chat(tmp_path, CHAT)
    with pytest.raises(BankError, match="something else is"):
        import_chats([chat], tmp_path / "other", options=ReadOptions(user="Ana"))
    import_chats([chat], tmp_path / "bank", options=ReadOptions(user="Ana"))
    (tmp_path / "bank" / IMPORT_FILE).write_text("{")
    with pytest.raises(BankError, match="import.json: cannot be read.*second time"):
        import_chats([chat], tmp_path / "bank")
    assert any("import.json" in problem for problem in verify_bank(tmp_path / "bank"))


def test_a_writers_file_is_checked_setting_by_setting(tmp_path):
    path = tmp_path / "writer.yaml"
    for content, problem in (("modle: x", "unknown.*model"), ("model: 3", "another type"), ("base_url: x", "names no model"), ("- a", "no mapping")):
        path.write_text(content)
        with pytest.raises(ConfigError, match=problem):
            read_writer_choice(str(path))
    path.write_text("model: m\nbase_url: http://localhost:1/v1\nrpm: 3\n")
    assert read_writer_choice(str(path)).settings.rpm == 3
    with pytest.raises(ConfigError, match="--writer: is unknown"):
        read_writer_choice("ruels")


KILLABLE = [
    gpt_chain(f"c{number}", [f"My friend Mia{number} moved to Oslo.", "Nice.", "I prefer tea."], start=1714e6 + number * 90000, first_id=number * 10)
    for number in range(12)
]


def count_commits(bank: Path) -> int:
    try:
        return (bank / "commits.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


@pytest.mark.parametrize("num_commits", [0, 2, 9, 20])
def test_an_import_that_was_killed_goes_on_and_ends_as_one_that_was_not(tmp_path, num_commits):
    export = write_json(tmp_path / "conversations.json", KILLABLE)
    whole = import_chats([export], tmp_path / "whole" / "bank")
    bank = tmp_path / "killed" / "bank"
    process = subprocess.Popen([sys.executable, "-m", "napmem_rl.cli", "import", str(export), "--out", str(bank)], stdout=subprocess.DEVNULL)
    while process.poll() is None and (not (bank / "bank.json").exists() or count_commits(bank) < num_commits):
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    summary = import_chats([export], bank)
    assert summary.num_messages == whole.num_messages == 36 and summary.tally.num_read == 36
    assert list_versions(bank)[-1].version == list_versions(tmp_path / "whole" / "bank")[-1].version
    assert verify_bank(bank) == [] and not list(bank.parent.glob(".import-*"))


def test_the_command_prints_counts_that_add_up(tmp_path, capsys):
    export = write_json(tmp_path / "conversations.json", [gpt_chain("c1", ["I moved to Oslo.", "", "I prefer tea."]), 5])
    assert main(["import", str(export), "--out", str(tmp_path / "bank"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    messages = told["messages"]
    assert messages["read"] == 3 == sum(messages["kept"].values()) + sum(messages["merged"].values()) + sum(messages["left_out"].values())
    assert told["places"]["empty"] == [f"conversations.json, conversation 1, node {make_uuid(1)}"]
    assert told["conversations"] == {"read": 2, "without_messages": {"not_a_conversation": 1}} and told["bank"]["messages"] == 2


def test_the_command_names_what_is_wrong_in_one_line(tmp_path, capsys):
    assert main(["import", str(tmp_path / "nothing.zip"), "--out", str(tmp_path / "bank")]) == 1
    assert capsys.readouterr().err == f"napmem: export {tmp_path / 'nothing.zip'}: does not exist\n"
    assert not (tmp_path / "bank").exists() and load_import_state(tmp_path / "bank") is None


def test_published_samples_import_whole(tmp_path):
    data = Path(os.environ.get("NAPMEM_DATA", ""), "chat_exports")
    if not os.environ.get("NAPMEM_DATA") or not data.is_dir():
        pytest.skip("NAPMEM_DATA does not point to a directory with chat_exports")
    for path in sorted(data.iterdir()):
        if path.suffix in (".json", ".jsonl", ".txt"):
            user = "Ana" if path.suffix == ".txt" else None
            summary = import_chats([path], tmp_path / path.stem, options=ReadOptions(user=user))
            assert summary.problem is None and summary.num_messages > 0 and verify_bank(tmp_path / path.stem) == [], path.name
