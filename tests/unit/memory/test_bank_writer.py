"""Commits: what they add, what they refuse, and that versions follow content alone."""

from __future__ import annotations

import dataclasses
import json

import pytest
from bank_maker import make_levels, make_message, make_record, save_sample

from napmem_rl.errors import BankError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_check import verify_bank
from napmem_rl.memory.bank_writer import BankWriter
from napmem_rl.memory.changes import Changes, apply_changes, relink
from napmem_rl.memory.pyramid import Pyramid, find_problems
from napmem_rl.schema import Profile, RecordOperation, RecordRevision, Track


def open_writer(path, **options) -> BankWriter:
    return BankWriter.open(path, bank_id="ana", writer="hand", **options)


def store(*numbers: int) -> tuple[RecordRevision, ...]:
    return tuple(RecordRevision(operation=RecordOperation.STORE, record=make_record(number, f"Fact {number}.")) for number in numbers)


def update(number: int, text: str, *source_numbers: int, **fields) -> RecordRevision:
    record = make_record(number, text, time=f"2024-03-{max(source_numbers):02d}T10:00:00", source_ids=tuple(f"msg:{source}" for source in source_numbers))
    return RecordRevision(operation=RecordOperation.UPDATE, record=dataclasses.replace(record, **fields))


def merge(number: int, text: str, *source_numbers: int, merged: tuple[int, ...]) -> RecordRevision:
    revision = update(number, text, *source_numbers)
    return dataclasses.replace(revision, operation=RecordOperation.MERGE, merged_ids=tuple(f"rec:{other}" for other in merged))


def make_track(narrative: str, **fields) -> Track:
    return Track(**{"track_id": "trk:1", "file_name": "a.md", "title": "A", "summary": "s", "narrative": narrative} | fields)


def fill(path) -> str:
    """Three messages with a record each, and a track over two of them."""
    with open_writer(path) as writer:
        track = make_track("[rec:1] [rec:2]", time=make_record(2).time, record_ids=("rec:1", "rec:2"))
        return writer.commit(Changes(messages=tuple(map(make_message, (1, 2, 3))), revisions=store(1, 2, 3), tracks=(track,), note="first"))


def test_a_bank_grows_commit_by_commit_and_each_is_there_for_readers_at_once(tmp_path):
    with open_writer(tmp_path / "ana") as writer:
        assert writer.version is None and len(writer.messages) == 0 and writer.state == {}
        first = writer.commit(Changes(messages=(make_message(1),), revisions=store(1), state={"next": 2}, note="session s1"))
        early = MemoryBank.open(tmp_path / "ana")
        second = writer.commit(Changes(messages=(make_message(2),), revisions=(update(1, "Fact 1, again.", 1, 2),), state={"next": 3}))
        assert writer.version == second != first and writer.state == {"next": 3}
        assert writer.record("rec:1").text == "Fact 1, again." and writer.message("msg:2") == make_message(2) and writer.message("msg:3") is None
        late = MemoryBank.open(tmp_path / "ana", expected_version=second)
    assert (len(early.messages), early.records[0].text, early.version, early.state) == (1, "Fact 1.", first, {"next": 2})
    assert (len(late.messages), late.records[0].text, late.writer) == (2, "Fact 1, again.", "hand")
    assert [revision.record.text for revision in late.history("rec:1")] == ["Fact 1.", "Fact 1, again."]
    assert [revision.record.text for revision in early.history("rec:1")] == ["Fact 1."]
    assert verify_bank(tmp_path / "ana") == []


def test_the_version_does_not_depend_on_how_content_was_grouped_into_commits(tmp_path):
    messages, revisions = tuple(map(make_message, (1, 2, 3))), store(1, 2, 3)
    with open_writer(tmp_path / "a") as writer:
        whole = writer.commit(Changes(messages=messages, revisions=revisions))
    with open_writer(tmp_path / "b") as writer:
        for message, revision in zip(messages, revisions, strict=True):
            stepwise = writer.commit(Changes(messages=(message,), revisions=(revision,), state={"at": message.message_id}, note=message.message_id))
    saved = {"messages": messages, "records": [revision.record for revision in revisions], "tracks": (), "profile": Profile(text="", time="", source_ids=())}
    assert whole == stepwise == save_sample(tmp_path / "c", **saved)


def test_an_older_version_opens_as_it_was(tmp_path):
    profiles = [Profile(text=f"{number}", time="", source_ids=()) for number in (1, 2, 3)]
    with open_writer(tmp_path / "ana") as writer:
        changes = [Changes(messages=(make_message(n),), revisions=store(n), profile=profile) for n, profile in enumerate(profiles, start=1)]
        versions = [writer.commit(change) for change in changes]
        writer.commit(Changes(messages=(make_message(4, "Late."),), revisions=(merge(1, "All.", 1, 2, merged=(2,)),)))
    for number, version in enumerate(versions, start=1):
        bank = MemoryBank.open(tmp_path / "ana", version=version)
        assert len(bank.messages) == len(bank.records) == number and bank.profile.text == f"{number}" and bank.message("msg:4") is None
        assert bank.search_messages("late", k=3, before=None) == [] or all(m.message_id != "msg:4" for m in bank.search_messages("late", k=3))
    with pytest.raises(BankError, match="holds no version 0123; its newest of 4 is"):
        MemoryBank.open(tmp_path / "ana", version="0123")


def test_a_merge_unites_sources_and_the_ended_record_is_gone_but_in_history(tmp_path):
    fill(tmp_path / "ana")
    with open_writer(tmp_path / "ana") as writer:
        revision = merge(1, "Facts 1 and 3.", 1, 3, merged=(3,))
        tracks, profile = relink(writer.tracks, writer.profile, [revision])
        writer.commit(Changes(revisions=(revision,), tracks=tracks, profile=profile))
        assert [record.record_id for record in writer.records] == ["rec:1", "rec:2"]
    bank = MemoryBank.open(tmp_path / "ana")
    assert bank.record("rec:3") is None and bank.provenance("rec:1") == ("msg:1", "msg:3") and bank.item("rec:3") is None
    assert [revision.operation for revision in bank.history("rec:3")] == ["store"] and bank.history("rec:1")[-1].merged_ids == ("rec:3",)
    assert all(record.record_id != "rec:3" for record in bank.search_records("Fact 3", k=5))
    assert bank.tracks[0].time == "2024-03-03T10:00:00", "a track is as new as its newest record"
    with pytest.raises(BankError, match="rec:3"), open_writer(tmp_path / "ana") as writer:
        writer.commit(Changes(revisions=store(3)))


def test_a_link_to_a_merged_record_is_refused_and_relink_mends_it(tmp_path):
    version = fill(tmp_path / "ana")
    with open_writer(tmp_path / "ana") as writer:
        revision = merge(3, "Facts 2 and 3.", 2, 3, merged=(2,))
        with pytest.raises(BankError, match="trk:1: points to record rec:2, which does not exist"):
            writer.commit(Changes(revisions=(revision,)))
        assert writer.version == version
        tracks, profile = relink(writer.tracks, writer.profile, [revision])
        writer.commit(Changes(revisions=(revision,), tracks=tracks, profile=profile))
        (track,) = writer.tracks
    assert (track.record_ids, track.narrative, track.time) == (("rec:1", "rec:3"), "[rec:1] [rec:3]", "2024-03-03T10:00:00")
    assert verify_bank(tmp_path / "ana") == []


def test_relink_follows_a_chain_of_merges_and_leaves_one_link_where_two_would_stand():
    track = make_track("x [rec:1] [rec:2][rec:3], y [rec:2].", summary="[rec:1]", time="2024-03-03", record_ids=("rec:1", "rec:2", "rec:3"))
    profile = Profile(text="z [rec:2] and [trk:1]", time="2024-03-03", source_ids=("rec:2", "trk:1"))
    revisions = [merge(2, "a", 1, 2, merged=(1,)), merge(3, "b", 1, 2, 3, 9, merged=(2,))]
    (moved,), new_profile = relink([track], profile, revisions)
    assert (moved.summary, moved.narrative, moved.record_ids) == ("[rec:3]", "x [rec:3], y [rec:3].", ("rec:3",))
    assert new_profile == Profile(text="z [rec:3] and [trk:1]", time="2024-03-09T10:00:00", source_ids=("rec:3", "trk:1")) and moved.time == new_profile.time
    assert relink([track], profile, []) == ((track,), profile)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (Changes(messages=(make_message(1),)), "msg:1: the id occurs twice"),
        (Changes(messages=(make_message(8), make_message(8))), "msg:8: the id occurs twice"),
        (Changes(revisions=store(1)), "rec:1: the id occurs twice"),
        (Changes(revisions=store(7)), "rec:7: points to message msg:7, which does not exist"),
        (Changes(revisions=(update(3, "x", 1),)), "rec:3: update loses msg:3, a source of rec:3"),
        (Changes(revisions=(update(9, "x", 1),)), "rec:9: update of rec:9, which is no live record"),
        (Changes(revisions=(update(3, "x", 1, 3, time="2024-03-01T10:00:00"),)), "rec:3: its time 2024-03-01T10:00:00 is before that of its newest source"),
        (Changes(revisions=(update(3, "x", 3, session_id="s9"),)), "rec:3: its session 's9' is not that of its newest source, 's1'"),
        (Changes(revisions=(merge(3, "x", 3, merged=()),)), "rec:3: merge with 0 merged records"),
        (Changes(revisions=(merge(3, "x", 3, merged=(3,)),)), "rec:3: a merge names a record twice"),
        (Changes(revisions=(merge(3, "x", 3, merged=(9,)),)), "rec:3: merge of rec:9, which is no live record"),
        (Changes(revisions=(merge(3, "x", 3, merged=(1,)),)), "rec:3: merge loses msg:1, a source of rec:1"),
        (Changes(revisions=(dataclasses.replace(store(3)[0], merged_ids=("rec:1",)),)), "rec:3: store with 1 merged records"),
        (Changes(messages=(make_message(4),), revisions=(update(1, "x", 1, 4),)), "trk:1: its time 2024-03-02T10:00:00 is before that of its newest source"),
        (Changes(profile=Profile(text="[rec:1]", time="", source_ids=())), "profile: its text links to [rec:1], which is not among its sources"),
        (Changes(state={"at": object()}), "state or note cannot be written as JSON"),
        (Changes(state={"at": float("nan")}), "state or note cannot be written as JSON"),
        (Changes(note="\ud800"), "state or note cannot be written as JSON"),
        (Changes(messages=(make_message(8, "\ud800"),)), "msg:8: text is not valid Unicode"),
        (Changes(messages=(make_message(8, None),)), "msg:8: text is no text but NoneType"),
    ],
)
def test_changes_that_would_not_hold_are_refused_and_nothing_is_written(tmp_path, changes, message):
    version = fill(tmp_path / "ana")
    before = {path: path.read_bytes() for path in (tmp_path / "ana").rglob("*") if path.is_file() and path.name != ".lock"}
    with open_writer(tmp_path / "ana") as writer:
        with pytest.raises(BankError) as caught:
            writer.commit(changes)
        assert message in str(caught.value)
        assert writer.version == version and {path: path.read_bytes() for path in before} == before
        assert writer.commit(Changes(messages=(make_message(8),))) != version, "the writer goes on"
    assert verify_bank(tmp_path / "ana") == []


def test_changes_that_hold_nothing_new_make_no_version(tmp_path):
    version = fill(tmp_path / "ana")
    with open_writer(tmp_path / "ana") as writer:
        assert writer.commit(Changes()) == version
        assert writer.commit(Changes(tracks=writer.tracks, profile=writer.profile)) == version
        assert writer.commit(Changes(state={"next": 5})) == version and writer.state == {"next": 5}, "a new state is kept under the same version"
    assert len((tmp_path / "ana" / "commits.jsonl").read_text().splitlines()) == 2
    assert MemoryBank.open(tmp_path / "ana").state == {"next": 5}


def test_applying_changes_to_a_pyramid_gives_what_the_bank_holds_after_the_commit(tmp_path):
    levels = make_levels()
    save_sample(tmp_path / "ana")
    revisions = (update(4, "Ana likes green tea.", 4, 6), merge(3, "A bike and a move.", 1, 3, 6, merged=(1,)))
    tracks, profile = relink(levels["tracks"], levels["profile"], revisions)
    changes = Changes(messages=(make_message(6, "Green tea!"),), revisions=revisions, tracks=tracks, profile=profile)
    pyramid = apply_changes(Pyramid(**levels), changes)
    with open_writer(tmp_path / "ana") as writer:
        writer.commit(changes)
        assert (tuple(writer.messages), tuple(writer.records), writer.tracks, writer.profile) == (
            pyramid.messages, pyramid.records, pyramid.tracks, pyramid.profile,
        )  # fmt: skip
    assert find_problems(pyramid) == []
    with pytest.raises(BankError, match="changes: rec:9: update of rec:9"):
        apply_changes(pyramid, Changes(revisions=(update(9, "x", 1),)))


def test_what_a_writer_gave_stays_as_it_was(tmp_path):
    with open_writer(tmp_path / "ana") as writer:
        writer.commit(Changes(messages=(make_message(1),), revisions=store(1)))
        messages, records = writer.messages, writer.records
        writer.commit(Changes(messages=(make_message(2),), revisions=(*store(2), update(1, "New.", 1, 2))))
        assert (len(messages), [record.text for record in records]) == (1, ["Fact 1."])
        assert (len(writer.messages), [record.text for record in writer.records]) == (2, ["New.", "Fact 2."])


def test_a_bank_of_another_user_or_format_or_no_bank_at_all_is_not_written_to(tmp_path):
    fill(tmp_path / "ana")
    with pytest.raises(BankError, match="is that of another user; got 'ana'; expected 'ben'"):
        BankWriter.open(tmp_path / "ana", bank_id="ben", writer="hand")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "manifest.json").write_text("{}")
    with pytest.raises(BankError, match="format 1; this release reads format 2: build it again"):
        open_writer(tmp_path / "old")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"cat")
    with pytest.raises(BankError, match="which holds something else"):
        open_writer(tmp_path / "photos")
    with pytest.raises(BankError, match="not valid Unicode"):
        BankWriter.open(tmp_path / "new", bank_id="\ud800", writer="hand")


def test_a_broken_bank_is_not_written_to(tmp_path):
    fill(tmp_path / "ana")
    log = tmp_path / "ana" / "messages.jsonl"
    log.write_bytes(log.read_bytes().replace(b"Oslo", b"Rome", 1))
    with pytest.raises(BankError, match="hash differs.*nothing was written"):
        open_writer(tmp_path / "ana")


def test_a_failed_write_leaves_the_version_before_and_the_writer_says_so(tmp_path, monkeypatch):
    version = fill(tmp_path / "ana")
    with open_writer(tmp_path / "ana") as writer:
        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(OSError, match="No space left"):
                writer.commit(Changes(messages=(make_message(4),)))
        with pytest.raises(BankError, match="had a commit that failed .*No space left"):
            writer.commit(Changes(messages=(make_message(5),)))
        assert MemoryBank.open(tmp_path / "ana").version == version
    with pytest.raises(BankError, match="is closed"):
        writer.commit(Changes())
    with open_writer(tmp_path / "ana") as writer:
        writer.commit(Changes(messages=(make_message(5),)))
        assert [message.message_id for message in writer.messages] == ["msg:1", "msg:2", "msg:3", "msg:5"]
    assert verify_bank(tmp_path / "ana") == []


def test_what_a_crash_left_behind_is_ignored_by_readers_and_cut_by_the_next_writer(tmp_path):
    version = fill(tmp_path / "ana")
    for name in ("messages.jsonl", "records.jsonl", "commits.jsonl"):
        with (tmp_path / "ana" / name).open("ab") as stream:
            stream.write(b'{"half of a li' + b"n" * 5000)  # longer than what comes next
    (tmp_path / "ana" / "files" / f".a.md.{'0' * 32}.tmp").write_bytes(b"half")
    assert MemoryBank.open(tmp_path / "ana").version == version and verify_bank(tmp_path / "ana") == []
    with open_writer(tmp_path / "ana") as writer:
        writer.commit(Changes(messages=(make_message(4),)))
    assert verify_bank(tmp_path / "ana") == [] and not list((tmp_path / "ana" / "files").glob(".*"))
    assert not any(b"half of" in (tmp_path / "ana" / name).read_bytes() for name in ("messages.jsonl", "records.jsonl", "commits.jsonl"))
    lines = (tmp_path / "ana" / "messages.jsonl").read_text().splitlines()
    assert [json.loads(line)["message_id"] for line in lines] == ["msg:1", "msg:2", "msg:3", "msg:4"]
