"""From what a writer says about records to revisions that hold (NapMem section 3.2 and appendix B, "Memory records").

A draft names its sources; a decision says what becomes of it beside related records: store, skip, update or merge. Sources are united, so is the time (that of
the newest source), and what a record was before stays in the bank's history. Whatever a writer gets wrong is repaired or dropped here, and counted by cause.

Ours, where the paper is silent: only records that the writer was shown may be updated or merged; a merge into one record alone is an update of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from napmem_rl.memory.build_report import Cause
from napmem_rl.memory.writers.base import ReconcileAction, Reconciliation, RecordDraft
from napmem_rl.schema import Message, Record, RecordOperation, RecordRevision

MAX_RECORD_CHARS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What becomes of one draft: a revision, or None for a skip; and what was counted on the way."""

    revision: RecordRevision | None
    causes: tuple[Cause, ...]


def check_draft(draft: RecordDraft, batch: Sequence[Message]) -> tuple[RecordDraft | None, list[Cause]]:
    """A draft as it may be stored: text on one line and of bounded length, sources of its batch alone, in their order; None where nothing usable is left."""
    text, causes = _clean_text(draft.text, Cause.DRAFT_SHORTENED)
    if text is None:
        return None, [Cause.DRAFT_BROKEN_TEXT]
    if not text:
        return None, [Cause.DRAFT_EMPTY]
    named = set(draft.source_ids)
    source_ids = tuple(message.message_id for message in batch if message.message_id in named)
    if not source_ids:
        return None, [*causes, Cause.DRAFT_WITHOUT_SOURCE]
    causes += [Cause.DRAFT_SOURCE_LEFT_OUT] * (len(source_ids) < len(named))
    return replace(draft, text=text, source_ids=source_ids), causes


def apply_decision(
    draft: RecordDraft, decision: Reconciliation, related: Sequence[Record], *, new_id: str, find_message: Callable[[str], Message | None]
) -> Outcome:
    """Carry out what a writer decided about a draft.

    Args:
        draft: as `check_draft` gave it.
        decision: the writer's.
        related: the live records that the writer was shown.
        new_id: of the record, where one is stored.
        find_message: of the bank, for the times of sources.
    """
    if decision.action is ReconcileAction.SKIP:
        return Outcome(revision=None, causes=(Cause.RECORDS_SKIPPED,))
    targets, causes = _find_targets(decision, related)
    if not targets:
        record = build_record(new_id, draft, draft.source_ids, find_message)
        return Outcome(revision=RecordRevision(operation=RecordOperation.STORE, record=record), causes=(*causes, Cause.RECORDS_STORED))
    text, repairs = _clean_text(draft.text if decision.text is None else decision.text, Cause.DECISION_SHORTENED)
    if not text:
        text, repairs = draft.text, [Cause.DECISION_TEXT_REPLACED]
    said = replace(draft, text=text, type=decision.type or draft.type)
    source_ids = unite(*(target.source_ids for target in targets), draft.source_ids)
    record = build_record(targets[0].record_id, said, source_ids, find_message)
    merged_ids = tuple(target.record_id for target in targets[1:])
    operation, done = (RecordOperation.MERGE, Cause.RECORDS_MERGED) if merged_ids else (RecordOperation.UPDATE, Cause.RECORDS_UPDATED)
    return Outcome(revision=RecordRevision(operation=operation, record=record, merged_ids=merged_ids), causes=(*causes, *repairs, done))


def build_record(record_id: str, said: RecordDraft, source_ids: tuple[str, ...], find_message: Callable[[str], Message | None]) -> Record:
    """A record of what `said` says, resting on these messages; time and session are those of the newest one (the last of several at the same time)."""
    sources = [message for source_id in source_ids if (message := find_message(source_id))]
    assert len(sources) == len(source_ids), f"record {record_id}: a source of {source_ids} is not in the bank"
    newest = max(enumerate(sources), key=lambda numbered: (numbered[1].time, numbered[0]))[1]
    return Record(record_id=record_id, type=said.type, text=said.text, time=newest.time, source_ids=source_ids, session_id=newest.session_id)


def unite(*ids: Iterable[str]) -> tuple[str, ...]:
    """All ids, each once, in the order in which they come."""
    return tuple(dict.fromkeys(item_id for some in ids for item_id in some))


def _find_targets(decision: Reconciliation, related: Sequence[Record]) -> tuple[list[Record], list[Cause]]:
    """The records that the draft goes into; none for a store, also one that is forced."""
    if decision.action is ReconcileAction.STORE:
        return [], []
    shown = {record.record_id: record for record in related}
    named = unite(decision.target_ids)
    targets = [shown[record_id] for record_id in named if record_id in shown]
    causes = [Cause.DECISION_UNKNOWN_TARGET] * (len(targets) < len(named)) + [Cause.DECISION_NO_TARGET] * (not named)
    if decision.action is ReconcileAction.UPDATE and len(targets) > 1:
        return targets[:1], [*causes, Cause.DECISION_MANY_TARGETS]
    return targets, causes


def _clean_text(text: str, shortened: Cause) -> tuple[str | None, list[Cause]]:
    """The text on one line, cut at a word to MAX_RECORD_CHARS; None where it is not valid Unicode."""
    text = " ".join(text.split())
    try:
        text.encode()
    except UnicodeEncodeError:
        return None, []
    if len(text) <= MAX_RECORD_CHARS:
        return text, []
    room = MAX_RECORD_CHARS - len(" …")
    return f"{text[:room].rsplit(' ', 1)[0]} …", [shortened]
