"""What of a bank is to be forgotten: messages by id, session, record, time or query; whatever is named, it is messages that go, and what rests on them."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from napmem_rl.errors import BankError, ConfigError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.pyramid import is_time
from napmem_rl.memory.text_traces import fold_text
from napmem_rl.schema import Message


@dataclass(frozen=True, kw_only=True, slots=True)
class Selectors:
    """What a user names. Several kinds add up.

    Attributes:
        message_ids, session_ids, record_ids: each takes what it names; a record takes the messages that it rests on.
        after, before: ISO 8601; both, or one: messages of that time, the ends included. A day ("2024-03-05") means all of it.
        query: takes the messages that hold all its words, or, with `nearest`, those that a search finds first.
    """

    message_ids: tuple[str, ...] = ()
    session_ids: tuple[str, ...] = ()
    record_ids: tuple[str, ...] = ()
    after: str | None = None
    before: str | None = None
    query: str | None = None
    nearest: int | None = None

    @property
    def kinds(self) -> str:
        """For the audit: the kinds alone, since what a query or a session's name says may be the very thing to forget."""
        given = {
            "message": self.message_ids,
            "session": self.session_ids,
            "record": self.record_ids,
            "time": self.after or self.before,
            "query": self.query,
        }
        return ", ".join(name for name, value in given.items() if value)


def select_messages(bank: MemoryBank, selectors: Selectors, *, forgotten: Collection[str] = ()) -> list[Message]:
    """The messages of a bank that go, in its order.

    Args:
        bank: the bank.
        selectors: what is named.
        forgotten: ids of messages and records that the bank forgot already; naming one again is no error.

    Raises:
        ConfigError: nothing is named, or a time is none.
        BankError: an id that the bank does not hold and never forgot; near ids are named.
    """
    _check(selectors)
    wanted: set[str] = set()
    for message_id in selectors.message_ids:
        if bank.message(message_id) is not None:
            wanted.add(message_id)
        elif message_id not in forgotten:
            raise _unknown(bank, "message", message_id, [message.message_id for message in bank.messages])
    for record_id in selectors.record_ids:
        history = bank.history(record_id)
        if not history and record_id not in forgotten:
            raise _unknown(bank, "record", record_id, [record.record_id for record in bank.records])
        wanted.update(source_id for revision in history for source_id in revision.record.source_ids)
    if selectors.session_ids:
        wanted.update(_of_sessions(bank, selectors.session_ids))
    if selectors.after or selectors.before:
        wanted.update(message.message_id for message in bank.messages if _is_within(message.time, selectors.after, selectors.before))
    if selectors.query:
        wanted.update(message.message_id for message in _search(bank, selectors))
    return [message for message in bank.messages if message.message_id in wanted]


def _check(selectors: Selectors) -> None:
    if not selectors.kinds:
        raise ConfigError.of("napmem forget", "nothing is named", fix="Give message or record ids, --session, --after and --before, or --query.")
    for name in ("after", "before"):
        value = getattr(selectors, name)
        if value is not None and not is_time(value):
            raise ConfigError.of(f"--{name}", "is no time", got=value, expected="ISO 8601 without a zone, such as 2024-03-05 or 2024-03-05T13:56:00")
    if selectors.after and selectors.before and selectors.after > selectors.before + "U":
        raise ConfigError.of("--after", "lies after --before", got=f"{selectors.after} and {selectors.before}")
    if selectors.query is not None and not selectors.query.strip():
        raise ConfigError.of("--query", "is empty")
    if selectors.nearest is not None and selectors.nearest < 1:
        raise ConfigError.of("--nearest", "is not positive", got=selectors.nearest)


def _is_within(time: str, after: str | None, before: str | None) -> bool:
    """Whether a moment lies in a span; a day that is given stands for all of its moments."""
    return (after is None or time[: len(after)] >= after) and (before is None or time[: len(before)] <= before)


def _of_sessions(bank: MemoryBank, session_ids: Sequence[str]) -> list[str]:
    held = {message.session_id for message in bank.messages}
    for session_id in session_ids:
        if session_id not in held:
            raise _unknown(bank, "session", session_id, held)
    return [message.message_id for message in bank.messages if message.session_id in session_ids]


def _search(bank: MemoryBank, selectors: Selectors) -> list[Message]:
    """Messages that hold all words of a query; those found first by a search where so many are asked for."""
    assert selectors.query is not None, "a search without a query"
    if selectors.nearest is not None:
        return bank.search_messages(selectors.query, k=selectors.nearest)
    words = fold_text(selectors.query).split()
    return [message for message in bank.messages if all(map(fold_text(f"{message.text} {message.caption or ''}").__contains__, words))]


def _unknown(bank: MemoryBank, kind: str, name: str, known: Collection[str]) -> BankError:
    near = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.5)
    fix = f"Did you mean {', '.join(near)}?" if near else "`napmem bank show` prints a bank."
    return BankError.of(f"bank {bank.bank_id}", f"holds no {kind} {name!r}", fix=fix)
