"""The doors to construction: a bank built whole from a history, or one that is there and grows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from napmem_rl.errors import BankError, ConfigError, LLMError
from napmem_rl.memory.bank_place import build_beside, replace_bank
from napmem_rl.memory.bank_writer import BankWriter, is_bank_or_empty
from napmem_rl.memory.build_report import BuildReport
from napmem_rl.memory.forgotten import carry_forgotten
from napmem_rl.memory.import_state import carry_import_state
from napmem_rl.memory.pyramid_builder import PyramidBuilder
from napmem_rl.memory.writers.base import MemoryWriter
from napmem_rl.memory.writers.rules import RulesWriter
from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.schema import Message

T = TypeVar("T")

WRITERS: dict[str, Callable[[], MemoryWriter]] = {"rules": RulesWriter}  # those that need no settings; one that asks a language model is given itself


def build_bank(
    path: Path,
    bank_id: str,
    messages: Iterable[Message],
    writer: str | MemoryWriter = "rules",
    *,
    encoder: Encoder | None = None,
    allow_pending: bool = False,
    on_report: Callable[[BuildReport], None] | None = None,
) -> str:
    """Build all levels of a user's memory as one bank; the synchronous door to `build_bank_async`.

    Returns:
        The bank's content version.
    """
    building = build_bank_async(path, bank_id, messages, writer, encoder=encoder, allow_pending=allow_pending)
    report = run_to_end(building)
    if on_report is not None:
        on_report(report)
    assert report.version is not None, f"bank {bank_id}: built without a version"
    return report.version


async def build_bank_async(
    path: Path, bank_id: str, messages: Iterable[Message], writer: str | MemoryWriter, *, encoder: Encoder | None = None, allow_pending: bool = False
) -> BuildReport:
    """Build a bank beside its place and swap it in as a whole: a reader sees the old one or the new one.

    Args:
        path: the bank's directory; a bank there is replaced. What it was made to forget stays forgotten.
        bank_id: whose memory it is.
        messages: the user's history, in any order.
        writer: a name in WRITERS, or a writer.
        encoder: for the records that reconciliation is shown; keywords alone where there is none.
        allow_pending: take the bank's place even where steps could not be done; `grow_bank` without messages does them later.

    Raises:
        ConfigError: unknown writer.
        BankError: malformed messages, one id with two contents, or a `path` that holds something else. What is at `path` stays, as after any failure.
        LLMError: steps could not be done, and `allow_pending` is false.
    """
    path, memory_writer = Path(path), load_writer(bank_id, writer)
    if not is_bank_or_empty(path):
        raise BankError.of(f"bank {bank_id}", f"cannot be written to {path}, which holds something else", fix="Choose an empty or new directory.")
    with build_beside(path) as fresh, BankWriter.open(fresh, bank_id=bank_id, writer=memory_writer.name, durable=False) as bank:
        carry_forgotten(path, fresh)
        carry_import_state(path, fresh)
        report = await _build(bank, messages, memory_writer, encoder)
        if report.pending and not allow_pending:
            steps = "; ".join(f"{step.step}: {step.reason}" for step in report.pending[:3])
            fix = "Nothing was written. Repeat it (answers that are cached are not asked for again), or allow pending steps."
            raise LLMError.of(f"bank {bank_id}", f"{len(report.pending)} steps could not be done ({steps})", fix=fix)
        bank.save_columns()  # while it is at this path
        replace_bank(fresh, path, bank_id)
    return report


async def grow_bank(
    path: Path, bank_id: str, messages: Iterable[Message] = (), *, writer: str | MemoryWriter = "rules", encoder: Encoder | None = None, durable: bool = True
) -> BuildReport:
    """Add messages to a bank in place, or to a new one, and do what an earlier run left undone. It can be stopped anywhere, and repeated.

    Args:
        path: the bank's directory.
        bank_id: whose memory it is.
        messages: the whole history or what is new of it, in any order; what the bank holds already is passed over.
        writer: a name in WRITERS, or a writer.
        encoder: see `build_bank_async`.
        durable: whether each commit survives a power cut.

    Returns:
        What happened; `pending` names steps whose writer failed. They are tried again by the next run.

    Raises:
        ConfigError: unknown writer.
        BankError: the bank is broken, another user's, or being written; malformed messages, or one id with two contents. What was committed before stays.
    """
    memory_writer = load_writer(bank_id, writer)
    with BankWriter.open(path, bank_id=bank_id, writer=memory_writer.name, durable=durable) as bank:
        return await _build(bank, messages, memory_writer, encoder)


async def _build(bank: BankWriter, messages: Iterable[Message], writer: MemoryWriter, encoder: Encoder | None) -> BuildReport:
    builder = PyramidBuilder(bank, writer, encoder=encoder)
    await builder.add(messages)
    return await builder.finish()


def load_writer(bank_id: str, writer: str | MemoryWriter) -> MemoryWriter:
    """A new writer of this name, or the one given.

    Raises:
        ConfigError: unknown name.
    """
    if not isinstance(writer, str):
        return writer
    if writer not in WRITERS:
        raise ConfigError.of(f"bank {bank_id}", "unknown memory writer", got=writer, expected=f"one of {', '.join(WRITERS)}")
    return WRITERS[writer]()


def run_to_end(work: Coroutine[None, None, T]) -> T:
    """The result of a coroutine, also where an event loop is running (a notebook): then in a thread of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
