"""What survives a session of one user: the ledger and the decisions that still wait for their truth, on disk, session by session.

::

    USER_DIR/ledger.jsonl   entries, added at the end
    USER_DIR/state.json     how much of the ledger holds, waiting decisions, bank version, policy version; replaced as a whole
    USER_DIR/lock           held by the one who writes

A session is there as a whole or not at all: its entries are added and synced first, then state.json takes them in. Whoever is killed between the two leaves
entries that state.json does not know; the next writer cuts them off, and the session is held again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from napmem_rl.atomic import sync_path, write_file
from napmem_rl.errors import DataError
from napmem_rl.file_lock import FileLock
from napmem_rl.systems.icml.ledger import Entry, Kind, check_entries, find_pending, parse_entry
from napmem_rl.systems.icml.steps import Decision, PlannerStep, Utterances

LEDGER, STATE, LOCK = "ledger.jsonl", "state.json", "lock"
FORMAT = 1
EMPTY_CHAIN = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerEnd:
    """Where the ledger ends that a state knows."""

    num_bytes: int = 0
    num_entries: int = 0
    chain: str = EMPTY_CHAIN  # over all lines


@dataclass(frozen=True, kw_only=True, slots=True)
class UserState:
    """A user between two sessions.

    Attributes:
        entries: the ledger, in order.
        waiting: memory id -> the decision that saved it, of memories that were neither triggered nor withdrawn; in the order of saving.
        bank_version: of the memory bank; None before the first session.
        policy_version: that played the last session.
    """

    user_id: str
    entries: tuple[Entry, ...] = ()
    waiting: Mapping[str, PlannerStep] = field(default_factory=dict)
    bank_version: str | None = None
    policy_version: int = 0
    end: LedgerEnd = LedgerEnd()

    @property
    def sessions(self) -> tuple[str, ...]:
        """Ids of finished sessions, in order."""
        return tuple(entry.session_id for entry in self.entries if entry.kind is Kind.END)


class UserStore:
    """The directory of one user; one writer at a time."""

    def __init__(self, directory: Path, user_id: str) -> None:
        self._directory, self._user_id = directory, user_id
        self._what = f"state of user {user_id} in {directory}"

    def load(self) -> UserState:
        """The user as the last finished session left them; a new one where nothing is there. Changes nothing on disk.

        Raises:
            DataError: the files do not belong together, or break a rule of the ledger.
        """
        path = self._directory / STATE
        if not path.exists():
            return UserState(user_id=self._user_id)
        stored = self._read_state(path)
        end = LedgerEnd(**stored["ledger"])
        entries = self._read_ledger(end)
        waiting = {memory_id: parse_planner_step(row) for memory_id, row in stored["waiting"].items()}
        problems = check_entries(entries)
        if find_pending(entries) != {memory_id: step.step_id for memory_id, step in waiting.items()}:
            problems.append("the waiting decisions are not those that the ledger leaves open")
        if problems:
            raise DataError.of(self._what, f"breaks {len(problems)} rules of its ledger", got=problems[:3], fix="Restore the directory from a copy.")
        versions = {"bank_version": stored["bank_version"], "policy_version": stored["policy_version"]}
        return UserState(user_id=self._user_id, entries=tuple(entries), waiting=waiting, end=end, **versions)

    def commit(self, state: UserState, entries: Sequence[Entry], *, waiting: Mapping[str, PlannerStep], bank_version: str, policy_version: int) -> UserState:
        """Take in one finished session. Returns the user after it.

        Args:
            state: as it was loaded, or as the last commit gave it.
            entries: of the session, its end last.
            waiting, bank_version, policy_version: see `UserState`.

        Raises:
            DataError: the entries break a rule, or somebody else has added a session since `state` was loaded. Nothing is changed then.
        """
        book = (*state.entries, *entries)
        problems = check_entries(book)
        if not entries or entries[-1].kind is not Kind.END:
            problems.append("the session has no end")
        if find_pending(book) != {memory_id: step.step_id for memory_id, step in waiting.items()}:
            problems.append("the waiting decisions are not those that the ledger leaves open")
        if problems:
            raise DataError.of(self._what, "cannot take in a session that breaks the ledger's rules", got=problems[:3])
        self._directory.mkdir(parents=True, exist_ok=True)
        lock = FileLock.acquire_file(self._directory / LOCK, self._what, DataError)
        try:
            self._check_unchanged(state)
            end = self._append(state.end, entries)
            after = UserState(
                user_id=self._user_id, entries=book, waiting=dict(waiting), bank_version=bank_version, policy_version=policy_version, end=end
            )
            write_file(self._directory / STATE, _render(after))
            sync_path(self._directory)
        finally:
            lock.release()
        return after

    def _check_unchanged(self, state: UserState) -> None:
        path = self._directory / STATE
        end = LedgerEnd(**self._read_state(path)["ledger"]) if path.exists() else LedgerEnd()
        if end != state.end:
            fix = "Only one process may talk with a user at a time: load the state again and hold the session anew."
            expected = f"{state.end.num_entries} entries"
            raise DataError.of(self._what, "has got another session since it was loaded", got=end.num_entries, expected=expected, fix=fix)

    def _append(self, end: LedgerEnd, entries: Sequence[Entry]) -> LedgerEnd:
        """Cut off what no state knows, add the entries, sync."""
        lines = [json.dumps(entry.as_row(), ensure_ascii=False).encode() + b"\n" for entry in entries]
        with (self._directory / LEDGER).open("ab") as stream:
            stream.truncate(end.num_bytes)
            stream.seek(0, os.SEEK_END)
            stream.write(b"".join(lines))
            stream.flush()
            os.fsync(stream.fileno())
        size = end.num_bytes + sum(map(len, lines))
        return LedgerEnd(num_bytes=size, num_entries=end.num_entries + len(lines), chain=extend_chain(end.chain, lines))

    def _read_state(self, path: Path) -> dict[str, Any]:
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DataError.of(self._what, f"{STATE} cannot be read", got=str(error), fix="Restore it from a copy.") from error
        names = {"format", "user_id", "ledger", "waiting", "bank_version", "policy_version"}
        if not isinstance(stored, dict) or stored.keys() != names or stored["format"] != FORMAT:
            raise DataError.of(self._what, f"{STATE} is of another format", got=stored, expected=f"format {FORMAT} with {', '.join(sorted(names))}")
        if stored["user_id"] != self._user_id:
            raise DataError.of(self._what, "belongs to another user", got=stored["user_id"], expected=self._user_id)
        return stored

    def _read_ledger(self, end: LedgerEnd) -> list[Entry]:
        path = self._directory / LEDGER
        content = path.read_bytes()[: end.num_bytes] if path.exists() else b""
        lines = content.splitlines(keepends=True)
        if len(content) != end.num_bytes or len(lines) != end.num_entries or extend_chain(EMPTY_CHAIN, lines) != end.chain:
            fix = "The two files are not of one moment: restore both from a copy."
            problem, expected = f"{LEDGER} is not what {STATE} was written with", f"{end.num_entries} entries in {end.num_bytes} bytes"
            raise DataError.of(self._what, problem, got=f"{len(lines)} entries in {len(content)} bytes", expected=expected, fix=fix)
        return [parse_entry(json.loads(line), f"{path}, line {number}") for number, line in enumerate(lines, start=1)]


def read_user_id(directory: Path) -> str:
    """Whose state a directory holds. Raises DataError where it holds none."""
    path = directory / STATE
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["user_id"])
    except FileNotFoundError as error:
        raise DataError.of(f"ledger {directory}", f"there is no user: {STATE} is missing", fix="Give the directory of one user of an ICML run.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError.of(f"ledger {directory}", f"{STATE} cannot be read", got=str(error), fix="Restore it from a copy.") from error


def extend_chain(chain: str, lines: Sequence[bytes]) -> str:
    """The chain hash, in hex, after these lines."""
    for line in lines:
        chain = hashlib.sha256(bytes.fromhex(chain) + line).hexdigest()
    return chain


def parse_planner_step(row: Mapping[str, Any]) -> PlannerStep:
    """A decision as `asdict` wrote it."""
    parts = {**row, "turn": Utterances(**row["turn"]), "decision": Decision(**row["decision"])}
    return PlannerStep(**parts)


def _render(state: UserState) -> str:
    stored = {
        "format": FORMAT,
        "user_id": state.user_id,
        "ledger": asdict(state.end),
        "waiting": {memory_id: asdict(step) for memory_id, step in state.waiting.items()},
        "bank_version": state.bank_version,
        "policy_version": state.policy_version,
    }
    return json.dumps(stored, ensure_ascii=False, indent=1) + "\n"
