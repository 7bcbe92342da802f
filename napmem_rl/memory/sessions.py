"""What arrives at a bank: which messages are new to it, and which belong to one session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from napmem_rl.errors import BankError
from napmem_rl.schema import Message


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrival:
    """Messages that a bank is given, sifted."""

    sessions: tuple[tuple[Message, ...], ...]  # new messages, session by session
    num_known: int  # the same message is in the bank, or came twice
    num_empty: int  # no text and no caption: not stored (NapMem appendix B: "for each non-empty message")


def sift_messages(bank_id: str, messages: Iterable[Message], find_message: Callable[[str], Message | None]) -> Arrival:
    """Leave out what the bank holds already, and part the rest into sessions.

    Args:
        bank_id: for errors.
        messages: in any order.
        find_message: the bank's message of an id, or None.

    Raises:
        BankError: an id that the bank, or another of the messages, has with other content. Nothing was stored then.
    """
    new: dict[str, Message] = {}
    num_known = num_empty = 0
    conflicts: list[str] = []
    for message in messages:
        known = new.get(message.message_id) or find_message(message.message_id)
        if known is not None:
            num_known += 1
            if known != message:
                conflicts.append(message.message_id)
        elif not message.text.strip() and not (message.caption or "").strip():
            num_empty += 1
        else:
            new[message.message_id] = message
    if conflicts:
        shown = ", ".join(conflicts[:5]) + (" …" if len(conflicts) > 5 else "")
        fix = "Messages are append-only: give a changed message an id of its own."
        raise BankError.of(f"bank {bank_id}", f"{len(conflicts)} messages come again with other content: {shown}; nothing was written", fix=fix)
    return Arrival(sessions=split_sessions(new.values()), num_known=num_known, num_empty=num_empty)


def split_sessions(messages: Iterable[Message]) -> tuple[tuple[Message, ...], ...]:
    """Messages by session, in time order.

    Sessions that overlap in time stay whole, so that their turns do; the one that begins first comes first. A session id that comes again on a later day,
    after another session, is a session of its own: some data sets use ids twice.
    """
    sessions: list[list[Message]] = []
    open_sessions: dict[str, list[Message]] = {}
    for message in sorted(messages, key=lambda message: message.time):
        session = open_sessions.get(message.session_id)
        if session is None or (session is not sessions[-1] and session[-1].time[:10] < message.time[:10]):
            session = open_sessions[message.session_id] = []
            sessions.append(session)
        session.append(message)
    return tuple(tuple(session) for session in sessions)


def count_late(sessions: Sequence[Sequence[Message]], newest: str) -> int:
    """How many messages are older than `newest`, the time of a bank's newest message ("" for none)."""
    return sum(message.time < newest for session in sessions for message in session)
