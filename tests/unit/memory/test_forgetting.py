"""A bank that was made to forget holds nothing of it, and everything else as it was."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import tempfile
import unicodedata
from pathlib import Path

import pytest
from byte_search import find_traces
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_memory import ScriptedWriter, say, talk

from napmem_rl.errors import BankError, ConfigError
from napmem_rl.memory.bank import MemoryBank, save_bank
from napmem_rl.memory.bank_check import verify_bank
from napmem_rl.memory.bank_writer import BankWriter
from napmem_rl.memory.builder import build_bank, grow_bank, load_writer
from napmem_rl.memory.forget_selection import Selectors
from napmem_rl.memory.forgetting import forget, look
from napmem_rl.memory.forgotten import forgotten_ids, list_forgettings
from napmem_rl.memory.scratch import Scratch
from napmem_rl.memory.versions import checkout_version, list_versions
from napmem_rl.schema import Message

WORDS = ["".join(letters) for letters in itertools.islice(itertools.product("bdfgklmnprst", "aeiou", "bdfgklmnprst", "aeiou", "bdfgkl"), 7, 3000, 61)]
PLANS = (
    "I bought a {} lamp in Oslo.",
    "My sister Mia works at the {} hospital.",
    "I prefer {} tea to coffee.",
    "Please call me {} from now on.",
    "What does {} mean?",
    "Mia told me that {} is a town in Norway.",
    "Thanks!",
)


def rules():
    return load_writer("ana", "rules")


def ids(*numbers: int) -> Selectors:
    return Selectors(message_ids=tuple(f"msg:{number}" for number in numbers))


def history(shape: list[list[int]]) -> list[Message]:
    """One session a list, on a day of its own; a message a number: which of PLANS it follows, around a word of its own."""
    messages: list[Message] = []
    for day, session in enumerate(shape, start=1):
        for minute, plan in enumerate(session):
            number = len(messages) + 1
            time = f"2024-03-{day:02d}T10:{minute:02d}:00"
            text = PLANS[plan].format(WORDS[number].capitalize())
            messages.append(say(number, text, session=f"s{day}", time=time, role="user" if minute % 2 == 0 else "assistant"))
    return messages


def show(bank: MemoryBank) -> dict:
    """What a bank says, without the ids of records and tracks."""
    names = {record.record_id: record.text for record in bank.records} | {track.track_id: track.title for track in bank.tracks}

    def name(text: str) -> str:
        for item_id, said in names.items():
            text = text.replace(f"[{item_id}]", f"[{said}]")
        return text

    return {
        "messages": list(bank.messages),
        "records": [dataclasses.replace(record, record_id="") for record in bank.records],
        "tracks": sorted((track.title, track.summary, name(track.narrative), track.time) for track in bank.tracks),
        "profile": name(bank.profile.text),
        "found": [(record.text, record.source_ids) for query in ("Oslo lamp", "Mia hospital") for record in bank.search_records(query, k=5)],
        "said": [message.message_id for query in ("Oslo lamp", "Norway town") for message in bank.search_messages(query, k=5)],
    }


@settings(max_examples=15, deadline=None)
@given(shape=st.lists(st.lists(st.integers(0, len(PLANS) - 1), min_size=1, max_size=6), min_size=1, max_size=5), data=st.data())
def test_after_forgetting_a_bank_of_the_writer_rules_is_what_it_were_had_the_messages_never_been_there(shape, data):
    messages = history(shape)
    gone = data.draw(st.sets(st.sampled_from([message.message_id for message in messages]), min_size=1), label="gone")
    left = [message for message in messages if message.message_id not in gone]
    with tempfile.TemporaryDirectory() as directory:
        path, fresh = Path(directory) / "ana", Path(directory) / "fresh" / "ana"
        build_bank(path, "ana", messages)
        before = MemoryBank.open(path)
        before.build_index()
        untouched = {record for record in before.records if not gone.intersection(record.source_ids)}
        first = {message.session_id for message in messages if message.message_id in gone}
        kept = {record for record in untouched if record.session_id not in first}
        done = forget(path, Selectors(message_ids=tuple(gone)), make_writer=rules)
        after = MemoryBank.open(path)
        assert done is not None and after.version == done.version and done.pending == ()
        assert verify_bank(path) == [] and forgotten_ids(path) == gone
        assert kept <= set(after.records), "records of other sessions stay, ids included"
        build_bank(fresh, "ana", left)
        assert show(after) == show(MemoryBank.open(fresh))
        for message in messages:
            if message.message_id in gone and message.text != "Thanks!":
                word = WORDS[int(message.message_id[4:])]
                assert find_traces(word, path.parent) == [] and find_traces(word.capitalize(), path.parent) == []
        assert [entry.name for entry in path.parent.iterdir()] in (["ana", "fresh"], ["fresh", "ana"]), "nothing is left beside the bank"
        again = asyncio.run(grow_bank(path, "ana", messages))
        assert again.counts["messages_forgotten"] == len(gone) and show(MemoryBank.open(path)) == show(MemoryBank.open(fresh))


def test_versions_from_before_the_first_forgotten_message_stay_and_later_ones_are_named_as_removed(tmp_path):
    messages = history([[0, 1], [2, 3], [1, 0]])
    build_bank(tmp_path / "ana", "ana", messages)
    old = list_versions(tmp_path / "ana")
    before = [commit for commit in old if commit.num_messages <= 2]
    forget(tmp_path / "ana", ids(3), make_writer=rules)
    assert list_versions(tmp_path / "ana")[: len(before)] == before
    checkout_version(tmp_path / "ana", before[-1].version, tmp_path / "copy")
    assert verify_bank(tmp_path / "copy") == []
    for commit in old[len(before) :]:
        gone = f"version {commit.version} held content that the bank was made to forget on 20"
        with pytest.raises(BankError, match=gone):
            checkout_version(tmp_path / "ana", commit.version, tmp_path / "no")
        with pytest.raises(BankError, match=gone):
            MemoryBank.open(tmp_path / "ana", version=commit.version)
    (noted,) = list_forgettings(tmp_path / "ana")
    assert {version.version for version in noted.versions} == {commit.version for commit in old[len(before) :]} and noted.selector == "message"


def test_without_names_of_versions_the_list_holds_none(tmp_path):
    build_bank(tmp_path / "ana", "ana", history([[0, 1]]))
    version = MemoryBank.open(tmp_path / "ana").version
    forget(tmp_path / "ana", ids(1), make_writer=rules, names_versions=False)
    assert list_forgettings(tmp_path / "ana")[0].versions == () and find_traces(version, tmp_path) == []


def test_everything_can_be_forgotten_and_the_bank_goes_on(tmp_path):
    messages = history([[0, 1], [2]])
    build_bank(tmp_path / "ana", "ana", messages)
    forget(tmp_path / "ana", ids(1, 2, 3), make_writer=rules)
    bank = MemoryBank.open(tmp_path / "ana")
    assert (len(bank.messages), len(bank.records), bank.tracks, bank.profile.text) == (0, 0, (), "") and verify_bank(tmp_path / "ana") == []
    asyncio.run(grow_bank(tmp_path / "ana", "ana", [say(9, "I prefer tea to coffee.")]))
    assert [record.record_id for record in MemoryBank.open(tmp_path / "ana").records] == ["rec:3"], "numbers are not used again"


def test_a_second_forgetting_finds_nothing_and_says_so_and_unknown_ids_are_errors(tmp_path):
    build_bank(tmp_path / "ana", "ana", history([[0, 1], [2]]))
    assert forget(tmp_path / "ana", ids(1), make_writer=rules) is not None
    version = MemoryBank.open(tmp_path / "ana").version
    assert forget(tmp_path / "ana", ids(1), make_writer=rules) is None and MemoryBank.open(tmp_path / "ana").version == version
    assert forget(tmp_path / "ana", ids(1, 2), make_writer=rules) is not None and forgotten_ids(tmp_path / "ana") == {"msg:1", "msg:2"}
    with pytest.raises(BankError, match="holds no message 'msg:33'. Did you mean msg:3"):
        forget(tmp_path / "ana", ids(33), make_writer=rules)


@pytest.mark.parametrize(
    ("selectors", "gone"),
    [
        (Selectors(session_ids=("s2",)), [3, 4]),
        (Selectors(after="2024-03-02", before="2024-03-02"), [3, 4]),
        (Selectors(after="2024-03-02T10:01"), [4, 5]),
        (Selectors(before="2024-03-01"), [1, 2]),
        (Selectors(query="OSLO lamp"), [1, 5]),
        (Selectors(query="oslo", nearest=1), [5]),
        (Selectors(record_ids=("rec:1",)), [1, 2]),
        (Selectors(message_ids=("msg:2",), session_ids=("s3",)), [2, 5]),
    ],
)
def test_each_kind_of_selector_takes_its_messages(tmp_path, selectors, gone):
    build_bank(tmp_path / "ana", "ana", history([[0, 1], [2, 3], [0]]))
    done = forget(tmp_path / "ana", selectors, make_writer=rules)
    assert [int(message.message_id[4:]) for message in done.plan.messages] == gone


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_query_finds_a_word_however_its_accents_are_written(tmp_path, form):
    other = {"NFC": "NFD", "NFD": "NFC"}[form]
    text = unicodedata.normalize(form, "I like gründliche Arbeit.")
    said = Message(message_id="msg:1", session_id="s1", role="user", speaker="Ana", text=text, time="2024-03-01T10:00:00")
    build_bank(tmp_path / "ana", "ana", [said])
    assert look(tmp_path / "ana", Selectors(query=unicodedata.normalize(other, "GRÜNDLICH")), rules).messages == (said,)


@pytest.mark.parametrize(
    ("selectors", "message"),
    [
        (Selectors(), "nothing is named"),
        (Selectors(after="March"), "--after: is no time; got 'March'"),
        (Selectors(after="2024-03-03", before="2024-03-01"), "lies after --before"),
        (Selectors(query=" "), "--query: is empty"),
        (Selectors(query="a", nearest=0), "--nearest: is not positive"),
        (Selectors(session_ids=("s11",)), "holds no session 's11'. Did you mean s1"),
        (Selectors(record_ids=("rec:99",)), "holds no record 'rec:99'"),
    ],
)
def test_selectors_that_name_nothing_are_refused_and_the_bank_stays(tmp_path, selectors, message):
    build_bank(tmp_path / "ana", "ana", history([[0, 1]]))
    version = MemoryBank.open(tmp_path / "ana").version
    with pytest.raises((ConfigError, BankError), match=message):
        forget(tmp_path / "ana", selectors, make_writer=rules)
    assert MemoryBank.open(tmp_path / "ana").version == version and verify_bank(tmp_path / "ana") == []


def test_a_reader_of_the_old_bank_gets_a_clear_error_whatever_it_looks_at(tmp_path):
    build_bank(tmp_path / "ana", "ana", history([[0, 1], [2]]))
    bank = MemoryBank.open(tmp_path / "ana")
    scratch = Scratch(bank)
    bank.search_messages("Oslo", k=1)
    forget(tmp_path / "ana", ids(3), make_writer=rules)
    looks = (
        lambda: bank.message("msg:1"),
        lambda: bank.record("rec:1"),
        lambda: bank.item("rec:1"),
        lambda: bank.history("rec:1"),
        lambda: bank.file("profile.md"),
        lambda: bank.search_messages("Oslo", k=1),
        lambda: bank.search_records("Oslo", k=1),
        lambda: scratch.record("rec:1"),
    )
    for read in looks:
        with pytest.raises(BankError, match="was made to forget something since version [0-9a-f]{16} was opened. Open it again"):
            read()
    assert MemoryBank.open(tmp_path / "ana").message("msg:1") is not None


def test_a_bank_that_is_being_written_or_is_another_by_now_is_refused(tmp_path):
    version = build_bank(tmp_path / "ana", "ana", history([[0, 1]]))
    with BankWriter.open(tmp_path / "ana", bank_id="ana", writer="rules"), pytest.raises(BankError, match="is being written by process"):
        forget(tmp_path / "ana", ids(1), make_writer=rules)
    asyncio.run(grow_bank(tmp_path / "ana", "ana", [say(9, "I prefer tea.")]))
    with pytest.raises(BankError, match="is of another version"):
        forget(tmp_path / "ana", ids(1), make_writer=rules, expected_version=version)
    assert len(MemoryBank.open(tmp_path / "ana").messages) == 3


def scripted(tmp_path: Path, *messages: Message) -> MemoryBank:
    build_bank(tmp_path / "ana", "ana", messages, ScriptedWriter())
    return MemoryBank.open(tmp_path / "ana")


def facts(path: Path) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {record.record_id: (record.text, record.source_ids) for record in MemoryBank.open(path).records}


def test_an_updated_record_says_again_what_it_said_before_the_forgotten_message(tmp_path):
    scripted(tmp_path, *talk("set city Oslo"), *talk("set city Bergen", first=3, session="s2", date="2024-03-02"))
    done = forget(tmp_path / "ana", ids(3), make_writer=ScriptedWriter)
    assert facts(tmp_path / "ana") == {"rec:1": ("city Oslo", ("msg:1",))} and done.pending == ()
    assert find_traces("Bergen", tmp_path) == [] and verify_bank(tmp_path / "ana") == []


def test_what_a_lost_record_rested_on_besides_is_drawn_again_by_the_writer(tmp_path):
    scripted(tmp_path, *talk("set city Oslo"), *talk("set city Bergen", first=3, session="s2", date="2024-03-02"))
    forget(tmp_path / "ana", ids(1), make_writer=ScriptedWriter)
    assert facts(tmp_path / "ana") == {"rec:2": ("city Bergen", ("msg:3",))}
    assert [track.title for track in MemoryBank.open(tmp_path / "ana").tracks] == ["city"]
    assert find_traces("Oslo", tmp_path) == [] and verify_bank(tmp_path / "ana") == []


def test_a_merge_that_rests_on_a_forgotten_message_is_undone_and_its_parts_live_again(tmp_path):
    messages = (*talk("add trip Rome"), *talk("add trip Riga", first=3, session="s2", date="2024-03-02"))
    scripted(tmp_path, *messages, *talk("join trip Wien", first=5, session="s3", date="2024-03-03"))
    assert len(facts(tmp_path / "ana")) == 1
    forget(tmp_path / "ana", ids(5), make_writer=ScriptedWriter)
    assert sorted(text for text, _ in facts(tmp_path / "ana").values()) == ["trip Riga", "trip Rome"]
    assert find_traces("Wien", tmp_path) == [] and verify_bank(tmp_path / "ana") == []


def test_without_a_writer_what_cannot_be_kept_is_dropped_named_as_pending_and_written_by_the_next_run_that_has_one(tmp_path):
    scripted(tmp_path, *talk("set city Oslo"), *talk("set city Bergen\nadd tea green", first=3, session="s2", date="2024-03-02"))
    done = forget(tmp_path / "ana", ids(1))
    assert done.plan.remains.gone_ids == ("rec:1",) and done.plan.remains.orphan_ids == ("msg:3",)
    bank = MemoryBank.open(tmp_path / "ana")
    assert {track.title for track in bank.tracks} == {"tea"} and find_traces("Oslo", tmp_path) == [] and find_traces("Bergen", tmp_path / "ana" / "files") == []
    report = asyncio.run(grow_bank(tmp_path / "ana", "ana", writer=ScriptedWriter()))
    assert report.is_complete and ("city Bergen", ("msg:3",)) in facts(tmp_path / "ana").values() and verify_bank(tmp_path / "ana") == []


def test_a_writer_that_fails_leaves_its_steps_pending_and_the_content_gone(tmp_path):
    from scripted_memory import Faults

    scripted(tmp_path, *talk("set city Oslo"), *talk("set city Bergen", first=3, session="s2", date="2024-03-02"))
    done = forget(tmp_path / "ana", ids(1), make_writer=lambda: ScriptedWriter(before_call=Faults("extract", *range(1, 50))))
    assert [step.step for step in done.pending][:1] == ["records of msg:3 to msg:3"]
    assert find_traces("Oslo", tmp_path) == [] and verify_bank(tmp_path / "ana") == []


def test_a_bank_that_no_builder_wrote_loses_what_rests_on_the_messages(tmp_path):
    from bank_maker import make_levels

    save_bank(tmp_path / "ana", bank_id="ana", writer="hand", **make_levels())
    done = forget(tmp_path / "ana", ids(1))
    bank = MemoryBank.open(tmp_path / "ana")
    assert [record.record_id for record in bank.records] == ["rec:3", "rec:4"] and done.plan.remains.orphan_ids == ("msg:2",)
    assert [track.track_id for track in bank.tracks] == ["trk:2"] and bank.profile.text == "Likes tea. [rec:4]"
    assert find_traces("moved to", tmp_path) == [] and find_traces("nurse", tmp_path / "ana" / "files") == [] and verify_bank(tmp_path / "ana") == []


def test_vectors_of_what_was_forgotten_go_with_it(tmp_path):
    from napmem_rl.retrieval.encoder import HashingEncoder

    build_bank(tmp_path / "ana", "ana", history([[0, 1], [2]]))
    MemoryBank.open(tmp_path / "ana", encoder=HashingEncoder()).build_index()
    old = {path.name for path in (tmp_path / "ana" / "index").iterdir() if path.is_dir()}
    forget(tmp_path / "ana", ids(1), make_writer=rules)
    assert old and not old.intersection(path.name for path in (tmp_path / "ana" / "index").iterdir())
    assert [message.message_id for message in MemoryBank.open(tmp_path / "ana", encoder=HashingEncoder()).search_messages("hospital", k=1)] == ["msg:2"]


def test_an_index_that_a_reader_builds_while_the_bank_forgets_is_not_left_in_the_new_bank(tmp_path, monkeypatch):
    import napmem_rl.memory.bank as module

    build_bank(tmp_path / "ana", "ana", history([[0, 1], [2]]))
    bank = MemoryBank.open(tmp_path / "ana")
    real = module.PassageIndex

    def build_late(*args, **options):
        forget(tmp_path / "ana", ids(1), make_writer=rules)
        return real(*args, **options)

    monkeypatch.setattr(module, "PassageIndex", build_late)
    with pytest.raises(BankError, match="was made to forget something"):
        bank.search_messages("Oslo", k=1)
    assert find_traces(WORDS[1], tmp_path) == [] and verify_bank(tmp_path / "ana") == []
