"""Whatever sequence of changes a bank takes, it holds what the same changes make of a memory in Python objects, however it is opened again."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from bank_maker import make_message
from hypothesis import given, settings
from hypothesis import strategies as st

from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_check import verify_bank
from napmem_rl.memory.bank_writer import BankWriter
from napmem_rl.memory.changes import Changes, apply_changes, relink
from napmem_rl.memory.pyramid import Pyramid, find_problems
from napmem_rl.memory.scratch import Scratch
from napmem_rl.memory.versions import list_versions
from napmem_rl.schema import Message, Profile, Record, RecordOperation, RecordRevision, RecordType, Track

EMPTY = Pyramid(messages=(), records=(), tracks=(), profile=Profile(text="", time="", source_ids=()))
STEPS = st.lists(st.tuples(st.sampled_from(["message", "store", "update", "merge", "track", "profile"]), st.integers(0, 10**6)), min_size=1, max_size=12)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def make_record(pyramid: Pyramid, record_id: str, text: str, source_ids: set[str]) -> Record:
    """A record of these messages, with the time and session of the newest."""
    newest = max((message for message in pyramid.messages if message.message_id in source_ids), key=lambda message: message.time)
    kind = list(RecordType)[len(text) % 4]
    return Record(record_id=record_id, type=kind, text=text, time=newest.time, source_ids=tuple(sorted(source_ids)), session_id=newest.session_id)


def make_changes(pyramid: Pyramid, used: set[str], kind: str, number: int, text: str) -> Changes:
    """One step as changes; what cannot be done yet is a message instead."""
    records, messages = pyramid.records, pyramid.messages
    if kind == "store" and messages:
        record = make_record(pyramid, f"rec:{len(used)}", text, {messages[number % len(messages)].message_id, messages[number % 7 % len(messages)].message_id})
        return Changes(revisions=(RecordRevision(operation=RecordOperation.STORE, record=record),))
    if kind in ("update", "merge") and len(records) > 1:
        first, second = records[number % len(records)], records[(number + 1) % len(records)]
        sources = {*first.source_ids, messages[number % len(messages)].message_id} | set(second.source_ids if kind == "merge" else ())
        merged_ids = (second.record_id,) if kind == "merge" else ()
        revision = RecordRevision(operation=RecordOperation(kind), record=make_record(pyramid, first.record_id, text, sources), merged_ids=merged_ids)
        tracks, profile = relink(pyramid.tracks, pyramid.profile, [revision])
        return Changes(revisions=(revision,), tracks=tracks, profile=profile)
    if kind == "track" and records:
        linked = records[number % len(records) :][:3]
        ids = tuple(record.record_id for record in linked)
        narrative = " ".join(f"[{record_id}]" for record_id in ids)
        time = max(record.time for record in linked)
        name = f"t{number % 3}"
        track = Track(track_id=f"trk:{name}", file_name=f"{name}.md", title=name, summary=name, narrative=narrative, time=time, record_ids=ids)
        kept = tuple(other for other in pyramid.tracks if other.file_name != track.file_name)
        return Changes(tracks=(*kept, track), profile=Profile(text=f"{number}", time="", source_ids=()))
    if kind == "profile" and records:
        record = records[number % len(records)]
        return Changes(profile=Profile(text=f"x [{record.record_id}]", time=record.time, source_ids=(record.record_id,)))
    return Changes(messages=(make_new_message(len(messages), number, text),))


def make_new_message(count: int, number: int, text: str) -> Message:
    return make_message(1 + number % 28, text, message_id=f"msg:{count}", session_id=f"s{number % 4}", role=("user", "assistant")[number % 2], speaker=text[:3])


@settings(deadline=None, max_examples=60)
@given(steps=STEPS, texts=st.lists(TEXT, min_size=12, max_size=12), reopen=st.sets(st.integers(0, 11)), lose_index=st.booleans())
def test_a_bank_holds_what_its_changes_say_however_it_is_opened(steps, texts, reopen, lose_index):
    directory = Path(tempfile.mkdtemp())
    try:
        path, pyramid, used, states = directory / "b", EMPTY, set(), []
        writer = BankWriter.open(path, bank_id="b", writer="w", durable=False)
        for index, (kind, number) in enumerate(steps):
            changes = make_changes(pyramid, used, kind, number, texts[index])
            pyramid = apply_changes(pyramid, changes)
            used |= {revision.record.record_id for revision in changes.revisions}
            states.append((writer.commit(changes), pyramid))
            if index in reopen:
                writer.close()
                if lose_index:
                    shutil.rmtree(path / "index", ignore_errors=True)
                writer = BankWriter.open(path, bank_id="b", writer="w", durable=False)
            assert (tuple(writer.messages), tuple(writer.records), writer.tracks, writer.profile) == levels_of(pyramid)
        writer.close()
        assert find_problems(pyramid) == [] and verify_bank(path) == []
        by_version = dict(states)
        assert {commit.version for commit in list_versions(path)} == by_version.keys()
        for version, expected in by_version.items():
            bank = MemoryBank.open(path, version=version)
            assert (tuple(bank.messages), tuple(bank.records), bank.tracks, bank.profile) == levels_of(expected)
        check_scratch(path, steps, texts, pyramid, used)
    finally:
        shutil.rmtree(directory)


def check_scratch(path: Path, steps: list, texts: list[str], pyramid: Pyramid, used: set[str]) -> None:
    """The same steps once more over the bank, in a scratch."""
    bank = MemoryBank.open(path)
    scratch, before = Scratch(bank), levels_of(pyramid)
    for index, (kind, number) in enumerate(steps):
        changes = make_changes(pyramid, used, kind, number, texts[-index])
        used |= {revision.record.record_id for revision in changes.revisions}
        pyramid = apply_changes(pyramid, changes)
        scratch.apply(changes)
    assert (tuple(scratch.messages), tuple(scratch.records), scratch.tracks, scratch.profile) == levels_of(pyramid)
    assert (tuple(bank.messages), tuple(bank.records), bank.tracks, bank.profile) == before


def levels_of(pyramid: Pyramid) -> tuple:
    return pyramid.messages, pyramid.records, tuple(sorted(pyramid.tracks, key=lambda track: track.file_name)), pyramid.profile
