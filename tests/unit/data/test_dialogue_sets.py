"""Dialogue sets in their published formats (samples of our own), and the real GapChat where it is."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from napmem_rl.data.dialogue_sets import CHRONICLES, GAPCHAT, MSC, load_dialogues, parse_gap
from napmem_rl.data.source import SourceSet, collect
from napmem_rl.errors import DataError

GAPCHAT_ITEM = {
    "initial": {"speaker_1": {"progress": "You just planted beans."}},
    "gap": ["2 weeks", "2 weeks"],
    "subsequent": {},
    "sessions": [
        [
            {"speaker": "speaker_2", "text": "Hi!", "time": "20230510-052155"},
            {"speaker": "speaker_1", "text": "Hello, I planted beans.", "time": "20230510-052201"},
        ],
        [
            {"speaker": "speaker_2", "text": "How are the beans?", "time": "20230510-052300"},
            {"speaker": "speaker_1", "text": " ", "time": "20230510-052303"},
            {"speaker": "speaker_1", "text": "They are tall now.", "time": "20230510-052305"},
        ],
    ],
}
MSC_ITEM = {
    "personas": [["I keep bees."], ["I sing."]],
    "previous_dialogs": [
        {"dialog": [{"text": "I keep bees."}, {"text": "I sing in a choir."}], "time_num": 14, "time_unit": "days", "time_back": "14 days ago", "personas": []}
    ],
    "dialog": [
        {"id": "Speaker 1", "text": "How was the concert?"},
        {"id": "Speaker 2", "text": "Loud. How are the bees?"},
        {"id": "Speaker 1", "text": "Busy."},
    ],
    "metadata": {"initial_data_id": "valid_7", "session_id": 1},
}
CHRONICLES_ITEM: dict[str, Any] = {
    "dataID": "episode-3",
    "relationship": "Neighbors",
    "time_interval": ["Start", "A few days after", "A couple of weeks after", "Some time after", "A year after"],
    "summary": ["Nothing of this is read."] * 5,
} | {
    f"{ordinal}_session_{part}": texts
    for ordinal in ("first", "second", "third", "fourth", "fifth")
    for part, texts in (("dialogue", [f"The {ordinal} apple is ripe.", "Let us share it."]), ("speakers", ["Neighbor A", "Neighbor B"]))
}


def load(tmp_path: Path, name: str, item: Any, **options: Any) -> SourceSet:
    path = tmp_path / "set.json"
    path.write_text(json.dumps([item]) if name == GAPCHAT else json.dumps(item) + "\n")
    return collect(load_dialogues(name, path, **options))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12 minutes", timedelta(minutes=12)),
        ("A few days after", timedelta(days=3)),
        ("A couple of weeks after", timedelta(weeks=2)),
        ("an hour", timedelta(hours=1)),
        ("14 days 2 hours ago", timedelta(days=14, hours=2)),
        ("1.5 years", timedelta(days=547.5)),
        ("Start", None),
        ("Some time after", None),
    ],
)
def test_gaps_are_read_in_words(text: str, expected: timedelta | None) -> None:
    assert parse_gap(text) == expected


def test_gapchat_keeps_distances_within_a_session_and_takes_gaps_between(tmp_path: Path) -> None:
    source = load(tmp_path, GAPCHAT, GAPCHAT_ITEM)
    messages = source.banks[0].messages
    assert [(message.time, message.role) for message in messages] == [
        ("2024-01-01T09:00:00", "user"),
        ("2024-01-01T09:00:06", "assistant"),
        ("2024-01-15T09:00:00", "user"),
        ("2024-01-15T09:00:05", "assistant"),
    ]
    assert source.items == () and [repair.kind for repair in source.repairs] == ["empty_turn"]


def test_msc_takes_speakers_in_turn_and_the_gap_after_each_earlier_session(tmp_path: Path) -> None:
    (bank,) = load(tmp_path, MSC, MSC_ITEM).banks
    assert bank.bank_id == "msc-valid_7" and [message.speaker for message in bank.messages[:2]] == ["Speaker 1", "Speaker 2"]
    assert bank.messages[2].time == "2024-01-15T09:00:00" and [message.session_id for message in bank.messages] == ["s1", "s1", "s2", "s2", "s2"]


def test_the_last_reply_can_be_asked_for_and_its_session_is_then_not_in_the_bank(tmp_path: Path) -> None:
    source = load(tmp_path, MSC, MSC_ITEM, ask=True)
    ((task, key),) = source.items
    assert [message.text for message in source.banks[0].messages] == ["I keep bees.", "I sing in a choir."]
    assert task.question.endswith("\n\nSpeaker 1: How was the concert?") and "Speaker 2's next reply" in task.question
    assert key.references == ("Loud. How are the bees?",) and (task.category, task.asked_at) == ("next_reply", "2024-01-15T09:00:00")
    alone = load(tmp_path, MSC, MSC_ITEM | {"previous_dialogs": []}, ask=True)
    assert alone.items == () and [repair.kind for repair in alone.repairs] == ["no_question"] and len(alone.banks[0].messages) == 3


def test_chronicles_has_five_sessions_and_reports_a_gap_without_a_length(tmp_path: Path) -> None:
    source = load(tmp_path, CHRONICLES, CHRONICLES_ITEM)
    starts = [datetime.fromisoformat(message.time) for message in source.banks[0].messages[::2]]
    assert [(later - earlier).days for earlier, later in zip(starts, starts[1:], strict=False)] == [3, 14, 1, 365]
    assert [(repair.kind, repair.before, repair.after) for repair in source.repairs] == [("gap_unknown", "Some time after", "1 day")]


def test_chronicles_in_parquet_is_the_same(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist([CHRONICLES_ITEM]), tmp_path / "train.parquet")
    assert collect(load_dialogues(CHRONICLES, tmp_path / "train.parquet")) == load(tmp_path, CHRONICLES, CHRONICLES_ITEM)


@pytest.mark.parametrize(
    ("name", "item", "expected"),
    [
        (GAPCHAT, {"gap": [], "sessions": [5]}, r"dialogue 0 .*, session 0: not GapChat's format: no list of turns; got 5"),
        (GAPCHAT, {"gap": []}, r"dialogue 0 \(counting from 0\): not GapChat's format: no field 'sessions'"),
        (GAPCHAT, GAPCHAT_ITEM | {"sessions": [[{"speaker": "a", "text": "b", "time": "noon"}]]}, "session 0, turn 0, field 'time': not a time"),
        (MSC, {"dialog": []}, "not MSC's format: no field 'previous_dialogs'"),
        (CHRONICLES, CHRONICLES_ITEM | {"second_session_speakers": ["Neighbor A"]}, "2 utterances and 1 speakers in the second session"),
    ],
)
def test_another_format_is_named_with_dialogue_and_field(tmp_path: Path, name: str, item: Any, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        load(tmp_path, name, item)


def test_the_published_gapchat_is_read_whole() -> None:
    data = os.environ.get("NAPMEM_DATA")
    if not data:
        pytest.skip("NAPMEM_DATA is not set")
    source = collect(load_dialogues(GAPCHAT, Path(data) / "gapchat" / "eval", ask=True))
    assert len(source.banks) == 65 and len({bank.bank_id for bank in source.banks}) == 65
    for bank in source.banks:
        times = [message.time for message in bank.messages]
        assert times == sorted(times) and len({message.message_id for message in bank.messages}) == len(times)
    assert len(source.items) + source.summary()["repairs_by_kind"].get("no_question", 0) == 65
    assert set(source.summary()["repairs_by_kind"]) <= {"empty_turn", "no_question"}, "every gap has a length"
