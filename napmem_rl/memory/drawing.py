"""Records of one batch: extraction, then reconciliation of each draft with what is there and with the drafts before it (NapMem section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence

from napmem_rl.errors import PolicyOutputError
from napmem_rl.memory.bank_writer import BankWriter
from napmem_rl.memory.build_report import Cause
from napmem_rl.memory.reconcile import Outcome, apply_decision, check_draft
from napmem_rl.memory.related import RelatedRecords
from napmem_rl.memory.writers.base import MemoryWriter, ReconcileAction, Reconciliation, RecordDraft
from napmem_rl.schema import Message, RecordRevision

RECENT_RECORDS = 10  # background for extraction; ours


class BatchDrawing:
    """What is drawn from one batch, not yet committed.

    Attributes: `revisions`, `causes` (what was counted), `next_record` (number of the next record's id).
    """

    def __init__(self, bank: BankWriter, related: RelatedRecords, writer: MemoryWriter, batch: Sequence[Message], next_record: int) -> None:
        self.revisions: list[RecordRevision] = []
        self.causes: list[Cause] = []
        self.next_record = next_record
        self._bank, self._related, self._writer, self._batch = bank, related, writer, batch

    async def run(self) -> None:
        """Draw all records.

        Raises:
            LLMError: the writer failed; nothing of the drawing counts.
        """
        for said in await self._draw_drafts():
            draft, causes = check_draft(said, self._batch)
            self.causes += causes
            if draft is not None:
                self._take(await self._reconcile(draft))

    async def _draw_drafts(self) -> Sequence[RecordDraft]:
        recent = self._bank.records[-RECENT_RECORDS:]
        try:
            return await self._writer.extract_records(self._batch, recent)
        except PolicyOutputError:
            self.causes.append(Cause.EXTRACTION_UNREADABLE)
            return ()

    async def _reconcile(self, draft: RecordDraft) -> Outcome:
        related = self._related.search(draft.text, k=self._writer.num_related) if self._writer.num_related else []
        decision = Reconciliation(action=ReconcileAction.STORE)
        if related:
            try:
                decision = await self._writer.reconcile(draft, self._batch, related)
            except PolicyOutputError:
                self.causes.append(Cause.DECISION_UNREADABLE)
        return apply_decision(draft, decision, related, new_id=f"rec:{self.next_record}", find_message=self._bank.message)

    def _take(self, outcome: Outcome) -> None:
        self.causes += outcome.causes
        if outcome.revision is not None:
            self.next_record += outcome.revision.record.record_id == f"rec:{self.next_record}"
            self.revisions.append(outcome.revision)
            self._related.draft(outcome.revision)
