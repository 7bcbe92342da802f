"""Construction with a scripted writer: when each step is done, worked by hand; what failures leave; what a builder goes on from."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path

import pytest
from scripted_memory import Faults, ScriptedWriter, say, talk

from napmem_rl.errors import BankError, LLMError, PolicyOutputError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_check import verify_bank
from napmem_rl.memory.bank_writer import BankWriter
from napmem_rl.memory.build_report import BuildReport
from napmem_rl.memory.changes import Changes
from napmem_rl.memory.pyramid_builder import MAX_ATTEMPTS, PyramidBuilder
from napmem_rl.retrieval.encoder import HashingEncoder
from napmem_rl.schema import Message, RecordOperation, RecordRevision, RecordType


def grow(path: Path, messages: list[Message], writer: ScriptedWriter, *, finish: bool = True, **settings) -> BuildReport:
    """One run of a builder over the bank at `path`; it must leave a bank that holds."""

    async def run() -> BuildReport:
        with BankWriter.open(path, bank_id="ana", writer=writer.name, durable=False) as bank:
            builder = PyramidBuilder(bank, writer, **settings)
            await builder.add(messages)
            return await builder.finish() if finish else builder.report()

    report = asyncio.run(run())
    assert verify_bank(path) == []
    return report


def read_notes(path: Path) -> list[str]:
    return [json.loads(line)["note"] for line in (path / "commits.jsonl").read_text().splitlines()]


def texts(path: Path) -> list[str]:
    return [record.text for record in MemoryBank.open(path).records]


def count_lines(first: int, number: int) -> str:
    """A message of so many drafts, all different."""
    return "\n".join(f"add thing{position} of{position}" for position in range(first, first + number))


def test_batches_follow_one_schedule_over_all_sessions_of_a_bank(tmp_path):
    writer = ScriptedWriter()
    first, second = talk(*["add a b"] * 9), talk(*["add a b"] * 6, first=19, session="s2")
    grow(tmp_path / "b", first + second, writer)
    sizes = [len(about.split()) // 2 for _, about in writer.steps("extract")]
    assert sizes == [1, 2, 4, 2, 5, 1]  # 1, 2, 4, then the rest of s1; 5 and the rest of s2
    grow(tmp_path / "b", talk(*["add a b"] * 7, first=31, session="s3", date="2024-03-02"), writer)
    assert [len(about.split()) // 2 for _, about in writer.steps("extract")][6:] == [5, 2]


def test_a_writer_may_have_a_schedule_of_its_own(tmp_path):
    writer = ScriptedWriter()
    writer.turns_per_flush = 3
    grow(tmp_path / "b", talk(*["hi"] * 4) + talk("hi", first=9, session="s2"), writer)
    assert [about for _, about in writer.steps("extract")] == ["1 2 3 4 5 6", "7 8", "9 10"]


def test_messages_are_there_before_anything_is_drawn_from_them(tmp_path):
    report = grow(tmp_path / "b", talk("add tea green"), ScriptedWriter(before_call=Faults("extract", 1)), finish=False)
    assert read_notes(tmp_path / "b")[0] == "s1: 2 messages"
    assert [message.text for message in MemoryBank.open(tmp_path / "b").messages] == ["add tea green", "ok"] and not report.is_complete


def test_records_are_stored_skipped_updated_and_merged_with_their_history(tmp_path):
    said = ["add tea green", "set city Oslo", "set city Rome", "add trip Bern", "add trip Paris", "add tea green\njoin trip Oslo"]
    report = grow(tmp_path / "b", talk(*said), ScriptedWriter())
    bank = MemoryBank.open(tmp_path / "b")
    assert texts(tmp_path / "b") == ["tea green", "city Rome", "trip Bern Oslo Paris"]
    assert [(revision.operation, revision.record.text) for revision in bank.history("rec:2")] == [("store", "city Oslo"), ("update", "city Rome")]
    merged = bank.history("rec:3")[-1]
    assert (merged.operation, merged.merged_ids, merged.record.type) == (RecordOperation.MERGE, ("rec:4",), RecordType.PREFERENCE)
    assert merged.record.source_ids == ("msg:7", "msg:9", "msg:11") and bank.record("rec:4") is None
    done = {"messages_added": 12, "batches": 3, "records_stored": 4, "records_skipped": 1, "records_updated": 1, "records_merged": 1}
    assert report.counts == done | {"topic_rounds": 1, "profiles_written": 1} and report.is_complete


def test_a_draft_is_reconciled_with_drafts_of_its_own_message_too(tmp_path):
    writer = ScriptedWriter()
    grow(tmp_path / "b", talk("set city Oslo\nset city Rome\nset city Bern"), writer)
    assert texts(tmp_path / "b") == ["city Bern"]
    assert [about for _, about in writer.steps("reconcile")] == ["city Rome", "city Bern"]  # nothing is related to the first


def test_an_encoder_finds_related_records_that_share_no_word(tmp_path):
    class Cities(HashingEncoder):
        """Points all texts one way."""

        def encode(self, texts):
            rows = super().encode(texts) * 0
            rows[:, 0] = 1
            return rows

    for encoder, expected in ((None, []), (Cities(), ["drink coffee"])):
        writer = ScriptedWriter()
        grow(tmp_path / f"b{encoder is None}", talk("add tea green", "add drink coffee"), writer, encoder=encoder)
        assert [about for _, about in writer.steps("reconcile")] == expected


def test_a_writer_that_wants_no_related_records_stores_every_draft(tmp_path):
    writer = ScriptedWriter()
    writer.num_related = 0
    grow(tmp_path / "b", talk("add tea green", "add tea green"), writer)
    assert texts(tmp_path / "b") == ["tea green", "tea green"] and writer.steps("reconcile") == []


def test_what_a_model_gets_wrong_is_counted_and_the_rest_is_kept(tmp_path):
    said = ["add tea green", "bad:empty\nbad:surrogate\nbad:source tea x\nbad:half-source tea half\nbad:long tea"]
    said += [f"bad:{kind} tea {kind}" for kind in ("decision", "update-unknown", "merge-unknown", "update-none", "update-many", "update-blank", "update-long")]
    report = grow(tmp_path / "b", talk(*said), ScriptedWriter())
    repairs = {name: number for name, number in report.counts.items() if name.startswith(("draft", "decision"))}
    once = "draft_empty draft_broken_text draft_without_source draft_source_left_out draft_shortened decision_unreadable decision_no_target"
    once += " decision_many_targets decision_text_replaced decision_shortened"
    assert repairs == dict.fromkeys(once.split(), 1) | {"decision_unknown_target": 2}
    assert report.counts["records_stored"] == 6 and report.counts["records_updated"] == 4 and report.is_complete


def test_a_batch_that_cannot_be_read_gives_no_records_and_is_counted(tmp_path):
    writer = ScriptedWriter(before_call=Faults("extract", 1, error=PolicyOutputError))
    report = grow(tmp_path / "b", talk("add tea green", "add tea black"), writer)
    assert texts(tmp_path / "b") == ["tea black"] and report.counts["extraction_unreadable"] == 1 and report.is_complete


def test_known_empty_and_late_messages_are_counted(tmp_path):
    first = talk("add tea green", date="2024-03-05")
    grow(tmp_path / "b", first, ScriptedWriter())
    late = [*talk("set tea black", first=11, session="s0", date="2024-03-01"), dataclasses.replace(say(99), text="")]
    report = grow(tmp_path / "b", first + late, ScriptedWriter())
    assert {name: number for name, number in report.counts.items() if name.startswith("messages")} == {
        "messages_added": 2,
        "messages_known": 2,
        "messages_empty": 1,
        "messages_late": 2,
    }
    assert grow(tmp_path / "b", talk("hi", first=21, session="s3", date="2024-03-04"), ScriptedWriter()).counts["messages_late"] == 2
    (record,) = MemoryBank.open(tmp_path / "b").records
    assert (record.text, record.source_ids, record.time[:10], record.session_id) == ("tea black", ("msg:1", "msg:11"), "2024-03-05", "s1")
    again = grow(tmp_path / "b", first + late, ScriptedWriter())
    assert again.counts == {"messages_known": 4, "messages_empty": 1} and MemoryBank.open(tmp_path / "b").version == again.version


def test_a_session_that_comes_again_with_more_is_appended(tmp_path):
    messages = talk("add tea green", "add city Oslo")
    grow(tmp_path / "b", messages[:3], ScriptedWriter())
    writer = ScriptedWriter()
    grow(tmp_path / "b", messages, writer)
    assert list(MemoryBank.open(tmp_path / "b").messages) == messages and writer.steps("extract") == [("extract", "4")]


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (say(1, "other words"), "come again with other content: msg:1; nothing was written"),
        (say(7, time="May 2024"), "time 'May 2024' is not ISO 8601"),
        (dataclasses.replace(say(7), message_id="7"), "'7': is not an id"),
    ],
)
def test_messages_that_cannot_be_stored_change_nothing(tmp_path, wrong, problem):
    grow(tmp_path / "b", talk("add tea green"), ScriptedWriter())
    before = (tmp_path / "b" / "commits.jsonl").read_bytes()
    with pytest.raises(BankError, match=problem):
        grow(tmp_path / "b", [*talk("add city Oslo", first=5, session="s2"), wrong], ScriptedWriter())
    assert (tmp_path / "b" / "commits.jsonl").read_bytes() == before


def rounds(*sessions: list[Message], finish: bool = False, path: Path) -> list[tuple[str, str]]:
    """Extraction and topic calls over these sessions, without the end of a replay unless it is asked for."""
    writer = ScriptedWriter()
    grow(path / "b", [message for session in sessions for message in session], writer, finish=finish)
    return writer.steps("extract", "topics")


def test_topics_are_written_before_a_new_session_with_unprocessed_records(tmp_path):
    calls = rounds(talk("add tea green"), talk("add city Oslo", first=3, session="s2"), path=tmp_path)
    assert calls == [("extract", "1 2"), ("topics", "1"), ("extract", "3 4")]


def test_topics_are_not_written_before_a_new_session_without_unprocessed_records(tmp_path):
    calls = rounds(talk("hello"), talk("add city Oslo", first=3, session="s2"), path=tmp_path)
    assert calls == [("extract", "1 2"), ("extract", "3 4")]


def test_topics_are_written_where_a_session_goes_into_another_day(tmp_path):
    night = talk("add tea green", date="2024-03-01") + talk("add city Oslo", first=3, date="2024-03-02") + talk("hi", "hi", "hi", first=5, date="2024-03-02")
    assert rounds(night, path=tmp_path) == [("extract", "1 2"), ("topics", "1"), ("extract", "3 4 5 6"), ("extract", "7 8 9 10")]


def test_a_late_session_does_not_turn_the_calendar_back(tmp_path):
    rounds(talk("add tea green", date="2024-03-05"), path=tmp_path)
    late = talk("add city Oslo", "hi", first=3, session="s0", date="2024-03-01") + talk("hi", first=7, session="s0", date="2024-03-02")
    assert rounds(late, path=tmp_path) == [("topics", "1"), ("extract", "3 4 5 6"), ("extract", "7 8")]


@pytest.mark.parametrize(("number", "has_round"), [(20, False), (21, True)])
def test_topics_are_written_when_more_than_twenty_records_came(tmp_path, number, has_round):
    calls = rounds(talk(count_lines(0, number), "hi"), path=tmp_path)
    assert [name for name, _ in calls] == ["extract", *["topics"] * has_round, "extract"]


def test_the_twenty_are_counted_from_the_last_round(tmp_path):
    calls = rounds(talk(count_lines(0, 21), count_lines(30, 20), "hi", count_lines(60, 1), "hi", "hi"), path=tmp_path)
    assert [name for name, _ in calls] == ["extract", "topics", "extract", "extract", "topics"]


def test_topics_are_written_at_the_end_of_a_replay(tmp_path):
    assert rounds(talk("add tea green"), finish=True, path=tmp_path) == [("extract", "1 2"), ("topics", "1")]
    assert rounds(talk("add tea green"), finish=True, path=tmp_path) == []  # and not again


def test_revised_records_are_new_to_topics(tmp_path):
    writer = ScriptedWriter()
    sessions = talk("add tea green", "add city Oslo"), talk("set city Rome", first=5, session="s2"), talk("hi", first=7, session="s3")
    grow(tmp_path / "b", [message for session in sessions for message in session], writer)
    assert writer.steps("topics") == [("topics", "1 2"), ("topics", "2")]
    assert "city Rome" in MemoryBank.open(tmp_path / "b").file("city.md")


def test_a_failed_round_leaves_everything_as_it_was_and_is_retried_at_the_next_occasion(tmp_path):
    writer = ScriptedWriter(before_call=Faults("track", 2))  # fails with one track written
    sessions = [talk("add tea green\nadd city Oslo"), talk("add trip Rome", first=3, session="s2")]
    report = grow(tmp_path / "b", sessions[0] + sessions[1], writer, finish=False)
    bank = MemoryBank.open(tmp_path / "b")
    assert bank.tracks == () and texts(tmp_path / "b") == ["tea green", "city Oslo", "trip Rome"]
    assert [(step.step, step.attempts, step.reason) for step in report.pending] == [("topics", 1, "track 2 is down")]
    assert bank.state["topics"]["failure"] == {"attempts": 1, "reason": "track 2 is down"}
    report = grow(tmp_path / "b", [], writer)
    assert writer.steps("topics") == [("topics", "1 2"), ("topics", "1 2 3")] and report.is_complete
    assert [(track.track_id, track.title) for track in MemoryBank.open(tmp_path / "b").tracks] == [("trk:2", "city"), ("trk:1", "tea"), ("trk:3", "trip")]


def test_a_round_that_fails_at_the_end_gets_one_last_try(tmp_path):
    writer = ScriptedWriter(before_call=Faults("topics", 1))
    report = grow(tmp_path / "b", talk("add tea green"), writer)
    assert report.is_complete and report.counts["topic_round_failed"] == report.counts["topic_rounds"] == report.counts["profiles_written"] == 1
    report = grow(tmp_path / "c", talk("add tea green"), ScriptedWriter(before_call=Faults("topics", 1, 2)))
    assert [(step.step, step.attempts) for step in report.pending] == [("topics", 2)] and report.counts["topic_round_failed"] == 2
    assert "profiles_written" not in report.counts


def test_a_refused_write_is_counted_and_a_round_that_raises_it_is_rolled_back(tmp_path):
    class Careless(ScriptedWriter):
        async def write_topics(self, desk, records):
            await super().write_topics(desk, records)
            desk.create_track(title="x", summary="x", narrative="no links")

    report = grow(tmp_path / "b", talk("add tea green"), Careless())
    assert report.counts["track_writes_refused"] == report.counts["topic_round_failed"] == 2
    assert MemoryBank.open(tmp_path / "b").tracks == () and "rests on no record" in report.pending[0].reason


def profiles(writer: ScriptedWriter, path: Path, *sessions: list[Message], finish: bool = False) -> list[str]:
    grow(path / "b", [message for session in sessions for message in session], writer, finish=finish)
    return [about for _, about in writer.steps("profile")]


def test_the_first_profile_waits_for_tracks_and_follows_them_at_once(tmp_path):
    sessions = talk("add notopic x"), talk("add tea green", first=3, session="s2"), talk("hi", first=5, session="s3")
    writer = ScriptedWriter()
    assert profiles(writer, tmp_path, *sessions[:2]) == []
    assert profiles(writer, tmp_path, *sessions) == ["1 2"]
    assert MemoryBank.open(tmp_path / "b").profile.text == "- tea [trk:1]"


def test_without_tracks_the_first_profile_is_written_at_the_end_of_a_replay(tmp_path):
    assert profiles(ScriptedWriter(), tmp_path, talk("add notopic x"), finish=True) == ["1"]
    assert MemoryBank.open(tmp_path / "b").profile.text == "- notopic x [rec:1]"
    assert profiles(ScriptedWriter(), tmp_path, talk("hi", first=3, session="s2"), finish=True) == []


def test_the_profile_is_refreshed_after_tracks_changed_and_not_after_a_round_without_change(tmp_path):
    sessions = talk("add tea green"), talk("add tea black", first=3, session="s2"), talk("add notopic x", first=5, session="s3")
    sessions += (talk("hi", first=7, session="s4"),)
    assert profiles(ScriptedWriter(), tmp_path, *sessions) == ["1", "2"]


def test_the_profile_is_refreshed_when_the_topic_writer_asks(tmp_path):
    sessions = talk("add tea green"), talk("add notopic x", first=3, session="s2"), talk("hi", first=5, session="s3")
    assert profiles(ScriptedWriter(asks_for_profile=True), tmp_path, *sessions) == ["1", "2"]


@pytest.mark.parametrize(("number", "refreshed"), [(50, False), (51, True)])
def test_the_profile_is_refreshed_when_more_than_fifty_records_came(tmp_path, number, refreshed):
    writer = ScriptedWriter()
    profiles(writer, tmp_path, talk("add tea green"), finish=True)
    lines = "\n".join(f"add notopic {position}" for position in range(number))
    writer.num_related = 0
    assert profiles(writer, tmp_path, talk(lines, first=3, session="s2"))[1:] == [" ".join(str(2 + n) for n in range(number))] * refreshed


def test_a_kept_profile_stays_and_counts_as_done(tmp_path):
    writer = ScriptedWriter()
    grow(tmp_path / "b", talk("add tea green"), writer)
    writer.keeps_profile = True
    report = grow(tmp_path / "b", talk("add city Oslo", first=3, session="s2"), writer)
    assert report.counts["profiles_kept"] == 1 and MemoryBank.open(tmp_path / "b").profile.text == "- tea [trk:1]"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("word " * 400 + "[rec:1]", "has 2007 characters; expected at most 1500"),
        ("Likes tea. [rec:77] [trk:5]", "2 links lead to no record or track; got 'rec:77, trk:5'"),
        ("Likes tea.", "rests on nothing"),
        ("\ud800 [rec:1]", "is not valid Unicode"),
    ],
)
def test_a_profile_that_does_not_hold_leaves_the_old_one(tmp_path, text, reason):
    class Wrong(ScriptedWriter):
        async def write_profile(self, *arguments, **settings):
            return dataclasses.replace(await super().write_profile(*arguments, **settings), text=text)

    grow(tmp_path / "b", talk("add tea green"), ScriptedWriter())
    old = MemoryBank.open(tmp_path / "b").profile
    report = grow(tmp_path / "b", talk("add city Oslo", first=3, session="s2"), Wrong())
    assert MemoryBank.open(tmp_path / "b").profile.text == old.text and report.counts["profile_refused"] == 2
    assert reason in report.pending[0].reason and report.pending[0].step == "profile"
    assert grow(tmp_path / "b", [], ScriptedWriter()).is_complete
    assert MemoryBank.open(tmp_path / "b").profile.text == "- city [trk:2]\n- tea [trk:1]"


def test_a_profile_is_shown_from_the_newest_moment_that_its_writer_knew(tmp_path):
    messages = talk("add tea green", date="2024-03-01") + talk("add notopic x", first=3, session="s2", date="2024-03-09")
    grow(tmp_path / "b", messages, ScriptedWriter(asks_for_profile=True))
    assert MemoryBank.open(tmp_path / "b").profile.time == "2024-03-09T10:01:00"


def test_tracks_and_profile_follow_the_records_below_them(tmp_path):
    class Linker(ScriptedWriter):
        async def write_profile(self, profile, tracks, new_records, *, max_chars):
            draft = await super().write_profile(profile, tracks, new_records, max_chars=max_chars)
            return dataclasses.replace(draft, text=f"{draft.text} [rec:2]")

    first = talk("add trip Rome", "add trip Bern")
    grow(tmp_path / "b", first, Linker())
    grow(tmp_path / "b", talk("join trip Oslo", first=9, session="s2", date="2024-03-09"), Linker(), finish=False)
    bank = MemoryBank.open(tmp_path / "b")
    assert (bank.tracks[0].record_ids, bank.tracks[0].time) == (("rec:1",), "2024-03-09T10:04:00")
    assert bank.profile.text == "- trip [trk:1] [rec:1]" and bank.profile.time == "2024-03-09T10:04:00"


def test_a_profile_outlives_the_tracks_that_it_linked(tmp_path):
    class Tidy(ScriptedWriter):
        async def write_topics(self, desk, records):
            desk.merge_tracks(["city.md", "tea.md"], title="all", summary="All.", narrative="x [rec:1] [rec:2]")
            desk.drop_track("trip.md")
            self._before_call = Faults("profile", 1)

    grow(tmp_path / "b", talk("add tea green\nadd city Oslo\nadd trip Rome"), ScriptedWriter())
    grow(tmp_path / "b", talk("add more x", first=3, session="s2") + talk("hi", first=5, session="s3"), Tidy(), finish=False)
    bank = MemoryBank.open(tmp_path / "b")
    assert [track.track_id for track in bank.tracks] == ["trk:2"]
    assert bank.profile.text == "- city [trk:2]\n- tea [trk:2]\n- trip [rec:3]" and bank.profile.source_ids == ("trk:2", "rec:3")


def test_extraction_that_fails_waits_in_order_and_goes_on_where_it_was(tmp_path):
    writer = ScriptedWriter(before_call=Faults("extract", 2))
    report = grow(tmp_path / "b", talk("set city Oslo", "set city Rome", "set city Bern"), writer, finish=False)
    assert texts(tmp_path / "b") == ["city Oslo"]
    assert [(step.step, step.attempts, step.reason) for step in report.pending] == [("records of msg:3 to msg:6", 1, "extract 2 is down")]
    grow(tmp_path / "b", talk("set city Paris", first=7, session="s2"), writer)
    assert [about for _, about in writer.steps("extract")] == ["1 2", "3 4 5 6", "7 8"] and texts(tmp_path / "b") == ["city Paris"]


def test_a_failure_within_reconciliation_leaves_no_part_of_its_batch(tmp_path):
    writer = ScriptedWriter(before_call=Faults("reconcile", 2))
    grow(tmp_path / "b", talk("add tea green", "add city Oslo\nset city Rome\nset city Bern"), writer, finish=False)
    assert texts(tmp_path / "b") == ["tea green"]
    grow(tmp_path / "b", [], writer)
    assert texts(tmp_path / "b") == ["tea green", "city Bern"]


def test_a_batch_that_fails_again_and_again_lets_the_rest_pass_and_is_retried_at_the_end(tmp_path):
    writer = ScriptedWriter(before_call=Faults("extract", *range(1, MAX_ATTEMPTS + 1)))
    sessions = [talk("add tea green"), *(talk(f"add city {name}", first=first, session=name) for first, name in ((3, "s2"), (5, "s3"), (7, "s4")))]
    report = grow(tmp_path / "b", [message for session in sessions for message in session], writer, finish=False)
    assert texts(tmp_path / "b") == ["city s2", "city s3", "city s4"] and report.counts["extraction_failed"] == MAX_ATTEMPTS
    assert [(step.step, step.attempts) for step in report.pending] == [("records of msg:1 to msg:2", MAX_ATTEMPTS)]
    assert grow(tmp_path / "b", [], writer).is_complete and texts(tmp_path / "b")[-1] == "tea green"
    again = ScriptedWriter(before_call=Faults("extract", *range(1, MAX_ATTEMPTS + 1)))
    assert grow(tmp_path / "c", [message for session in sessions for message in session], again).is_complete  # in one run, its end included


def test_a_batch_set_aside_is_tried_first_by_the_next_run(tmp_path):
    writer = ScriptedWriter(before_call=Faults("extract", 1, 2, 3))
    sessions = [talk("add tea green"), *(talk("hi", first=first, session=f"s{first}") for first in (3, 5, 7))]
    grow(tmp_path / "b", [message for session in sessions for message in session], writer, finish=False)
    grow(tmp_path / "b", talk("hi", first=9, session="s9"), writer, finish=False)
    assert [about for _, about in writer.steps("extract")] == ["3 4", "5 6", "7 8", "1 2", "9 10"]


def test_failures_are_counted_from_the_last_success(tmp_path):
    writer = ScriptedWriter(before_call=Faults("extract", 1, 2, 4))
    grow(tmp_path / "b", talk("hi"), writer, finish=False)
    report = grow(tmp_path / "b", talk("hi", first=3, session="s2"), writer, finish=False)
    assert [(step.step, step.attempts) for step in report.pending] == [("records of msg:3 to msg:4", 1)]


def test_an_endpoint_that_is_down_is_asked_a_few_times_and_not_once_a_session(tmp_path):
    sessions = [talk(f"add tea {number}", first=2 * number + 1, session=f"s{number}") for number in range(40)]
    messages = [message for session in sessions for message in session]
    down = Faults("extract", *range(1, 1000))
    report = grow(tmp_path / "b", messages, ScriptedWriter(before_call=down))
    bank = MemoryBank.open(tmp_path / "b")
    assert len(bank.messages) == 80 and report.counts["extraction_failed"] == (MAX_ATTEMPTS + 1) + 2 * 2  # while sessions come, and twice at the end
    assert [(step.step, step.attempts) for step in report.pending] == [("records of msg:1 to msg:80", MAX_ATTEMPTS + 2)]
    assert bank.state["set_aside"] == [] and len(json.dumps(bank.state)) < 1000
    assert grow(tmp_path / "b", [], ScriptedWriter()).is_complete
    grow(tmp_path / "c", messages, ScriptedWriter())
    assert (tmp_path / "b" / "records.jsonl").read_bytes() == (tmp_path / "c" / "records.jsonl").read_bytes()


def test_a_session_that_comes_again_while_it_waits_is_flushed_as_it_came(tmp_path):
    writer = ScriptedWriter(before_call=Faults("extract", 2, 3))
    messages = talk("add tea green", "add city Oslo", "add trip Rome", "add trip Bern", "add trip Oslo")
    for part in (messages[:4], messages[4:8], messages[8:]):
        grow(tmp_path / "b", part, writer, finish=False)
    assert [about for _, about in writer.steps("extract")] == ["1 2", "3 4", "5 6 7 8", "9 10"]


def test_what_stays_undone_is_reported_with_its_reason_and_kept(tmp_path):
    down = Faults("extract", *range(1, 50))
    report = grow(tmp_path / "b", talk("add tea green"), ScriptedWriter(before_call=down))
    assert not report.is_complete and report.pending[0].reason.endswith("is down") and "pending: records of msg:1 to msg:2" in report.describe()
    assert grow(tmp_path / "b", [], ScriptedWriter()).is_complete and texts(tmp_path / "b") == ["tea green"]


def test_a_reason_is_kept_short_and_writable(tmp_path):
    def fail(_: str) -> LLMError:
        return LLMError("\ud800" + "x" * 1000)

    report = grow(tmp_path / "b", talk("add tea green"), ScriptedWriter(before_call=Faults("extract", 1, error=fail)), finish=False)
    assert report.pending[0].reason == "?" + "x" * 299


def test_a_writer_resumes_from_what_was_drawn_and_not_from_what_waits(tmp_path):
    writer = ScriptedWriter(before_call=Faults("extract", 2))
    grow(tmp_path / "b", talk("add tea green", "add city Oslo"), writer, finish=False)
    assert writer.resumed == (0, 0)
    grow(tmp_path / "b", [], writer, finish=False)
    assert writer.resumed == (2, 1)


def test_a_bank_that_no_builder_wrote_is_taken_as_it_is(tmp_path):
    asyncio.run(_write_by_hand(tmp_path / "b"))
    writer = ScriptedWriter()
    grow(tmp_path / "b", talk("set city Rome", "add tea green", first=5, session="s2", date="2024-03-02"), writer)
    bank = MemoryBank.open(tmp_path / "b")
    assert [(record.record_id, record.text) for record in bank.records] == [("rec:7", "city Rome"), ("rec:8", "tea green")]
    assert writer.steps("topics") == [("topics", "7 8")] and writer.steps("extract") == [("extract", "5 6"), ("extract", "7 8")]


async def _write_by_hand(path: Path) -> None:
    message = talk("hi")[0]
    record = dataclasses.replace(make_record("rec:7", message), text="city Oslo")
    with BankWriter.open(path, bank_id="ana", writer="hand", durable=False) as bank:
        bank.commit(Changes(messages=(message,), revisions=(RecordRevision(operation=RecordOperation.STORE, record=record),)))


def make_record(record_id: str, message: Message):
    from napmem_rl.schema import Record

    sources = (message.message_id,)
    return Record(record_id=record_id, type=RecordType.FACT, text="x", time=message.time, source_ids=sources, session_id=message.session_id)


def test_a_state_of_something_else_is_refused(tmp_path):
    with BankWriter.open(tmp_path / "b", bank_id="ana", writer="hand", durable=False) as bank:
        bank.commit(Changes(messages=tuple(talk("hi")), state={"format": 1, "num_flushes": 3, "waiting": 7}))
    with pytest.raises(BankError, match="bank ana: its builder state cannot be read .*Build the bank again"):
        grow(tmp_path / "b", [], ScriptedWriter())


def test_an_empty_history_is_an_empty_bank(tmp_path):
    report = grow(tmp_path / "b", [], ScriptedWriter())
    assert report.version and report.counts == {} and report.is_complete and MemoryBank.open(tmp_path / "b").messages == ()


def test_each_days_work_grows_with_the_session_and_not_with_the_bank(tmp_path):
    """Calls of the bank per added session, counted rather than timed."""
    counts = []

    class Counting(BankWriter):
        def message(self, message_id):
            counts[-1] += 1
            return super().message(message_id)

        def record(self, record_id):
            counts[-1] += 1
            return super().record(record_id)

    async def run() -> None:
        with Counting.open(tmp_path / "b", bank_id="ana", writer="scripted", durable=False) as bank:
            builder = PyramidBuilder(bank, ScriptedWriter())
            for day in range(1, 25):
                counts.append(0)
                await builder.add(talk(f"add notopic {day}", "add notopic tea", "hi", first=6 * day, session=f"s{day}", date=f"2024-03-{day:02d}"))

    asyncio.run(run())
    assert max(counts[-5:]) <= max(counts[3:8]) + 2


def test_errors_of_the_writer_that_are_not_an_endpoints_pass_through(tmp_path):
    with pytest.raises(ZeroDivisionError):
        grow(tmp_path / "b", talk("add tea green", "add city Oslo"), ScriptedWriter(before_call=Faults("extract", 2, error=ZeroDivisionError)))
    assert verify_bank(tmp_path / "b") == [] and texts(tmp_path / "b") == ["tea green"]
    assert LLMError is not ZeroDivisionError
