"""Citations in every form, and in none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from napmem_rl.systems.rmm.citations import parse_citations


def read(text: str, num_shown: int = 5) -> list[int]:
    """The numbers that are cited."""
    return [number for number, is_cited in enumerate(parse_citations(text, num_shown).cited, start=1) if is_cited]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("She moved to Oslo [1]", [1]),
        ("She moved [1, 3].", [1, 3]),
        ("She moved [1][3]", [1, 3]),
        ("First [2] a cat, later [4] a dog.", [2, 4]),
        ("[5]", [5]),
        ("Oslo [ 1 ,3 ; 4 ]", [1, 3, 4]),
        ("Oslo [2-4]", [2, 3, 4]),
        ("Oslo [4–2]", [2, 3, 4]),
        ("Oslo [1 and 2] [Memory 3]", [1, 2, 3]),
        ("Oslo [#2][m5]", [2, 5]),
        ("Oslo 【1】［2］", [1, 2]),
        ("Oslo [1][1][1]", [1]),
        ("Oslo []", []),
        ("Oslo [none]", []),
        ("Oslo", []),
        ("On [2024-03-05] she [laughs] said so", []),
        ("In the year [2023]", []),
        ("<think>maybe [1] or [2]</think>Oslo [3]", [3]),
        ("", []),
    ],
)
def test_every_form_is_read(text: str, numbers: list[int]) -> None:
    assert read(text) == numbers


def test_numbers_that_no_memory_has_are_counted_and_cite_nothing() -> None:
    found = parse_citations("Oslo [0][6, 2] [9-12] [3-8]", 5)
    assert found.num_out_of_range == 4 and found.cited == (False, True, True, True, True)
    assert parse_citations("[1]", 0).num_out_of_range == 1


def test_the_answer_stands_without_its_citations_and_with_its_other_brackets() -> None:
    assert parse_citations("She [2] lives in Oslo [1, 3]. [laughs] []", 3).answer == "She lives in Oslo. [laughs]"


def test_an_answer_that_says_that_nothing_was_used_is_not_silent() -> None:
    assert not parse_citations("I do not know. []", 3).is_silent
    assert parse_citations("I do not know.", 3).is_silent


def test_an_open_thinking_block_is_told_and_not_raised() -> None:
    found = parse_citations("<think>it is [2]", 3)
    assert found.is_thinking_broken


ODD = ("[" * 5000, "[1" * 3000, "[" + "9" * 5000 + "]", "[1-999999]", "[٣]", "[²]", "\ud800[1]", "[1,,2]", "[-1]", "[1--2]", "\0[1]\0")


@pytest.mark.parametrize("text", ODD)
def test_odd_texts_are_read_all_the_same(text: str) -> None:
    assert len(parse_citations(text, 3).cited) == 3


@given(st.text(alphabet=st.sampled_from(list("[]【】0123456789,;-– anMm#\n<>/think\ud800٣")), max_size=80) | st.text(max_size=80), st.integers(0, 6))
def test_no_text_raises_and_every_citation_is_of_a_shown_memory(text: str, num_shown: int) -> None:
    found = parse_citations(text, num_shown)
    assert len(found.cited) == num_shown and (found.num_groups or not any(found.cited))
