"""Hybrid retrieval of the records that a draft may repeat, revise or extend (NapMem section 3.2, "reconciled with the existing related record bank").

Keyword and vector rankings are fused by reciprocal ranks; neither neighbours nor dates count here, unlike in searches for an answer.

Searched are the bank's live records and the drafts of a batch that is not committed yet, as if they were. The index is the bank's own: what is sealed on disk
is shared, and only new records are read and encoded. What is found depends on the records alone, so that a builder that was stopped finds the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from napmem_rl.memory.bank_tables import RECORD_TYPES, RevisionTable, render_record_passage
from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.retrieval.fusion import Ranking
from napmem_rl.retrieval.index import PassageIndex
from napmem_rl.schema import Level, Record, RecordRevision


class RelatedRecords:
    """The records of a bank that is written, to search in."""

    def __init__(self, table: Callable[[], RevisionTable], *, encoder: Encoder | None, directory: Path) -> None:
        """Args:
        table: the bank's committed revisions, as they are when it is called.
        encoder: None for keywords alone.
        directory: of the bank's index.
        """
        self._table = table
        self._encoder = encoder
        self._directory = directory
        self._committed: PassageIndex | None = None
        self._drafts: list[RecordRevision] = []

    def draft(self, revision: RecordRevision) -> None:
        """Count in a revision that will be committed."""
        self._drafts.append(revision)

    def forget_drafts(self) -> None:
        """Count the drafts out again: they were committed, or given up."""
        self._drafts.clear()

    def search(self, text: str, *, k: int) -> list[Record]:
        """The k live records most related to a text, best first."""
        table = self._table()
        if not len(table) and not self._drafts:
            return []
        if self._committed is None:
            self._committed = PassageIndex(table, level=Level.RECORD, encoder=self._encoder, directory=self._directory, ranking=Ranking.RRF)
        elif len(self._committed) < len(table):
            self._committed = self._committed.extended(table)
        if not self._drafts:
            return [table.revision(position).record for position in self._committed.search(text, k=k)]
        records = [revision.record for revision in self._drafts]
        found = self._committed.extended(_DraftedTable(table, self._drafts)).search(text, k=k)
        return [table.revision(position).record if position < len(table) else records[position - len(table)] for position in found]


class _DraftedTable:
    """A table with more revisions after its own; a `PassageSource`."""

    kind_names: Sequence[str] = RECORD_TYPES
    speaker_names: Sequence[str] = ()

    def __init__(self, table: RevisionTable, drafts: Sequence[RecordRevision]) -> None:
        records = [draft.record for draft in drafts]
        self._table = table
        self._passages = [render_record_passage(record) for record in records]
        self.session_names = [*table.session_names, *dict.fromkeys(record.session_id for record in records)]
        sessions = {name: code for code, name in enumerate(self.session_names)}
        self.times = np.concatenate([table.times, np.array([record.time.encode() for record in records], dtype=table.times.dtype)])
        self.kinds = np.concatenate([table.kinds, np.array([RECORD_TYPES.index(record.type) for record in records], dtype=table.kinds.dtype)])
        self.sessions = np.concatenate([table.sessions, np.array([sessions[record.session_id] for record in records], dtype=table.sessions.dtype)])
        self.speakers = np.full(len(self), -1, dtype=np.int16)
        self.live = np.concatenate([table.live, np.ones(len(records), dtype=bool)])
        self._end_replaced(drafts)

    def _end_replaced(self, drafts: Sequence[RecordRevision]) -> None:
        """Each draft ends the revisions that it goes on from, committed or drafted."""
        drafted: dict[str, int] = {}
        for position, draft in enumerate(drafts, start=len(self._table)):
            for record_id in (draft.record.record_id, *draft.merged_ids):
                before = drafted.get(record_id, self._table.live_position(record_id))
                if before is not None:
                    self.live[before] = False
            drafted[draft.record.record_id] = position

    def __len__(self) -> int:
        return len(self._table) + len(self._passages)

    def texts(self, start: int, stop: int) -> list[str]:
        """See `PassageSource`."""
        cut = len(self._table)
        return self._table.texts(start, min(stop, cut)) + self._passages[max(start - cut, 0) : max(stop - cut, 0)]

    def prefix_key(self, stop: int) -> str | None:
        """See `PassageSource`; drafts are the end of no commit."""
        return self._table.prefix_key(stop) if stop <= len(self._table) else None
