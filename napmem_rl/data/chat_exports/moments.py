"""Times of a conversation's messages that rise with their order, which is what a bank sorts by."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import datetime

from napmem_rl.data.chat_exports.conversation import Conversation
from napmem_rl.data.chat_exports.tally import Note, Tally

UNKNOWN = "1970-01-01T00:00:00"  # of messages for which nothing in the export tells a time


def settle_times(conversation: Conversation, tally: Tally) -> list[str]:
    """A time for each message, never before that of the one before it.

    The largest set of messages whose times rise in the chat's order keep theirs. The others, and those without a time, get that of the message before them, or,
    at the start, of the one after; where no message has one, the conversation's; where that has none, `UNKNOWN`.
    """
    given = [said.time for said in conversation.said]
    kept = find_rising(given)
    earliest = next((given[position] for position in sorted(kept)), conversation.time)
    times: list[str] = []
    for position, said in enumerate(conversation.said):
        if position in kept:
            times.append(given[position] or UNKNOWN)
            continue
        times.append(times[-1] if times else earliest or UNKNOWN)
        note = Note.TIME_UNKNOWN if earliest is None else Note.TIME_BORROWED if given[position] is None else Note.TIME_MOVED
        tally.note(note, said.where)
    return times


def find_rising(times: Sequence[str | None]) -> set[int]:
    """Positions of a longest sequence of times that never falls; times that are None are in none.

    Example: ``find_rising(["10:00", "30:00", "10:05", None, "10:07"])`` is ``{0, 2, 4}``.
    """
    ends: list[str] = []  # the least last time of a sequence of each length
    last: list[int] = []  # and where it stands
    before: dict[int, int] = {}
    for position, time in enumerate(times):
        if time is None:
            continue
        length = bisect_right(ends, time)
        if length:
            before[position] = last[length - 1]
        if length == len(ends):
            ends.append(time)
            last.append(position)
        else:
            ends[length], last[length] = time, position
    rising: set[int] = set()
    position = last[-1] if last else None
    while position is not None:
        rising.add(position)
        position = before.get(position)
    return rising


def cut_at_gaps(times: Sequence[str], gap_s: float) -> list[int]:
    """Where sessions begin: at the first message, and after each silence of more than `gap_s` seconds."""
    starts = [0] if times else []
    moments = [datetime.fromisoformat(time) for time in times]
    return starts + [position for position in range(1, len(moments)) if (moments[position] - moments[position - 1]).total_seconds() > gap_s]
