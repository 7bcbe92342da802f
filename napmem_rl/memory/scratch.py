"""A memory that an episode may write to: a bank's snapshot, and over it what was written, in this process's memory alone."""

from __future__ import annotations

import threading

from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_store import append_items
from napmem_rl.memory.bank_tables import TailLines
from napmem_rl.memory.bank_view import BankView
from napmem_rl.memory.changes import Changes, error_of
from napmem_rl.memory.storage import MESSAGES_FILE, RECORDS_FILE, render_message, render_revision
from napmem_rl.retrieval.index import PassageIndex
from napmem_rl.schema import Level


class Scratch(BankView):
    """A bank and changes over it that nobody else sees; the bank, its files and other scratches stay as they are.

    What the bank has indexed is shared; only what was added is indexed, and encoded, anew. Apply changes from one thread at a time, and not beside a search.

    Attributes: see `BankView`; `version` names the bank's version and the number of changes over it, e.g. "8929c49a7a8a6f44+2".
    """

    def __init__(self, bank: MemoryBank) -> None:
        """Args:
        bank: what to write over; nothing is copied before the first change.
        """
        super().__init__(bank.snapshot, {name: bank.file(name) or "" for name in bank.file_names})
        self.bank_id, self.version, self.writer, self.state = bank.bank_id, bank.version, bank.writer, bank.state
        self._bank = bank
        self._num_changes = 0
        self._logs: tuple[TailLines, TailLines] | None = None
        self._indexes: dict[Level, PassageIndex] = {}
        self._lock = threading.Lock()

    def check_current(self) -> None:
        """See `BankView`; what was written over the bank is as old as the bank."""
        self._bank.check_current()

    def apply(self, changes: Changes) -> None:
        """Add changes, as a bank's writer would.

        Raises:
            BankError: a link would not hold; with all problems, and nothing is changed.
        """
        problems = self.snapshot.find_problems(changes)
        if problems:
            raise error_of(f"scratch over bank {self.bank_id}", problems, fix="Nothing was changed.")
        lines = ([render_message(message) for message in changes.messages], [render_revision(revision) for revision in changes.revisions])
        if self._logs is None:
            self._fork()
        assert self._logs is not None, "Scratch: no logs after a fork"
        snapshot = self.snapshot.with_levels(changes)
        for name, log, items, new in zip((MESSAGES_FILE, RECORDS_FILE), self._logs, (changes.messages, changes.revisions), lines, strict=True):
            log.append(new)
            snapshot = append_items(snapshot, name, items, new)
        self._num_changes += 1
        self.version, self.state = f"{self._bank.version}+{self._num_changes}", dict(changes.state)
        self._show(snapshot, {name: content.decode() for name, content in snapshot.render_files().items()})
        self._indexes.clear()

    def _fork(self) -> None:
        """Copy the columns, so that what is added leaves no trace in the bank's."""
        messages, revisions = self.snapshot.messages, self.snapshot.revisions
        self._logs = (TailLines(messages.log, messages.num_bytes), TailLines(revisions.log, revisions.num_bytes))
        self.snapshot = self.snapshot.over(messages.forked(self._logs[0]), revisions.forked(self._logs[1]))

    def find_index(self, level: Level) -> PassageIndex:
        with self._lock:
            if level not in self._indexes:
                base = self._bank.find_index(level)
                source = self.messages if level is Level.RAW else self.snapshot.revisions
                self._indexes[level] = base.extended(source) if self._num_changes else base
            return self._indexes[level]
