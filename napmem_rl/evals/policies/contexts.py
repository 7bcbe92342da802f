"""What a passive reader gets to see, chosen without it: nothing, everything, the best of one search, or the gold evidence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol
from weakref import WeakKeyDictionary

from napmem_rl.errors import DataError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.schema import Message, Task

ELLIPSIS = " …"


@dataclass(frozen=True, kw_only=True, slots=True)
class Passage:
    """One thing to read. `place` orders passages as they were said; `message_ids` are what it rests on, empty where a store does not tell."""

    text: str
    time: str  # ISO 8601; "" where it is not known
    speaker: str = ""
    place: int = 0
    message_ids: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """Passages, most important first. `is_ranked` says that this order is a ranking; `note` is what people should know of how they were found."""

    passages: tuple[Passage, ...] = ()
    is_ranked: bool = False
    note: str = ""


class ContextSource(Protocol):
    """Whoever chooses what is read. Safe to ask for many tasks at once."""

    has_memory: bool  # False where the reader is to be told that it sees no memory

    async def find(self, task: Task, bank: MemoryBank) -> Context:
        """What to read for one task."""
        ...

    async def close(self) -> None:
        """Free what the source holds."""
        ...


class _Stateless:
    """A source that holds nothing."""

    async def close(self) -> None:
        """Nothing to free."""


class NoContext(_Stateless):
    """Nothing: the question alone."""

    has_memory = False

    async def find(self, task: Task, bank: MemoryBank) -> Context:
        """No passage."""
        return Context()


class FullContext(_Stateless):
    """All messages up to the question; the newest are the most important, so that a limit cuts the old end."""

    has_memory = True

    def __init__(self) -> None:
        self._read: WeakKeyDictionary[MemoryBank, tuple[Passage, ...]] = WeakKeyDictionary()  # newest first; read once a bank, not once a question

    async def find(self, task: Task, bank: MemoryBank) -> Context:
        """Every message that the moment of the question allows."""
        known = self._read.get(bank)
        if known is None:
            known = self._read[bank] = await asyncio.to_thread(_read_all, bank)
        return Context(passages=tuple(passage for passage in known if task.asked_at is None or passage.time <= task.asked_at))


class SearchContext(_Stateless):
    """The best messages of one search with the question's own words, as the bank ranks (NapMem's "w/o navigation")."""

    has_memory = True

    def __init__(self, *, top_k: int) -> None:
        """`top_k`: how many at most."""
        self._top_k = top_k
        self._known: WeakKeyDictionary[MemoryBank, dict[str, Passage]] = WeakKeyDictionary()

    async def find(self, task: Task, bank: MemoryBank) -> Context:
        """The hits, best first. The search runs in a thread."""
        return Context(passages=await asyncio.to_thread(self._search, task, bank), is_ranked=True)

    def _search(self, task: Task, bank: MemoryBank) -> tuple[Passage, ...]:
        known = self._known.setdefault(bank, {})
        found = bank.search_messages(task.question, k=self._top_k, before=task.asked_at)
        for message in found:
            if message.message_id not in known:  # looked up once a bank, not once a question: many questions find the same messages
                known[message.message_id] = as_passage(bank, message)
        return tuple(known[message.message_id] for message in found)


class OracleContext(_Stateless):
    """The messages that hold gold evidence, also such as were said after the question (LongMemEval has some): a ceiling, not a policy."""

    has_memory = True

    def __init__(self, evidence: Mapping[str, tuple[str, ...]]) -> None:
        """`evidence`: task id -> message ids, for every task that will be asked; empty ids where none are known."""
        self._evidence = evidence

    async def find(self, task: Task, bank: MemoryBank) -> Context:
        """The evidence in the order of the key.

        Raises:
            DataError: the task is not among the keys, or its evidence is not in the bank.
        """
        if task.task_id not in self._evidence:
            raise DataError.of(f"task {task.task_id}", "has no entry in the evidence that the oracle was given")
        found = {message_id: bank.message(message_id) for message_id in dict.fromkeys(self._evidence[task.task_id])}
        missing = [message_id for message_id, message in found.items() if message is None]
        if missing:
            fix = "Prepare banks and questions together."
            raise DataError.of(f"task {task.task_id}", f"its evidence is not in bank {bank.bank_id}", got=missing[:5], fix=fix)
        passages = tuple(as_passage(bank, message) for message in found.values() if message is not None)
        return Context(passages=passages, note="" if passages else "no gold evidence is known")


def as_passage(bank: MemoryBank, message: Message) -> Passage:
    """A message of a bank; an image's caption stands behind its text."""
    return _build_passage(message, bank.position(message.message_id) or 0)


def _read_all(bank: MemoryBank) -> tuple[Passage, ...]:
    """All messages, newest first."""
    return tuple(sorted((_build_passage(message, place) for place, message in enumerate(bank.messages)), key=_reading_order, reverse=True))


def _build_passage(message: Message, place: int) -> Passage:
    text = f"{message.text} [image: {message.caption}]" if message.caption else message.text
    return Passage(text=text, time=message.time, speaker=message.speaker, place=place, message_ids=(message.message_id,))


def fit_passages(passages: Sequence[Passage], *, limit: int, count_tokens: Callable[[Passage], int]) -> tuple[tuple[Passage, ...], str]:
    """The first passages that fit into a limit together.

    Args:
        passages: most important first. One that alone exceeds the limit is cut where it is the first.
        limit: tokens of all of them.
        count_tokens: tokens of one passage as it will be shown.

    Returns:
        What is kept, in the same order, and what was left out in words, "" where nothing was.
    """
    kept: list[Passage] = []
    used = 0
    for passage in passages:
        used += count_tokens(passage)
        if used > limit:
            break
        kept.append(passage)
    if len(kept) == len(passages):
        return tuple(kept), ""
    if not kept and (cut := _cut_passage(passages[0], limit, count_tokens)) is not None:
        return (cut,), f"the first of {len(passages)} passages was cut and the others left out: context limit"
    return tuple(kept), f"{len(passages) - len(kept)} of {len(passages)} passages left out: context limit"


def order_for_reading(passages: Sequence[Passage]) -> list[Passage]:
    """Oldest first."""
    return sorted(passages, key=_reading_order)


def _reading_order(passage: Passage) -> tuple[str, int]:
    return passage.time, passage.place


def _cut_passage(passage: Passage, limit: int, count_tokens: Callable[[Passage], int]) -> Passage | None:
    """As much of a passage as fits; None where nothing does."""
    low, high = 0, len(passage.text)
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens(replace(passage, text=passage.text[:middle] + ELLIPSIS)) <= limit:
            low = middle
        else:
            high = middle - 1
    return replace(passage, text=passage.text[:low].rstrip() + ELLIPSIS) if low else None
