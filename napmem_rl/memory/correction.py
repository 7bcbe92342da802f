"""A user puts a record right: what it says is the user's own words from then on, resting on a message in which the user says so.

The wrong words stay in the record's history, and with `forgets_old` are forgotten with the messages that they rested on. Tracks and profile lose at once what
rested on the record, and are written again. What the record rested on before is never drawn from again (`forgetting_levels.find_corrected`).
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from napmem_rl.errors import BankError, BudgetError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_view import BankView
from napmem_rl.memory.bank_writer import BankWriter
from napmem_rl.memory.build_report import PendingStep
from napmem_rl.memory.build_state import parse_state
from napmem_rl.memory.builder import run_to_end
from napmem_rl.memory.changes import Changes
from napmem_rl.memory.forget_selection import Selectors
from napmem_rl.memory.forgetting import ForgetPlan, MakeWriter, forget, look
from napmem_rl.memory.forgetting_levels import CORRECTION_PREFIX, compute_remains, list_revisions
from napmem_rl.memory.forgetting_state import ask_again
from napmem_rl.memory.pyramid import PROFILE_ID, find_links
from napmem_rl.memory.pyramid_builder import PyramidBuilder
from napmem_rl.memory.reconcile import MAX_RECORD_CHARS, build_record, unite
from napmem_rl.memory.writers.base import RecordDraft
from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.schema import Message, Record, RecordOperation, RecordRevision

SESSION = "corrections"


@dataclass(frozen=True, kw_only=True, slots=True)
class Corrected:
    """What a correction did."""

    record_id: str
    message_id: str
    version: str
    pending: tuple[PendingStep, ...]  # what the writer still has to write


def correct(
    path: Path,
    item_id: str,
    text: str,
    *,
    make_writer: MakeWriter | None = None,
    encoder: Encoder | None = None,
    forgets_old: bool = False,
    confirm: Callable[[ForgetPlan], bool] = lambda plan: True,
    before_switch: Callable[[ForgetPlan], None] = lambda plan: None,
) -> Corrected | None:
    """Make a record say something else; None where `confirm` said no, and nothing was changed.

    Args:
        path: the bank's directory.
        item_id: a record's id, or "profile:2" for the second statement of the profile.
        text: what is right, as the record is to say it.
        make_writer: gives the writer of tracks and profile; None leaves them without what rested on the record, until one writes them again.
        encoder: for related records, where the writer reconciles.
        forgets_old: forget the old words, with the messages that they rest on.
        confirm: asked before anything is forgotten.
        before_switch: see `forgetting.forget`.

    Raises:
        BankError: no such record or statement, an unfit text, or a bank that is broken, being written, or not built to its end. Nothing was changed.
    """
    bank = MemoryBank.open(path)
    record, said = find_record(bank, item_id), _clean(text)
    state = parse_state(bank.bank_id, bank.state) if bank.state else None
    if state is not None and state.waiting:
        problem = f"{state.waiting.stop - state.waiting.start} messages wait for records to be drawn from them"
        raise BankError.of(f"bank {path}", problem, fix="Finish the build first: the command that built it goes on. Nothing was changed.")
    message = _say(bank, record, said)
    if not forgets_old:
        return _supersede(path, bank, record, message, make_writer, encoder)
    stored = RecordRevision(operation=RecordOperation.STORE, record=_rest(record, said, (message.message_id,), {message.message_id: message}.get))
    additions = Changes(messages=(message,), revisions=(stored,))
    selectors = Selectors(record_ids=(record.record_id,))
    plan = look(path, selectors, make_writer)
    if plan is None or not confirm(plan):
        return None
    writing = {"make_writer": make_writer, "encoder": encoder, "additions": additions}
    done = forget(path, selectors, **writing, expected_version=bank.version, before_switch=before_switch)
    assert done is not None, f"bank {path}: {record.record_id} rests on nothing"
    return Corrected(record_id=record.record_id, message_id=message.message_id, version=done.version, pending=done.pending)


def find_record(bank: BankView, item_id: str) -> Record:
    """The record that an id names, or the one that a statement of the profile rests on.

    Raises:
        BankError: there is none, or more than one; what can be named instead is said.
    """
    record = bank.record(item_id)
    if record is not None:
        return record
    what = f"bank {bank.bank_id}, {item_id}"
    head, _, number = item_id.partition(":")
    if head == PROFILE_ID:
        statements = [line for line in bank.profile.text.splitlines() if find_links(line)]
        if not number.isdecimal() or not 1 <= int(number) <= len(statements):
            listed = "; ".join(f"profile:{index} {line.strip('- ')}" for index, line in enumerate(statements, 1)) or "its profile is empty"
            raise BankError.of(what, "is no statement of the profile", expected=listed)
        below = find_links(statements[int(number) - 1])
    else:
        track = next((track for track in bank.tracks if item_id in (track.track_id, track.file_name)), None)
        below = list(track.record_ids) if track else []
    found = [record for below_id in dict.fromkeys(below) if (record := bank.record(below_id)) is not None]
    if len(found) == 1 and len(dict.fromkeys(below)) == 1:
        return found[0]
    if below:
        raise BankError.of(what, f"rests on {', '.join(dict.fromkeys(below))}", fix="Correct the one of them that is wrong; `napmem bank show` prints them.")
    fix = "Messages are what was said and stay as they are: correct the record drawn from one, or forget the message." if head == "msg" else None
    raise BankError.of(what, "is no record that is there", expected="rec:… or profile:…", fix=fix or "`napmem bank show` prints a bank.")


def _supersede(path: Path, old: MemoryBank, record: Record, message: Message, make_writer: MakeWriter | None, encoder: Encoder | None) -> Corrected:
    """The correction as one version, then what the writer makes of it."""
    with BankWriter.open(path, bank_id=old.bank_id, writer=old.writer) as bank:
        if bank.version != old.version:
            raise BankError.of(f"bank {path}", "was written to in the meantime", fix="Look at it again. Nothing was changed.")

        def find(message_id: str) -> Message | None:
            return message if message_id == message.message_id else bank.message(message_id)

        revised = _rest(record, message.text, unite(record.source_ids, (message.message_id,)), find)
        revision = RecordRevision(operation=RecordOperation.UPDATE, record=revised)
        remains = compute_remains(bank.snapshot, [*list_revisions(bank.snapshot), revision], ())
        state = {}
        if bank.state:
            held = parse_state(bank.bank_id, bank.state)
            state = ask_again(replace(held, newest=max(held.newest, message.time)), bank.messages, (), remains.revised_ids).to_json()
        levels = {"tracks": remains.tracks, "profile": remains.profile, "state": state}
        version = bank.commit(Changes(messages=(message,), revisions=(revision,), **levels, note=f"correction of {record.record_id}"))
        pending = run_to_end(_write_again(bank, make_writer, encoder)) if make_writer is not None and state else ()
        return Corrected(record_id=record.record_id, message_id=message.message_id, version=bank.version or version, pending=pending)


async def _write_again(bank: BankWriter, make_writer: MakeWriter, encoder: Encoder | None) -> tuple[PendingStep, ...]:
    builder = PyramidBuilder(bank, make_writer(), encoder=encoder)
    try:
        return (await builder.finish()).pending
    except BudgetError:
        return builder.report().pending


def _rest(record: Record, text: str, source_ids: tuple[str, ...], find: Callable[[str], Message | None]) -> Record:
    """The record with this text, resting on these messages."""
    return build_record(record.record_id, RecordDraft(type=record.type, text=text, source_ids=source_ids), source_ids, find)


def _say(bank: MemoryBank, record: Record, text: str) -> Message:
    """The message of a correction, by the user, now."""
    said = [message for source_id in record.source_ids if (message := bank.message(source_id)) is not None and message.role == "user"]
    said = said or [message for message in bank.messages if message.role == "user"][:1]
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")
    speaker = said[0].speaker if said else "User"
    return Message(message_id=f"{CORRECTION_PREFIX}{uuid.uuid4().hex}", session_id=SESSION, role="user", speaker=speaker, text=text, time=now)


def _clean(text: str) -> str:
    """The text on one line."""
    said = " ".join(text.split())
    try:
        said.encode()
    except UnicodeEncodeError as error:
        raise BankError.of("correction", "is not valid Unicode", got=text) from error
    if not said or len(said) > MAX_RECORD_CHARS:
        raise BankError.of("correction", f"has {len(said)} characters", expected=f"1 to {MAX_RECORD_CHARS}")
    return said
