"""Many users' memories in one run: banks side by side over one client, each resumable, each with an account of what was done and what is left.

A bank is built in place, commit by commit (`pyramid_builder`); a run that was stopped, or ran out of its budget, is followed by one that does only what is
missing. One bank's failure is told in its summary and does not hold up the others. A new bank of the writer `rules` is synced to the disk when it is finished,
not at each commit: a killed process costs nothing, a power cut before that may cost the bank, which is then built again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from napmem_rl.atomic import write_file
from napmem_rl.errors import BankError, BudgetError, DataError, NapMemError
from napmem_rl.llm.base import Usage
from napmem_rl.llm.openai_client import OpenAIChat
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_place import sync_bank
from napmem_rl.memory.bank_writer import BankWriter
from napmem_rl.memory.build_report import BuildReport
from napmem_rl.memory.builder import load_writer
from napmem_rl.memory.forgotten import forgotten_ids
from napmem_rl.memory.pyramid_builder import PyramidBuilder
from napmem_rl.memory.storage import BANK_FILE, find_bank_dir
from napmem_rl.memory.writer_settings import LLMSettings, build_client, build_llm_writer, check_client
from napmem_rl.memory.writers.base import MemoryWriter
from napmem_rl.memory.writers.llm import LLMWriter
from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.schema import Message

IDS_FILE = "ids.json"  # directory -> the id that it was made from, where they differ
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TELL_EVERY_S = 10.0
_OPERATIONS = ("stored", "skipped", "updated", "merged")


@dataclass(frozen=True, kw_only=True, slots=True)
class BankSummary:
    """What one run did to one bank. `problem` says why it is not complete; None where it is."""

    bank_id: str
    problem: str | None
    num_messages: int = 0  # in the bank, as the records and tracks are
    num_records: int = 0
    num_tracks: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)  # of this run, by `build_report.Cause`
    repairs: Mapping[str, int] = field(default_factory=dict)  # replies of the model that were asked for again, by step and cause
    rejections: Mapping[str, int] = field(default_factory=dict)  # and those that were given up
    usage: Usage = field(default_factory=Usage)

    def describe(self) -> str:
        """One line for people."""
        done = {name: self.counts[cause] for name in _OPERATIONS if (cause := f"records_{name}") in self.counts}
        others = {cause: number for cause, number in self.counts.items() if not cause.startswith("records_") and cause not in _PLAIN}
        told = (("records", done), ("counted", others), ("asked again", self.repairs), ("given up", self.rejections))
        parts = [f"{self.num_messages:,} messages, {self.num_records:,} records, {self.num_tracks} topics"]
        parts += [f"{what}: {_list(counts)}" for what, counts in told if counts]
        parts += [describe_usage(self.usage)] if self.usage.num_requests or self.usage.num_cached else []
        return f"bank {self.bank_id}: {'; '.join(parts)}" + (f"; INCOMPLETE: {self.problem}" if self.problem else "; complete")


_PLAIN = frozenset({"messages_added", "messages_known", "batches", "topic_rounds", "profiles_written", "profiles_kept"})


def describe_usage(usage: Usage) -> str:
    """Requests, tokens and money in words."""
    tokens = f"{usage.prompt_tokens:,} + {usage.completion_tokens:,} tokens"
    unmetered = f", {usage.num_unmetered} replies without token counts (guessed)" if usage.num_unmetered else ""
    return f"{usage.num_requests} requests, {usage.num_cached} from the cache, {tokens}, cost {usage.cost:.4f}{unmetered}"


def build_many(
    banks: Mapping[str, Sequence[Message]],
    out: Path,
    *,
    settings: LLMSettings | None = None,
    encoder: Encoder | None = None,
    report: Callable[[str], None] = print,
) -> list[BankSummary]:
    """Build or go on with one bank a user.

    Args:
        banks: messages by bank id, in any order.
        out: holds a directory a bank, named by `name_directory`; new ones are made.
        settings: of the writer `llm`; None for `rules`.
        encoder: for related records, and for the vectors of the finished banks; None for keywords alone.
        report: takes progress, one line at a time.

    Returns:
        One summary a bank, in the order of `banks`.

    Raises:
        ConfigError: the language model cannot be used. Nothing was built.
        DataError: two ids give one directory. Nothing was built.
    """
    names = name_directories(banks)
    out.mkdir(parents=True, exist_ok=True)
    _note_changed_ids(out / IDS_FILE, {name: bank_id for bank_id, name in names.items() if name != bank_id}, report)
    work = {names[bank_id]: messages for bank_id, messages in banks.items()}
    summaries = asyncio.run(_Run(work, out, settings, encoder, report).run())
    for number, summary in enumerate(summaries, start=1):
        if encoder is not None and summary.num_messages:
            MemoryBank.open(out / summary.bank_id, encoder=encoder).build_index()
            report(f"index {number}/{len(summaries)} {summary.bank_id}")
    return summaries


def _note_changed_ids(path: Path, changed: Mapping[str, str], report: Callable[[str], None]) -> None:
    """Keep which directory stands for which id, where they differ; what earlier runs kept stays."""
    if changed:
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        write_file(path, json.dumps(known | dict(changed), indent=2) + "\n")
        report(f"{len(changed)} ids are no names of directories; theirs, which are also their bank ids, stand in {path}")


def name_directory(bank_id: str) -> str:
    """The directory of a bank: its id, or, for one that is no plain name, what is left of it and a hash. Never leads out of the directory above it.

    Example: ``name_directory("ana")`` is ``"ana"``, ``name_directory("../x")`` is ``"x-d6b96a97"``.
    """
    if _NAME.fullmatch(bank_id) and not bank_id.endswith("."):
        return bank_id
    plain = re.sub(r"[^A-Za-z0-9]+", "-", bank_id).strip("-")[:40]
    digest = hashlib.sha256(bank_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{plain}-{digest}" if plain else f"bank-{digest}"


def name_directories(bank_ids: Sequence[str] | Mapping[str, object]) -> dict[str, str]:
    """The directory of each bank.

    Raises:
        DataError: two ids have one.
    """
    names = {bank_id: name_directory(bank_id) for bank_id in bank_ids}
    twice = [name for name, number in Counter(name.casefold() for name in names.values()).items() if number > 1]
    if twice:
        same = [bank_id for bank_id, name in names.items() if name.casefold() in twice]
        raise DataError.of("bank ids", "two of them give one directory", got=same, fix="Give them ids that differ in more than capitals.")
    return names


class _Run:
    """One run over many banks."""

    def __init__(
        self, banks: Mapping[str, Sequence[Message]], out: Path, settings: LLMSettings | None, encoder: Encoder | None, report: Callable[[str], None]
    ) -> None:
        self._banks, self._out, self._settings, self._encoder, self._report = banks, out, settings, encoder, report
        self._client: OpenAIChat | None = None
        self._num_done = self._num_running = 0
        self._usages: list[Usage] = []

    async def run(self) -> list[BankSummary]:
        """All banks, side by side as far as a language model is waited for."""
        if self._settings is None:
            return [await self._build_in_turn(asyncio.Semaphore(), bank_id) for bank_id in self._banks]
        self._client = build_client(self._settings)
        try:
            await check_client(self._client, self._settings)
            slots = asyncio.Semaphore(self._settings.concurrency)
            telling = asyncio.create_task(self._tell())
            try:
                return await asyncio.gather(*(self._build_in_turn(slots, bank_id) for bank_id in self._banks))
            finally:
                telling.cancel()
        finally:
            await self._client.close()

    async def _build_in_turn(self, slots: asyncio.Semaphore, bank_id: str) -> BankSummary:
        async with slots:
            self._num_running += 1
            summary = await self._build(bank_id)
            self._num_running -= 1
            self._num_done += 1
            self._report(f"{self._num_done}/{len(self._banks)} {summary.describe()}")
            return summary

    async def _build(self, bank_id: str) -> BankSummary:
        """One bank as far as it goes."""
        writer = self._make_writer()
        done: BuildReport | None = None
        problem: str | None = None
        path = find_bank_dir(self._out, bank_id)
        durable = self._settings is not None or (path / BANK_FILE).exists()  # word lists would wait for the disk most of the time
        try:
            with BankWriter.open(path, bank_id=bank_id, writer=writer.name, durable=durable) as bank:
                builder = PyramidBuilder(bank, writer, encoder=self._encoder)
                try:
                    await builder.add(self._banks[bank_id])
                    await builder.finish()
                except BudgetError as error:
                    problem = error.message
                finally:
                    done = builder.report()
            if not durable:
                sync_bank(path)
        except (NapMemError, OSError) as error:
            problem = str(error)
        return self._summarise(bank_id, writer, done, problem)

    def _make_writer(self) -> MemoryWriter:
        if self._client is None or self._settings is None:
            return load_writer("", "rules")
        writer = build_llm_writer(self._client, self._settings)
        self._usages.append(writer.client.usage)
        return writer

    def _summarise(self, bank_id: str, writer: MemoryWriter, done: BuildReport | None, problem: str | None) -> BankSummary:
        """What is in the bank now, what this run did, and what is left."""
        problems = [problem] if problem else []
        if done is not None and done.pending:
            shown = "; ".join(f"{step.step} ({step.reason})" if step.reason else step.step for step in done.pending[:3])
            problems.append(f"{len(done.pending)} steps are left: {shown}" + (" …" if len(done.pending) > 3 else ""))
        sizes: dict[str, int] = {}
        if done is not None and done.version is not None:
            try:
                sizes, missing = self._measure(bank_id)
                problems += [f"{missing} messages are not in the bank yet"] if missing else []
            except BankError as error:
                problems.append(error.message)
        counted = {}
        if isinstance(writer, LLMWriter):
            counted = {"repairs": dict(writer.counts.repairs), "rejections": dict(writer.counts.rejections), "usage": writer.client.usage}
        said = "; ".join(text.rstrip(".") for text in problems) or None
        return BankSummary(bank_id=bank_id, problem=said, counts=dict(done.counts) if done is not None else {}, **sizes, **counted)

    def _measure(self, bank_id: str) -> tuple[dict[str, int], int]:
        """Items of a bank by level, and how many of its user's messages it does not hold. Raises BankError where it does not open."""
        bank = MemoryBank.open(find_bank_dir(self._out, bank_id))
        wanted = {message.message_id for message in self._banks[bank_id] if message.text.strip() or (message.caption or "").strip()}
        wanted -= forgotten_ids(bank.path)
        sizes = {"num_messages": len(bank.messages), "num_records": len(bank.records), "num_tracks": len(bank.tracks)}
        return sizes, sum(bank.message(message_id) is None for message_id in wanted)

    async def _tell(self) -> None:
        """A line of progress from time to time."""
        started = time.monotonic()
        while True:
            await asyncio.sleep(_TELL_EVERY_S)
            total = add_usages(self._usages)
            said = f"{self._num_done} of {len(self._banks)} banks done, {self._num_running} under way; {describe_usage(total)}"
            self._report(f"[{time.monotonic() - started:.0f} s] {said}")


def summarise_run(summaries: Sequence[BankSummary]) -> str:
    """The last line of a run."""
    incomplete = [summary.bank_id for summary in summaries if summary.problem]
    ending = f"{len(incomplete)} of {len(summaries)} banks are not complete: {', '.join(incomplete[:10])}" + (" …" if len(incomplete) > 10 else "")
    usage = add_usages([summary.usage for summary in summaries])
    spent = f"; {describe_usage(usage)}" if usage.num_requests or usage.num_cached else ""
    return (ending + ". The same command goes on" if incomplete else f"all {len(summaries)} banks are complete") + spent


def add_usages(usages: Sequence[Usage]) -> Usage:
    """The sum of what several have spent."""
    return Usage(**{name: sum(getattr(usage, name) for usage in usages) for name in Usage.__dataclass_fields__})


def _list(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in sorted(counts.items()) if number)
