"""Records of the sessions that lost messages, drawn again in their place.

For a writer that draws each record from its own batch alone (`num_related` is 0, as that of `rules`): what is there afterwards is what a bank built without the
forgotten messages holds, and a record that comes out as it was keeps its id. Records of a writer that reconciles rest on many sessions; those are set aside for
the builder instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from napmem_rl.memory.bank_store import Snapshot
from napmem_rl.memory.drawing import RECENT_RECORDS
from napmem_rl.memory.flush_schedule import compute_flush_size, cut_batch
from napmem_rl.memory.forgetting_levels import find_corrected, is_correction, replay_live
from napmem_rl.memory.reconcile import build_record, check_draft
from napmem_rl.memory.writers.base import MemoryWriter
from napmem_rl.schema import Message, Record, RecordOperation, RecordRevision


@dataclass(slots=True)
class Run:
    """Neighbouring messages of one session that records were drawn from: positions [start, stop) in the log of messages."""

    start: int
    stop: int
    old: list[Record] = field(default_factory=list)
    place: int = 0  # of its records among the revisions of other runs


def draws_alone(writer: MemoryWriter | None, revisions: Sequence[RecordRevision]) -> bool:
    """Whether this writer can draw the records of one session again, each of which rests on that session alone."""
    plain = (revision.operation is RecordOperation.STORE or is_correction(revision.record.source_ids[-1]) for revision in revisions)
    return writer is not None and writer.num_related == 0 and all(plain)


def find_runs(snapshot: Snapshot, positions: Sequence[int], start: int, stop: int) -> list[Run]:
    """The runs that hold some of these positions.

    Args:
        snapshot: the memory as it was.
        positions: of forgotten messages, ascending.
        start, stop: nothing outside of these positions is drawn again.
    """
    sessions, runs = snapshot.messages.sessions, []
    for position in positions:
        if not start <= position < stop or (runs and position < runs[-1].stop):
            continue
        first = last = position
        while first > start and sessions[first - 1] == sessions[position]:
            first -= 1
        while last + 1 < stop and sessions[last + 1] == sessions[position]:
            last += 1
        runs.append(Run(first, last + 1))
    return runs


async def redraw(
    messages: Sequence[Message], revisions: Sequence[RecordRevision], runs: Sequence[Run], forgotten: Collection[str], writer: MemoryWriter, next_record: int
) -> tuple[list[RecordRevision], int]:
    """All revisions, with those of the runs drawn again.

    Args:
        messages: of the memory as it was.
        revisions: of it.
        runs: what to draw from again, in order.
        forgotten: message ids.
        writer: see `draws_alone`.
        next_record: number of the next new record.

    Returns:
        (the revisions, number of the next new record). Raises LLMError where the writer fails.
    """
    kept = _take_out({message.message_id: position for position, message in enumerate(messages)}, revisions, runs)
    skipped = find_corrected(replay_live(revisions).values()).union(forgotten)
    found: list[RecordRevision] = []
    start = 0
    for run in runs:
        found += kept[start : run.place]
        start = run.place
        drawing = _Drawing([message for message in messages[run.start : run.stop] if message.message_id not in skipped], run.old, next_record)
        found += await drawing.run(writer, list(replay_live(found[-2 * RECENT_RECORDS :]).values()))
        next_record = drawing.next_record
    return found + kept[start:], next_record


def _take_out(positions: Mapping[str, int], revisions: Sequence[RecordRevision], runs: Sequence[Run]) -> list[RecordRevision]:
    """The revisions without those of the runs, each of which learns its old records and its place among what is left."""
    corrected_ids = {revision.record.record_id for revision in revisions if any(map(is_correction, revision.record.source_ids))}
    owner = {position: run for run in runs for position in range(run.start, run.stop)}
    kept: list[RecordRevision] = []
    num_placed = 0
    for revision in revisions:
        of_record = [positions[source_id] for source_id in revision.record.source_ids]
        if revision.record.record_id not in corrected_ids:
            while num_placed < len(runs) and min(of_record) >= runs[num_placed].start:
                runs[num_placed].place = len(kept)
                num_placed += 1
            run = next((owner[position] for position in of_record if position in owner), None)
            if run is not None:
                run.old.append(revision.record)
                continue
        kept.append(revision)
    for run in runs[num_placed:]:
        run.place = len(kept)
    return kept


class _Drawing:
    """The records of one run, batch by batch."""

    def __init__(self, messages: Sequence[Message], old: Sequence[Record], next_record: int) -> None:
        self.next_record = next_record
        self._messages = messages
        self._old: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
        for record in old:
            self._old.setdefault((record.type, record.text, record.source_ids), []).append(record.record_id)

    async def run(self, writer: MemoryWriter, recent: Sequence[Record]) -> list[RecordRevision]:
        """All of them, as the builder would store them."""
        by_id: Mapping[str, Message] = {message.message_id: message for message in self._messages}
        rest, known, stored = list(self._messages), list(recent), []
        num_flushes = 0
        while rest:
            size = cut_batch(rest, writer.turns_per_flush or compute_flush_size(num_flushes))
            batch, rest, num_flushes = rest[:size], rest[size:], num_flushes + 1
            for said in await writer.extract_records(batch, known[-RECENT_RECORDS:]):
                draft, _ = check_draft(said, batch)
                if draft is not None:
                    record = build_record(self._choose_id(draft.type, draft.text, draft.source_ids), draft, draft.source_ids, by_id.get)
                    stored.append(RecordRevision(operation=RecordOperation.STORE, record=record))
            known = [*recent, *(revision.record for revision in stored)]
        return stored

    def _choose_id(self, *said: Any) -> str:
        """The id of the old record that said the same, or a new one."""
        if old := self._old.get(said):
            return old.pop(0)
        self.next_record += 1
        return f"rec:{self.next_record - 1}"
