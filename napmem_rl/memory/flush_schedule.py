"""When messages are flushed to the extraction of records (NapMem appendix B: "from 1 to 2 to 4 turns and then … 5 turns, with a final flush at session end").

A *turn* is what the user says up to and with the assistant's answer: a new one begins with a user's message after an assistant's. What an assistant says
before the user's first word belongs to the first turn. A turn is *complete* once the assistant has answered in it.

Ours, where the paper is silent: there is one schedule for a bank over its whole life, and every flush moves it on, also one cut short by a session's end.
"""

from __future__ import annotations

from collections.abc import Iterable

from napmem_rl.schema import Message

FIRST_SIZES = (1, 2, 4)  # turns of a bank's first flushes
STEADY_SIZE = 5  # turns of every later one


def compute_flush_size(num_flushes: int) -> int:
    """Turns of the next flush of a bank that has seen `num_flushes`: 1, 2, 4, 5, 5, …"""
    return FIRST_SIZES[num_flushes] if num_flushes < len(FIRST_SIZES) else STEADY_SIZE


def cut_batch(messages: Iterable[Message], num_turns: int) -> int:
    """How many messages of the beginning of a session (or of what is left of one) are flushed together.

    Args:
        messages: in time order, to the end of the session; read no further than the batch and one message more.
        num_turns: what the schedule asks for, at least 1.

    Returns:
        The messages of the first `num_turns` complete turns; all of them where there are fewer. 0 only where there are none.

    Example: for user, user, assistant, user, assistant and one turn it is 3.
    """
    num_complete = num_messages = 0
    has_user = has_answer = False
    for message in messages:
        if message.role == "user":
            if has_user and has_answer:
                num_complete += 1
                if num_complete == num_turns:
                    return num_messages
                has_answer = False
            has_user = True
        elif has_user:
            has_answer = True
        num_messages += 1
    return num_messages
