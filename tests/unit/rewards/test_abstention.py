"""Which answers say, as a whole, that something is not known."""

from __future__ import annotations

import pytest

from napmem_rl.rewards.abstention import is_abstention


@pytest.mark.parametrize(
    "answer",
    [
        "I don't know.",
        "I do not know that",
        "Not mentioned.",
        "not mentioned in our conversations",
        "Unknown",
        "N/A",
        "No information available.",
        "There is no information about her hamster.",
        "You never mentioned that, so I don't know.",
        "Sorry, I don't have any information about your sister's job.",
        "The memories do not say where the bicycle is kept.",
        "I cannot answer this from our past conversations.",
        "Ana never said anything about a hamster!",
        "That was never discussed.",
        "I can’t recall that; it was not mentioned.",  # noqa: RUF001
        "There is not enough information in the conversations.",
        "It cannot be determined.",
    ],
)
def test_whole_answers_that_say_so_are_abstentions(answer: str) -> None:
    assert is_abstention(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        " . ",
        "Oslo",
        "I don't know, maybe Oslo.",
        "I don't know if it was Oslo or Bergen, but I think Oslo",
        "Not mentioned. Probably a hamster.",
        "There is no mention of a city other than Oslo",
        "You did not mention it; the answer is Oslo.",
        "You never mentioned Oslo",
        "0 times",
        "Never",
        "No",
        "None",
        "No sugar",
        "The unknown soldier",
        "Unknown Pleasures",
        "She does not know how to swim.",
        "She didn't know.",
        "It is known",
        "I know",
    ],
)
def test_answers_that_say_something_else_are_none(answer: str) -> None:
    assert not is_abstention(answer)


def test_a_long_answer_made_to_be_slow_is_read_to_its_end() -> None:
    assert not is_abstention("there is no information about " + "the in the my " * 20_000 + "but")
    assert not is_abstention("sorry " * 20_000 + "Oslo")
