"""Which messages are flushed together: the schedule of appendix B, worked by hand, and cuts at whole turns whatever the messages are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_memory import say

from napmem_rl.memory.flush_schedule import compute_flush_size, cut_batch


def spell(roles: str) -> list:
    """Messages by their roles: "u" and "a"."""
    return [say(number, role="user" if role == "u" else "assistant") for number, role in enumerate(roles, 1)]


def test_flushes_grow_from_one_turn_to_two_to_four_and_stay_at_five():
    assert [compute_flush_size(number) for number in range(7)] == [1, 2, 4, 5, 5, 5, 5]


@pytest.mark.parametrize(
    ("roles", "turns", "messages"),
    [
        ("uaua", 1, 2),
        ("uaua", 2, 4),
        ("uauaua", 2, 4),
        ("uua uaa ua", 1, 3),  # what is said in a row belongs to one turn
        ("uua uaa ua", 2, 6),
        ("aua ua", 1, 3),  # a greeting belongs to the first turn
        ("ua u", 1, 2),  # the open turn waits for the end of the session,
        ("u", 1, 1),  # which this is
        ("ua u", 5, 3),
        ("aaa", 1, 3),
        ("", 1, 0),
    ],
)
def test_a_batch_ends_with_a_complete_turn_or_with_the_session(roles, turns, messages):
    assert cut_batch(spell(roles.replace(" ", "")), turns) == messages


@given(roles=st.text("ua", max_size=40), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5))
@settings(max_examples=150)
def test_batches_cover_a_session_once_and_cut_no_turn_in_two(roles, sizes):
    messages, position, flushed = spell(roles), 0, 0
    while position < len(messages):
        count = cut_batch(messages[position:], sizes[flushed % len(sizes)])
        assert count > 0
        position, flushed = position + count, flushed + 1
        if position < len(messages):
            assert (messages[position - 1].role, messages[position].role) == ("assistant", "user")
    assert position == len(messages)
