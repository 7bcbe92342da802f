"""The reader without a model: the same words for the same passages, and none that it was not shown."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from napmem_rl.errors import DataError
from napmem_rl.evals.policies.contexts import Passage
from napmem_rl.evals.policies.extractive import ExtractiveReader, extract_answer, find_date
from napmem_rl.schema import Status, Task

TALK = [
    Passage(text="Hi! How was your weekend?", time="2024-03-05T10:00:00", speaker="Ben", place=0),
    Passage(text="Great, we adopted a grey kitten last Saturday, and I named her Pixel.", time="2024-03-05T10:00:01", speaker="Ana", place=1),
    Passage(text="I ran 12 miles along the river.", time="2024-03-06T10:00:00", speaker="Ben", place=2),
    Passage(text="My sister is a nurse in Bergen.", time="2024-03-07T10:00:00", speaker="Ana", place=3),
]


def ask(question: str, options: tuple[str, ...] = ()) -> Task:
    return Task(task_id="t", bank_id="b", question=question, category="c", needs_memory=True, options=options)


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("When did Ana adopt a kitten?", "2 March 2024"),
        ("How many miles did Ben run?", "12 miles"),
        ("What did Ana adopt?", "grey kitten"),
        ("What does Ana's sister do?", "nurse in Bergen"),
        ("Does Ben run along the river?", "Yes"),
    ],
)
def test_the_answer_is_taken_from_the_sentence_that_fits(question: str, words: str) -> None:
    assert words in extract_answer(ask(question), TALK)


def test_where_there_is_nothing_to_read_or_nothing_in_common_nothing_is_claimed() -> None:
    assert extract_answer(ask("Where does Ana live?"), []) == "not mentioned"
    assert extract_answer(ask("Who founded the orchestra?"), TALK) == "not mentioned"
    assert extract_answer(ask("Which one?", options=("Oslo", "Rome")), []) == "not mentioned"


def test_an_option_is_chosen_by_what_the_passages_say() -> None:
    assert extract_answer(ask("Where does Ana's sister work?", options=("Oslo", "Bergen", "Rome")), TALK) == "B"


@pytest.mark.parametrize(
    ("sentence", "day"),
    [
        ("We went there yesterday.", "4 March 2024"),
        ("We went there last Saturday.", "2 March 2024"),
        ("We moved two weeks ago.", "20 February 2024"),
        ("We moved three months ago.", "December 2023"),
        ("We met last year.", "2023"),
        ("We camp next month.", "April 2024"),
        ("It was on 7 May 2023.", "7 May 2023"),
        ("It was in June.", "June 2024"),
        ("It happened last week.", "the week before 5 March 2024"),
        ("It may rain.", "5 March 2024"),
        ("We just did it!", "5 March 2024"),
    ],
)
def test_days_are_reckoned_from_the_day_of_the_passage(sentence: str, day: str) -> None:
    assert find_date(sentence, "2024-03-05T10:00:00") == day


def test_the_reader_says_what_it_left_out_and_costs_no_tokens() -> None:
    reading = asyncio.run(ExtractiveReader(max_context_tokens=40).read(ask("What did Ana name the kitten?"), TALK, has_memory=True, seed=0))
    assert reading.status is Status.COMPLETED and "left out" in reading.detail and len(reading.shown) < len(TALK)
    assert reading.prompt_tokens is None and reading.turn is not None and reading.turn.text == reading.answer


@given(question=st.text(max_size=60), texts=st.lists(st.text(max_size=80), max_size=4))
def test_any_text_gives_an_answer_that_is_not_empty_and_always_the_same(question: str, texts: list[str]) -> None:
    passages = [Passage(text=text, time="2024-03-05T10:00:00", speaker="Ana", place=place) for place, text in enumerate(texts)]
    answer = extract_answer(ask(question), passages)
    assert answer and answer == extract_answer(ask(question), passages)


def test_more_options_than_letters_are_refused() -> None:
    task = ask("Which?", tuple(f"option {number}" for number in range(27)))
    with pytest.raises(DataError, match="too many options"):
        extract_answer(task, ())
