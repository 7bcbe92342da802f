"""The builder's state of a bank that lost messages: positions as they are now, and what is to be written again."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from napmem_rl.memory.build_state import Batch, BuildState, Checkpoint, Failure, Waiting
from napmem_rl.schema import Message

REASON = "content was removed; it is written again"


def shift_state(state: BuildState, removed: Sequence[int], messages: Sequence[Message]) -> BuildState:
    """The state over the messages that are left. Reasons of failures go: an endpoint may have quoted what it was sent.

    Args:
        state: as it was.
        removed: positions of forgotten messages, ascending.
        messages: those that are left.
    """
    waiting = _shift_waiting(state.waiting, removed)
    shifted = (Batch(start=_shift(batch.start, removed), stop=_shift(batch.stop, removed), failure=_blank(batch.failure)) for batch in state.set_aside)
    aside = tuple(batch for batch in shifted if batch.start < batch.stop)
    pending = {position for batch in (*aside, waiting) for position in range(batch.start, batch.stop)}
    drawn = [message for position, message in enumerate(messages) if position not in pending]
    return replace(
        state,
        waiting=waiting,
        set_aside=aside,
        last_session=drawn[-1].session_id if drawn else "",
        last_date=max((message.time[:10] for message in drawn), default=""),
        newest=max((message.time for message in messages), default=""),
        topics=replace(state.topics, failure=_blank(state.topics.failure)),
        profile=replace(state.profile, failure=_blank(state.profile.failure)),
    )


def ask_again(state: BuildState, messages: Sequence[Message], orphan_ids: Sequence[str], revised_ids: Sequence[str]) -> BuildState:
    """The state with records of some messages, the topics and the profile to be written again, by the next run of a builder.

    Args:
        state: after `shift_state`.
        messages: those that are left.
        orphan_ids: messages to draw records from.
        revised_ids: records that tracks and profile are to take in.
    """
    wanted, batches = set(orphan_ids), []
    for position, message in enumerate(messages):
        if message.message_id not in wanted:
            continue
        last = batches[-1] if batches else None
        if last is not None and last.stop == position and messages[position - 1].session_id == message.session_id:
            batches[-1] = replace(last, stop=position + 1)
        else:
            batches.append(Batch(start=position, stop=position + 1, failure=Failure(reason=REASON)))
    return replace(
        state,
        set_aside=(*state.set_aside, *batches),
        topics=_ask(state.topics, revised_ids),
        profile=_ask(state.profile, revised_ids),
    )


def _ask(point: Checkpoint, revised_ids: Sequence[str]) -> Checkpoint:
    revised = tuple(dict.fromkeys((*point.revised, *revised_ids)))
    return replace(point, revised=revised, failure=Failure(attempts=max(1, point.failure.attempts), reason=REASON))


def _shift(position: int, removed: Sequence[int]) -> int:
    """Where a position is once the removed ones before it are gone."""
    return position - bisect_left(removed, position)


def _shift_waiting(waiting: Waiting, removed: Sequence[int]) -> Waiting:
    start, stop = _shift(waiting.start, removed), _shift(waiting.stop, removed)
    if start >= stop:
        return Waiting()
    cuts = tuple(dict.fromkeys(cut for cut in (_shift(cut, removed) for cut in waiting.cuts) if start < cut < stop))
    return Waiting(start=start, stop=stop, cuts=cuts, failure=_blank(waiting.failure))


def _blank(failure: Failure) -> Failure:
    return replace(failure, reason=REASON) if failure.attempts else failure
