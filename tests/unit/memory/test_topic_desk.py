"""The desk of a topic writer: every write that does not hold is refused in words and leaves the tracks as they were."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_memory import say

from napmem_rl.errors import PolicyOutputError
from napmem_rl.memory.pyramid import Pyramid, find_problems
from napmem_rl.memory.topic_desk import MAX_NARRATIVE_CHARS, MAX_SUMMARY_CHARS, MAX_TITLE_CHARS, TopicRound
from napmem_rl.schema import Profile, Record, RecordType

MESSAGES = tuple(say(number) for number in range(1, 5))
RECORDS = tuple(
    Record(record_id=f"rec:{number}", type=RecordType.FACT, text="x", time=MESSAGES[number - 1].time, source_ids=(f"msg:{number}",), session_id="s1")
    for number in range(1, 5)
)
PARTS = {"title": "Tea", "summary": "Ana drinks tea.", "narrative": "Green tea. [rec:1]\n\nBlack tea. [rec:3] [rec:1]"}


def open_desk(tracks=(), **fields) -> TopicRound:
    find = {record.record_id: record for record in RECORDS}.get
    return TopicRound(tracks, RECORDS, find_record=find, **{"next_track": 1} | fields)


def check(desk: TopicRound) -> None:
    """What the desk holds could be committed."""
    assert find_problems(Pyramid(messages=MESSAGES, records=RECORDS, tracks=desk.list_tracks(), profile=Profile(text="", time="", source_ids=()))) == []


def test_a_new_track_is_named_after_its_title_and_rests_on_the_records_it_links():
    desk = open_desk()
    track = desk.create_track(**PARTS)
    assert (track.track_id, track.file_name, track.record_ids, track.time) == ("trk:1", "tea.md", ("rec:1", "rec:3"), RECORDS[2].time)
    assert desk.list_tracks() == (track,) and desk.read_track("tea.md") == track and desk.next_track == 2
    check(desk)


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Café & Tea!", "cafe-tea.md"),
        ("茶", "topic-3.md"),
        ("Profile", "profile-3.md"),
        ("Tea", "tea-3.md"),
        ("../../etc", "etc.md"),
        ("y" * 90, "y" * 60 + ".md"),
    ],
)
def test_file_names_are_plain_and_never_taken(title, name):
    desk = open_desk(open_desk().list_tracks(), next_track=2)
    desk.create_track(**PARTS)
    assert desk.create_track(**PARTS | {"title": title}).file_name == name
    check(desk)


@pytest.mark.parametrize(
    ("part", "text", "problem"),
    [
        ("title", "  ", "the title is empty"),
        ("title", "a\nb", "the title has 2 lines; expected one line"),
        ("title", "x" * (MAX_TITLE_CHARS + 1), "the title has 101 characters; expected at most 100"),
        ("summary", "a\u2028b", "the summary has 2 lines"),
        ("summary", "x" * (MAX_SUMMARY_CHARS + 1), "the summary has 601 characters"),
        ("narrative", "", "the narrative is empty"),
        ("narrative", "x" * MAX_NARRATIVE_CHARS + " [rec:1]", "the narrative has 6008 characters"),
        ("narrative", "No link.", r"rests on no record; expected at least one link such as \[rec:7\]"),
        ("narrative", "Tea. [rec:1] [rec:9]", "1 links lead to no record; got 'rec:9'. Link live records only"),
        ("narrative", "Tea. [rec:1] [trk:1]", "1 links lead to no record; got 'trk:1'"),
        ("narrative", "\ud800 [rec:1]", "the narrative is not valid Unicode"),
        ("narrative", None, "the narrative is no text"),
    ],
)
def test_a_write_that_does_not_hold_is_refused_and_changes_nothing(part, text, problem):
    desk = open_desk()
    desk.create_track(**PARTS)
    before = desk.list_tracks()
    with pytest.raises(PolicyOutputError, match=problem):
        desk.create_track(**PARTS | {part: text})
    if text is not None:
        with pytest.raises(PolicyOutputError, match=problem):
            desk.update_track("tea.md", **{part: text})
    assert desk.list_tracks() == before and desk.next_track == 2
    assert desk.num_refused == (1 if text is None else 2)


def test_an_update_replaces_the_parts_given_and_keeps_name_and_id():
    desk = open_desk()
    desk.create_track(**PARTS)
    track = desk.update_track("tea.md", title="Drinks", narrative="Only black. [rec:4]")
    assert (track.track_id, track.file_name, track.title, track.summary) == ("trk:1", "tea.md", "Drinks", PARTS["summary"])
    assert (track.record_ids, track.time) == (("rec:4",), RECORDS[3].time)
    with pytest.raises(PolicyOutputError, match="nothing was given to replace"):
        desk.update_track("tea.md")
    check(desk)


@pytest.mark.parametrize("call", ["read_track", "update_track", "drop_track"])
@pytest.mark.parametrize("name", ["wine.md", "../tea.md", "", None])
def test_an_unknown_file_is_refused_with_the_names_there_are(call, name):
    desk = open_desk()
    desk.create_track(**PARTS)
    with pytest.raises(PolicyOutputError, match="there is no such file; (got .*; )?expected one of tea.md"):
        getattr(desk, call)(name)
    assert len(desk.list_tracks()) == 1


def test_twenty_tracks_are_the_most_and_room_can_be_made():
    desk = open_desk()
    for number in range(20):
        desk.create_track(**PARTS | {"title": f"Topic {number}"})
    with pytest.raises(PolicyOutputError, match="there are 20 tracks already, the most there may be. Update, merge or drop one first."):
        desk.create_track(**PARTS)
    desk.merge_tracks(["topic-1.md", "topic-2.md"], **PARTS)
    assert desk.create_track(**PARTS | {"title": "New"}).track_id == "trk:21"
    check(desk)


def test_a_merge_keeps_the_first_file_and_tells_what_became_of_the_others():
    desk = open_desk()
    for title in ("Tea", "Coffee", "Milk"):
        desk.create_track(**PARTS | {"title": title})
    merged = desk.merge_tracks(["coffee.md", "tea.md"], title="Drinks", summary="All of it.", narrative="Both. [rec:2]")
    assert (merged.track_id, merged.file_name, merged.title) == ("trk:2", "coffee.md", "Drinks")
    assert [track.file_name for track in desk.list_tracks()] == ["coffee.md", "milk.md"] and desk.merged == {"trk:1": "trk:2"}
    for names in (["milk.md"], ["milk.md", "milk.md"], []):
        with pytest.raises(PolicyOutputError, match="at least two different file names"):
            desk.merge_tracks(names, **PARTS)
    with pytest.raises(PolicyOutputError, match="rests on no record"):
        desk.merge_tracks(["coffee.md", "milk.md"], title="x", summary="x", narrative="x")
    assert len(desk.list_tracks()) == 2
    check(desk)


def test_an_edit_replaces_the_only_occurrence():
    desk = open_desk()
    desk.create_track(**PARTS)
    track = desk.edit_track("tea.md", old="Black tea. [rec:3] [rec:1]", new="Oolong. [rec:4]")
    assert track.narrative == "Green tea. [rec:1]\n\nOolong. [rec:4]" and track.record_ids == ("rec:1", "rec:4")
    for old, times in (("e", 5), ("wine", 0), ("", 0), (None, 0)):
        with pytest.raises(PolicyOutputError, match=f"occurs {times} times in the narrative"):
            desk.edit_track("tea.md", old=old, new="x")
    with pytest.raises(PolicyOutputError, match="lead to no record"):
        desk.edit_track("tea.md", old="[rec:4]", new="[rec:40]")
    assert desk.read_track("tea.md") == track
    check(desk)


def test_a_dropped_track_is_gone_and_its_id_is_never_used_again():
    desk = open_desk()
    desk.create_track(**PARTS)
    desk.drop_track("tea.md")
    assert desk.list_tracks() == () and desk.create_track(**PARTS).track_id == "trk:2"


def test_a_profile_can_be_asked_for():
    desk = open_desk()
    assert not desk.wants_profile
    desk.request_profile()
    assert desk.wants_profile


TEXTS = st.sampled_from(["Tea", "Coffee", "Milk", "x [rec:1]", "y [rec:2] [rec:4]", "[rec:9]", "", "a\nb", "[rec:3]\n[rec:3]"])
NAMES = st.sampled_from(["tea.md", "coffee.md", "milk.md", "tea-2.md", "no.md"])
PARTS_DRAWN = st.fixed_dictionaries({"title": TEXTS, "summary": TEXTS, "narrative": TEXTS})
WRITES = st.one_of(
    st.tuples(st.just("create_track"), st.just(()), PARTS_DRAWN),
    st.tuples(st.just("update_track"), st.tuples(NAMES), PARTS_DRAWN),
    st.tuples(st.just("merge_tracks"), st.tuples(st.lists(NAMES, max_size=3)), PARTS_DRAWN),
    st.tuples(st.just("edit_track"), st.tuples(NAMES), st.fixed_dictionaries({"old": TEXTS, "new": TEXTS})),
    st.tuples(st.just("drop_track"), st.tuples(NAMES), st.just({})),
)


@given(writes=st.lists(WRITES, max_size=25))
@settings(max_examples=100)
def test_whatever_is_written_the_tracks_can_be_committed_and_refusals_change_nothing(writes):
    desk = open_desk(max_tracks=3)
    for name, arguments, parts in writes:
        before, next_track = desk.list_tracks(), desk.next_track
        try:
            getattr(desk, name)(*arguments, **parts)
        except PolicyOutputError:
            assert (desk.list_tracks(), desk.next_track) == (before, next_track)
        check(desk)
        assert len(desk.list_tracks()) <= 3
