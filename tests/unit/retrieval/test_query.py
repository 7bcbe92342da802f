"""What a query names: words, speakers, dates."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest

from napmem_rl.retrieval.dates import find_intervals
from napmem_rl.retrieval.query import find_speakers, is_first_person, score_days, tokenize_query

TODAY = date(2024, 3, 6)  # a Wednesday


def find(text: str) -> list[tuple[str, str]]:
    return [(start.isoformat(), end.isoformat()) for start, end in find_intervals(text, today=TODAY, years=range(2023, 2025))]


def test_words_that_only_ask_are_dropped_unless_nothing_else_is_left():
    assert tokenize_query("What did Ana say about her new job?") == ["ana", "say", "new", "job"]
    assert tokenize_query("what about him") == ["what", "about", "him"]
    assert tokenize_query("the") == []


def test_speakers_are_named_by_their_whole_or_first_name_as_words():
    names = ["Ana Lind", "Leo", "Anastasia"]
    assert find_speakers("What did Ana buy?", names).tolist() == [True, False, False]
    assert find_speakers("what did LEO and Anastasia buy", names).tolist() == [False, True, True]
    assert find_speakers("Leonard's car", names).tolist() == [False, False, False]


def test_a_query_that_names_every_speaker_prefers_none():
    assert find_speakers("How did Ana meet Leo?", ["Ana", "Leo"]).tolist() == [False, False]
    assert find_speakers("Ana", []).tolist() == []


def test_the_first_person_is_the_user():
    assert is_first_person("where did i park?") and is_first_person("my car") and is_first_person("Tell me")
    assert not is_first_person("Does Amy like memes, i.e. minecraft ones?") and not is_first_person("")


@pytest.mark.parametrize("text", ["on 8 May, 2023", "May 8, 2023", "the 8th of May 2023", "2023-05-08", "8th May 2023?"])
def test_a_day_is_read_however_it_is_written(text):
    assert find(text) == [("2023-05-08", "2023-05-08")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in May 2023", [("2023-05-01", "2023-05-31")]),
        ("February, 2024", [("2024-02-01", "2024-02-29")]),
        ("2023-05", [("2023-05-01", "2023-05-31")]),
        ("during 2023", [("2023-01-01", "2023-12-31")]),
        ("in June", [("2023-06-01", "2023-06-30"), ("2024-06-01", "2024-06-30")]),
        ("since 29 February", [("2024-02-29", "2024-02-29")]),
        ("on 30 February 2024", []),
        ("2023-13-01", []),
    ],
)
def test_months_and_years_are_spans_of_every_year_that_they_may_lie_in(text, expected):
    assert find(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("today", ("2024-03-06", "2024-03-06")),
        ("What did Ana do yesterday?", ("2024-03-05", "2024-03-05")),
        ("last week", ("2024-02-26", "2024-03-03")),
        ("this week", ("2024-03-04", "2024-03-10")),
        ("last  month", ("2024-02-01", "2024-02-29")),
        ("last year", ("2023-01-01", "2023-12-31")),
        ("three days ago", ("2024-03-03", "2024-03-03")),
        ("a week ago", ("2024-02-27", "2024-02-29")),
        ("2 months ago", ("2023-12-30", "2024-01-13")),
    ],
)
def test_relative_days_count_from_today(text, expected):
    assert find(text) == [expected]


@pytest.mark.parametrize("text", ["May I ask what April said?", "the march of time", "a room for 20 people", "he may come", "", "999999999 years ago"])
def test_words_that_look_like_months_are_no_dates(text):
    assert find(text) == []


def test_nearness_is_one_inside_and_falls_with_the_days_outside():
    days = np.array(["2023-05-08", "2023-05-15", "2023-05-01", "2024-05-08"], dtype="datetime64[D]")
    scores = score_days("on 8 May 2023", days, np.datetime64("2024-05-08"))
    assert scores.tolist() == pytest.approx([1.0, np.exp(-1), np.exp(-1), 0.0], abs=1e-6)
    assert score_days("about her job", days, np.datetime64("2024-05-08")) is None
