"""What arrives at a bank: known, empty and conflicting messages, and which sessions the rest makes."""

from __future__ import annotations

import dataclasses

import pytest
from scripted_memory import say

from napmem_rl.errors import BankError
from napmem_rl.memory.sessions import count_late, sift_messages, split_sessions


def sift(messages, stored=()):
    return sift_messages("ana", messages, {message.message_id: message for message in stored}.get)


def ids(sessions):
    return [[int(message.message_id[4:]) for message in session] for session in sessions]


def test_sessions_come_in_time_order_and_so_do_their_messages():
    messages = [say(3, session="b"), say(4, session="b"), say(2, session="a"), say(1, session="a")]
    assert ids(split_sessions(messages)) == [[1, 2], [3, 4]]


def test_sessions_that_overlap_stay_whole():
    messages = [say(1, session="a"), say(2, session="b"), say(3, session="a"), say(4, session="b")]
    assert ids(split_sessions(messages)) == [[1, 3], [2, 4]]


def test_a_session_id_that_comes_again_on_a_later_day_after_another_session_is_a_session_of_its_own():
    messages = [say(1, session="a"), say(2, session="b", time="2024-03-02T10:00:00"), say(3, session="a", time="2024-03-03T10:00:00")]
    assert ids(split_sessions(messages)) == [[1], [2], [3]]
    night = [say(1, session="a", time="2024-03-01T23:59:00"), say(2, session="a", time="2024-03-02T00:01:00")]
    assert ids(split_sessions(night)) == [[1, 2]]


def test_messages_of_one_time_keep_their_order():
    messages = [say(number, time="2024-03-01T10:00:00") for number in (2, 1, 3)]
    assert ids(split_sessions(messages)) == [[2, 1, 3]]


def test_known_and_empty_messages_are_left_out_and_counted():
    picture = dataclasses.replace(say(3), text="", caption="a red door")
    arrival = sift([say(1), say(2), say(2), dataclasses.replace(say(4), text=" \n", caption=""), picture], stored=[say(1)])
    assert ids(arrival.sessions) == [[2, 3]]
    assert (arrival.num_known, arrival.num_empty) == (2, 1)


@pytest.mark.parametrize("stored", [True, False])
def test_one_id_with_two_contents_is_an_error(stored):
    changed = dataclasses.replace(say(1), text="something else")
    with pytest.raises(BankError, match="bank ana: 1 messages come again with other content: msg:1; nothing was written"):
        sift([changed] if stored else [say(1), changed], stored=[say(1)] if stored else [])


def test_late_messages_are_those_before_the_newest_of_the_bank():
    sessions = [[say(1), say(2)], [say(3)]]
    assert count_late(sessions, say(3).time) == 2 and count_late(sessions, "") == 0
