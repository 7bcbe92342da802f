"""Chat exports into one bank: read, told apart from what is there, and built in the order of time. It can be stopped anywhere, and repeated.

Two steps. First everything is read, and sessions are kept in a file without a name (`spool`): what is wrong with the input shows before the bank is touched.
Then session after session goes to the builder, which commits each; a second run passes over what the bank has. So a run that was killed is gone on with by the
same command, and the bank ends as it would have without the stop.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from napmem_rl.data.chat_exports.files import find_files
from napmem_rl.data.chat_exports.placing import PlacedSession, Placing
from napmem_rl.data.chat_exports.reading import ExportReader, ReadOptions
from napmem_rl.data.chat_exports.spool import Spool
from napmem_rl.data.chat_exports.tally import LeftOut, Note, Tally
from napmem_rl.data.chat_exports.writer_choice import RULES, WriterChoice
from napmem_rl.errors import BankError, BudgetError, DataError
from napmem_rl.memory.bank_place import sync_bank
from napmem_rl.memory.bank_store import read_bank_id
from napmem_rl.memory.bank_writer import BankWriter, is_bank_or_empty
from napmem_rl.memory.build_many import name_directory
from napmem_rl.memory.build_report import BuildReport
from napmem_rl.memory.builder import run_to_end
from napmem_rl.memory.changes import error_of
from napmem_rl.memory.forgotten import forgotten_ids
from napmem_rl.memory.import_state import ImportState, load_import_state, save_import_state
from napmem_rl.memory.pyramid_builder import PyramidBuilder
from napmem_rl.memory.storage import BANK_FILE
from napmem_rl.schema import Message

_TELL_EVERY_S = 10.0
_LONG_S = 60.0
_VERSION = re.compile(r"\.v\d+$")  # of a message's id, where its text changed
_FEW_RECORDS = 0.05  # records a message, below which the rules found no language of theirs
_MANY_MESSAGES = 50
Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportSummary:
    """What an import did: every message of the input is accounted for. `problem`: why the bank is not complete; None where it is."""

    bank_dir: Path
    tally: Tally
    num_messages: int  # in the bank
    num_records: int
    num_tracks: int
    seconds: float
    problem: str | None = None
    hint: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As `napmem import --json` prints it."""
        bank = {"path": str(self.bank_dir), "messages": self.num_messages, "records": self.num_records, "tracks": self.num_tracks}
        return {**self.tally.to_json(), "bank": bank, "seconds": round(self.seconds, 3), "problem": self.problem, "hint": self.hint}

    def describe(self) -> list[str]:
        """In lines for people."""
        ending = f"{self.num_messages:,} messages, {self.num_records:,} records, {self.num_tracks:,} topics"
        speakers = ", ".join(f"{name} ({number:,})" for name, number in self.tally.speakers.most_common(6))
        more = len(self.tally.speakers) - 6
        lines = self.tally.describe() + ([f"  speakers: {speakers}" + (f", and {more} more" if more > 0 else "")] if speakers else [])
        lines += [f"bank {self.bank_dir}: {ending}" + (f"; {self.seconds:.0f} s" if self.seconds >= _LONG_S else "")]
        lines += [f"note: {self.hint}"] if self.hint else []
        return lines + ([f"INCOMPLETE: {self.problem}. The same command goes on"] if self.problem else [])


def import_chats(
    paths: Sequence[Path], out: Path, *, options: ReadOptions | None = None, writer: WriterChoice | None = None, report: Report = lambda line: None
) -> ImportSummary:
    """Add chats to a bank, or make one of them.

    Args:
        paths: exported files, zips as vendors send them, or directories of them.
        out: the bank's directory: new, empty, or a bank.
        options: what the exports do not say by themselves.
        writer: of records, topics and profile; None for `rules`.
        report: takes progress, one line at a time.

    Returns:
        What became of every message. Where the writer could not do all of its work, `problem` says so; messages are in the bank all the same.

    Raises:
        ConfigError: an option or a writer that cannot be used.
        DataError: input that cannot be used; the bank is as it was.
        BankError: the bank is broken, being written, or `out` holds something else.
    """
    work = _import(list(map(Path, paths)), Path(out), options or ReadOptions(), writer or WriterChoice(name=RULES), report)
    try:
        return run_to_end(work)
    except OSError as error:
        fix = "What was committed is kept, and the same command goes on."
        raise BankError.of(f"bank {out}", f"cannot be written ({error.strerror or error})", fix=fix) from error


async def _import(paths: Sequence[Path], out: Path, options: ReadOptions, choice: WriterChoice, report: Report) -> ImportSummary:
    started = time.monotonic()
    bank_id, state = _look_at_bank(out)
    tally, telling = Tally(), _Telling(report)
    reader = ExportReader.open(find_files(paths, tally.other_files), options, tally, known_user=state.user)
    out.parent.mkdir(parents=True, exist_ok=True)
    with Spool(out.parent) as spool:
        placing = Placing(key=bytes.fromhex(state.key), tally=tally, gap_hours=options.gap_hours)
        for conversation in reader.conversations():
            for session in placing.place(conversation):
                spool.add(session)
            telling.tell(f"read {tally.num_read:,} messages")
        _refuse_nothing(tally, spool, paths)
        state = replace(state, user=reader.user)
        async with choice.open() as writer:
            durable = choice.settings is not None or (out / BANK_FILE).exists()
            with BankWriter.open(out, bank_id=bank_id, writer=writer.name if choice.draws else "none", durable=durable) as bank:
                _keep_state(out, state)
                filling = _Filling(bank, PyramidBuilder(bank, writer), tally, choice, telling)
                built, problem = await filling.run(spool)
                sizes = {"num_messages": len(bank.messages), "num_records": len(bank.records), "num_tracks": len(bank.tracks)}
    if not durable:
        sync_bank(out)
    tally.check()
    hint = _advise(choice, sizes)
    return ImportSummary(bank_dir=out, tally=tally, seconds=time.monotonic() - started, problem=problem or _list_pending(built, choice), hint=hint, **sizes)


class _Telling:
    """A line of progress from time to time."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._started = self._last = time.monotonic()

    def tell(self, line: str) -> None:
        """The line, if it is time for one."""
        if (now := time.monotonic()) - self._last >= _TELL_EVERY_S:
            self._last = now
            self._report(f"[{now - self._started:.0f} s] {line}")


class _Filling:
    """The second step: sessions into the bank."""

    def __init__(self, bank: BankWriter, builder: PyramidBuilder, tally: Tally, choice: WriterChoice, telling: _Telling) -> None:
        self._bank, self._builder, self._tally, self._choice, self._telling = bank, builder, tally, choice, telling
        self._forgotten = forgotten_ids(bank.path)

    async def run(self, spool: Spool) -> tuple[BuildReport, str | None]:
        """Everything that is new to the bank; what was done, and why it ended early."""
        sessions = spool.read()
        num_done = 0
        try:
            for session in sessions:
                new = list(self._sift(session))
                num_done += len(session.messages)
                if new:
                    await self._builder.add(new, draws=self._choice.draws)
                self._telling.tell(f"{num_done:,} of {spool.num_messages:,} messages")
            if self._choice.draws:
                await self._builder.finish()
        except BudgetError as error:
            self._leave_rest(sessions)
            return self._builder.report(), error.message.rstrip(".")
        return self._builder.report(), None

    def _sift(self, session: PlacedSession) -> Iterator[Message]:
        """The messages that the bank does not have, each counted."""
        for message, where in zip(session.messages, session.places, strict=True):
            new = self._find_new(message, where)
            if (message if new is None else new).message_id in self._forgotten:
                self._tally.leave_out(LeftOut.FORGOTTEN, where)
                continue
            self._tally.speakers[message.speaker] += 1
            if new is None:
                self._tally.num_known += 1
                continue
            self._tally.num_new += 1
            if new.message_id != message.message_id:
                self._tally.note(Note.CHANGED, where)
            yield new

    def _find_new(self, message: Message, where: str) -> Message | None:
        """The message, under an id that is free; None where the bank has it. One that was changed since is a message of its own."""
        base, number = _VERSION.sub("", message.message_id), 1
        candidate = replace(message, message_id=base)
        while (known := self._bank.message(candidate.message_id)) is not None:
            if known.text == message.text:
                for note in [Note.OTHER_TIME] * (known.time != message.time) + [Note.OTHER_ROLE] * (known.role != message.role):
                    self._tally.note(note, where)
                return None
            number += 1
            candidate = replace(message, message_id=f"{base}.v{number}")
        return candidate

    def _leave_rest(self, sessions: Iterator[PlacedSession]) -> None:
        """Count what the run did not come to."""
        for session in sessions:
            for message, where in zip(session.messages, session.places, strict=True):
                if self._bank.message(message.message_id) is not None:
                    self._tally.num_known += 1
                else:
                    self._tally.leave_out(LeftOut.NOT_YET, where)


def _look_at_bank(out: Path) -> tuple[str, ImportState]:
    """(bank id, what earlier imports left) of a bank that is there or to be made."""
    if not is_bank_or_empty(out):
        raise BankError.of(f"bank {out}", "cannot be made there: something else is", fix="Choose a new or empty directory, or a bank.")
    if not (out / BANK_FILE).exists():
        return name_directory(out.resolve().name), ImportState.new()
    problems: list[str] = []
    bank_id = read_bank_id(out, problems)
    if bank_id is None or problems:
        raise error_of(f"bank {out}", problems, fix="See `napmem bank verify`.")
    return bank_id, load_import_state(out) or ImportState.new()


def _keep_state(out: Path, state: ImportState) -> None:
    """Write the key before the first message that is named by it. The bank's lock is held."""
    found = load_import_state(out)
    if found is not None and found.key != state.key:
        raise BankError.of(f"bank {out}", "was imported into by another process meanwhile", fix="Give the same command again.")
    if found != state:
        save_import_state(out, state)


def _refuse_nothing(tally: Tally, spool: Spool, paths: Sequence[Path]) -> None:
    if not spool.num_messages:
        lines = [f"{number:,} {reason.replace('_', ' ')}" for reason, number in (*tally.left_out.items(), *tally.lost_conversations.items())]
        what = f"export {', '.join(map(str, paths))}"
        raise DataError.of(what, "holds no message to keep", got=f"{tally.num_read:,} messages: {', '.join(lines) or 'none'}", fix="Nothing was written.")


def _list_pending(built: BuildReport, choice: WriterChoice) -> str | None:
    if not built.pending or not choice.draws:
        return None
    shown = "; ".join(f"{step.step} ({step.reason})" if step.reason else step.step for step in built.pending[:3])
    return f"{len(built.pending)} steps are left: {shown}"


def _advise(choice: WriterChoice, sizes: Mapping[str, int]) -> str | None:
    """What a person may want to know of the result."""
    if not choice.draws:
        return "messages alone; the same command with --writer rules, or a language model's file, draws records, topics and a profile from them"
    if choice.name == RULES and sizes["num_messages"] >= _MANY_MESSAGES and sizes["num_records"] < _FEW_RECORDS * sizes["num_messages"]:
        return "the writer rules reads English and found little; for other languages give --writer FILE.yaml, which describes a language model"
    return None
