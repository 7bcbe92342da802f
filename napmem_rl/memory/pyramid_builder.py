"""Bottom-up construction of a memory, session by session (NapMem section 3.2, Algorithm 1, appendix B).

For each session in time order::

    append its messages                                                       one commit: what was said is safe before anything is made of it
    for each batch of complete turns (`flush_schedule`, or what the writer wants), the rest at the end:
        a round of topics, if the session is new or the day is, and records are unprocessed
        extract records, recent ones as background; reconcile each with the related live records        one commit
        a round of topics, if more than 20 records came since the last; the profile, if it is due    one commit each
    at the end of the replay: what failed before, a round of topics, the profile; what still fails is tried once more

Every step depends on the bank and its state alone, and ends in a commit. So a builder that was stopped anywhere goes on with the step that was not committed,
and the bank ends as it would have without the stop. A step whose writer fails (LLMError) leaves the bank as it was and waits. Extraction waits in order, lest
a record revise a newer one, until a batch has failed MAX_ATTEMPTS times: it is then set aside for the end of the replay. A budget that is spent (BudgetError)
is no failure of a step: it ends the run where it is, and the next run goes on from there.

Ours, where the paper is silent: the session that a round comes before has been appended already; day boundaries are looked for between batches; a profile is
asked for by any change of the tracks; that of a memory without tracks is written at the end of a replay (section 3.2 has the first profile "after the first
session", appendix B "once topic tracks become available").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from napmem_rl.errors import BudgetError, LLMError, NapMemError, PolicyOutputError
from napmem_rl.memory.bank_writer import BankWriter
from napmem_rl.memory.build_report import BuildReport, Cause, PendingStep
from napmem_rl.memory.build_state import BuildState, Checkpoint, Failure, Span, adopt_state, parse_state
from napmem_rl.memory.changes import Changes, error_of, relink
from napmem_rl.memory.drawing import BatchDrawing
from napmem_rl.memory.flush_schedule import compute_flush_size, cut_batch
from napmem_rl.memory.profile_check import MAX_PROFILE_CHARS, check_profile
from napmem_rl.memory.profile_links import carry_over
from napmem_rl.memory.related import RelatedRecords
from napmem_rl.memory.sessions import count_late, sift_messages
from napmem_rl.memory.topic_desk import TopicRound
from napmem_rl.memory.writers.base import MemoryWriter
from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.schema import Message, Record

MAX_NEW_RECORDS_TOPICS = 20  # NapMem appendix B: a round when more have accumulated
MAX_NEW_RECORDS_PROFILE = 50  # NapMem appendix B: a refresh when more have accumulated
MAX_ATTEMPTS = 3  # of one batch before it no longer holds up the rest; ours
MAX_REASON_CHARS = 300


class PyramidBuilder:
    """Construction of one bank. One builder at a time, as the `BankWriter` under it has it; any number of banks at the same time.

    After an exception that is not documented here throw the builder away; one opened on the bank anew goes on.
    """

    def __init__(self, bank: BankWriter, writer: MemoryWriter, *, encoder: Encoder | None = None, max_profile_chars: int = MAX_PROFILE_CHARS) -> None:
        """Args:
            bank: open for writing; what its last commit left undone is done first.
            writer: of records, tracks and profile.
            encoder: for related records; keywords alone where there is none.
            max_profile_chars: the profile's length budget.

        Raises:
            BankError: the bank's state is none of a builder.
        """
        self._bank = bank
        self._writer = writer
        self._max_profile_chars = max_profile_chars
        self._state = _load_state(bank)
        self._related = RelatedRecords(lambda: bank.snapshot.revisions, encoder=encoder, directory=bank.path / "index")
        self._run_counts: Counter[str] = Counter()
        self._has_started = False

    async def add(self, messages: Iterable[Message]) -> None:
        """Take in messages: append the new ones, session by session, and do everything that is due.

        A message that the bank holds already is passed over. Messages older than what it holds are kept too, and counted: their sessions follow the ones that
        are there, and their records are reconciled with what is known by then.

        Args:
            messages: in any order; a session is taken to be over with the last of its messages here. One that goes on later is flushed again then.

        Raises:
            BankError: a message is malformed, or an id comes again with other content. Nothing of `messages` was stored.
        """
        arrival = sift_messages(self._bank.bank_id, messages, self._bank.message)
        problems = self._bank.snapshot.find_problems(Changes(messages=tuple(message for session in arrival.sessions for message in session)))
        if problems:
            raise error_of(f"bank {self._bank.bank_id}", problems, fix="Nothing was written.")
        late = count_late(arrival.sessions, self._state.newest)
        counted = {Cause.MESSAGES_KNOWN: arrival.num_known, Cause.MESSAGES_EMPTY: arrival.num_empty, Cause.MESSAGES_LATE: late}
        self._run_counts.update({cause: number for cause, number in counted.items() if number})
        await self._advance()
        for session in arrival.sessions:
            self._append(session)
            await self._advance()

    async def finish(self) -> BuildReport:
        """End a replay: what failed before, a round of topics and the profile where they are due, and one last try of what fails now."""
        for _ in range(2):
            await self._advance()
            await self._retry_set_aside(stop_at_failure=False)
            if self._has_new(self._state.topics) or self._state.topics.failure.attempts:
                await self._write_topics("end of replay")
            if self._is_profile_due(is_end=True):
                await self._write_profile()
            if not self._list_pending():
                break
        if self._bank.version is None:
            self._commit(Changes(note="nothing yet"), self._state, [])
        return self.report()

    def report(self) -> BuildReport:
        """What happened since this builder was opened, and what is pending now."""
        counts = {str(cause): self._run_counts[cause] for cause in Cause if self._run_counts[cause]}
        return BuildReport(bank_id=self._bank.bank_id, version=self._bank.version, counts=counts, pending=self._list_pending())

    async def _advance(self) -> None:
        """Draw records from what waits, as far as the writer comes, with the topics and profiles that become due on the way."""
        if not self._has_started:
            self._has_started = True
            self._writer.resume(self._list_drawn_messages(), self._bank.records)
            await self._retry_set_aside(stop_at_failure=True)
        await self._settle()
        while self._state.waiting:
            span = self._state.waiting[0]
            batch = self._cut(span)
            if self._is_round_due_before(batch):
                await self._write_topics(f"before {batch[0].session_id}, {batch[-1].time[:10]}")
                await self._settle()
            if not await self._extract(span, batch):
                return
            await self._settle()

    async def _settle(self) -> None:
        """Topics and profile where so many records came that they are due, and the profile where a round asks for it."""
        if self._state.topics.num_since > MAX_NEW_RECORDS_TOPICS:
            await self._write_topics(f"{self._state.topics.num_since} new records")
        if self._is_profile_due(is_end=False):
            await self._write_profile()

    def _append(self, session: Sequence[Message]) -> None:
        """Raw messages first: they are safe whatever becomes of the rest."""
        start = len(self._bank.messages)
        waiting = (*self._state.waiting, Span(start=start, stop=start + len(session)))
        state = replace(self._state, waiting=waiting, newest=max(self._state.newest, session[-1].time))
        changes = Changes(messages=tuple(session), note=f"{session[0].session_id}: {len(session)} messages")
        self._commit(changes, state, [Cause.MESSAGES_ADDED] * len(session))

    def _cut(self, span: Span) -> tuple[Message, ...]:
        """The next batch of what waits."""
        messages = self._bank.messages[span.start : span.stop]
        return tuple(messages[: cut_batch(messages, self._writer.turns_per_flush or compute_flush_size(self._state.num_flushes))])

    async def _retry_set_aside(self, *, stop_at_failure: bool) -> None:
        for span in self._state.set_aside:
            if not await self._extract(span, tuple(self._bank.messages[span.start : span.stop])) and stop_at_failure:
                return

    async def _extract(self, span: Span, batch: Sequence[Message]) -> bool:
        """Records of one batch, committed; False where the writer failed, which is committed too. `span`: what the batch is of, all or the first of it."""
        what = f"records of {batch[0].message_id} to {batch[-1].message_id}"
        drawing = BatchDrawing(self._bank, self._related, self._writer, batch, self._state.next_record)
        try:
            await drawing.run()
        except BudgetError:
            raise
        except LLMError as error:
            reason = _describe(error)
            self._commit(Changes(note=f"put off: {what}: {reason}"), self._put_off(span, len(batch), reason), [Cause.EXTRACTION_FAILED])
            return False
        finally:
            self._related.forget_drafts()
        revisions = tuple(drawing.revisions)
        tracks, profile = relink(self._bank.tracks, self._bank.profile, revisions)
        records = [revision.record for revision in revisions]
        counted = {"topics": self._state.topics.count(records), "profile": self._state.profile.count(records)}
        state = replace(self._take_out(span, batch), next_record=drawing.next_record, **counted)
        changes = Changes(revisions=revisions, tracks=tracks, profile=profile, note=f"{batch[0].session_id}: {what}")
        self._commit(changes, state, [Cause.BATCHES, *drawing.causes])
        return True

    def _take_out(self, span: Span, batch: Sequence[Message]) -> BuildState:
        """The state once the records of a batch are drawn."""
        state = self._state
        if span in state.set_aside:
            return replace(state, set_aside=tuple(other for other in state.set_aside if other != span))
        return replace(
            state,
            waiting=self._cut_waiting(len(batch)),
            num_flushes=state.num_flushes + 1,
            last_session=batch[-1].session_id,
            last_date=max(state.last_date, batch[-1].time[:10]),
        )

    def _put_off(self, span: Span, num_messages: int, reason: str) -> BuildState:
        """The state after one more failure of a batch: it goes on waiting, or, after MAX_ATTEMPTS, is set aside and lets the rest pass."""
        state, failure = self._state, span.failure.again(reason)
        if span in state.set_aside:
            return replace(state, set_aside=tuple(replace(other, failure=failure) if other == span else other for other in state.set_aside))
        if failure.attempts < MAX_ATTEMPTS:
            return replace(state, waiting=(replace(span, failure=failure), *state.waiting[1:]))
        batch = Span(start=span.start, stop=span.start + num_messages, failure=failure)
        return replace(state, waiting=self._cut_waiting(num_messages), set_aside=(*state.set_aside, batch), num_flushes=state.num_flushes + 1)

    def _cut_waiting(self, num_messages: int) -> tuple[Span, ...]:
        """What waits without its first messages."""
        first, *rest = self._state.waiting
        left = replace(first, start=first.start + num_messages, failure=Failure())
        return (left, *rest) if left.start < left.stop else tuple(rest)

    def _is_round_due_before(self, batch: Sequence[Message]) -> bool:
        is_new_session = batch[0].session_id != self._state.last_session
        is_new_day = batch[-1].time[:10] > self._state.last_date
        return (is_new_session or is_new_day) and self._has_new(self._state.topics)

    async def _write_topics(self, why: str) -> None:
        """A round of topics: committed as a whole, or rolled back and put off."""
        desk = TopicRound(self._bank.tracks, list(self._find_new(self._state.topics)), find_record=self._bank.record, next_track=self._state.next_track)
        try:
            await self._writer.write_topics(desk, self._bank.records)
        except BudgetError:
            raise
        except (LLMError, PolicyOutputError) as error:
            reason = _describe(error)
            state = replace(self._state, topics=self._state.topics.fail(reason))
            causes = [Cause.TOPIC_ROUND_FAILED, *[Cause.TRACK_WRITES_REFUSED] * desk.num_refused]
            self._commit(Changes(note=f"topics put off ({why}): {reason}"), state, causes)
            return
        before, after = tuple(self._bank.tracks), desk.list_tracks()
        profile = carry_over(self._bank.profile, before, after, desk.merged, self._bank.record)
        asked = after != before or desk.wants_profile or self._state.profile.is_due or bool(self._state.profile.failure.attempts)
        state = replace(
            self._state,
            next_track=desk.next_track,
            topics=Checkpoint(next_record=self._state.next_record),
            profile=replace(self._state.profile, is_due=asked),
        )
        causes = [Cause.TOPIC_ROUNDS, *[Cause.TRACK_WRITES_REFUSED] * desk.num_refused]
        self._commit(Changes(tracks=after, profile=profile, note=f"topics: {why}"), state, causes)

    def _is_profile_due(self, *, is_end: bool) -> bool:
        """Whether the profile is to be written now; at the end of a replay also what failed, and what no track will ask for."""
        point = self._state.profile
        if is_end and point.failure.attempts:
            return True
        is_asked = point.is_due or point.num_since > MAX_NEW_RECORDS_PROFILE
        if self._bank.tracks:
            return is_asked
        return is_end and not self._state.topics.failure.attempts and (is_asked or self._has_new(point))

    async def _write_profile(self) -> None:
        """A new profile, or the old one as it is."""
        new = list(self._find_new(self._state.profile))
        tracks, old = self._bank.tracks, self._bank.profile
        times = [old.time, *(item.time for item in (*tracks, *new))]
        done = replace(self._state, profile=Checkpoint(next_record=self._state.next_record))
        try:
            draft = await self._writer.write_profile(old, tracks, new, max_chars=self._max_profile_chars)
            if draft is None:
                self._commit(Changes(note="profile: kept"), done, [Cause.PROFILES_KEPT])
                return
            profile = check_profile(draft, tracks=tracks, find_record=self._bank.record, seen_times=times, max_chars=self._max_profile_chars)
        except BudgetError:
            raise
        except (LLMError, PolicyOutputError) as error:
            cause = Cause.PROFILE_FAILED if isinstance(error, LLMError) else Cause.PROFILE_REFUSED
            reason = _describe(error)
            state = replace(self._state, profile=replace(self._state.profile.fail(reason), is_due=False))
            self._commit(Changes(note=f"profile put off: {reason}"), state, [cause])
            return
        self._commit(Changes(profile=profile, note="profile"), done, [Cause.PROFILES_WRITTEN])

    def _find_new(self, point: Checkpoint) -> Iterator[Record]:
        """Live records that were revised or created since a checkpoint: first the older ones that were revised, then the created ones in order."""
        created = (f"rec:{number}" for number in range(point.next_record, self._state.next_record))
        return (record for record_id in chain(point.revised, created) if (record := self._bank.record(record_id)) is not None)

    def _has_new(self, point: Checkpoint) -> bool:
        return any(True for _ in self._find_new(point))

    def _list_drawn_messages(self) -> Sequence[Message]:
        """The bank's messages, read where they are asked for, without those that wait for extraction."""
        pending = {position for span in (*self._state.waiting, *self._state.set_aside) for position in range(span.start, span.stop)}
        if not pending:
            return self._bank.messages
        return tuple(self._bank.messages[position] for position in range(len(self._bank.messages)) if position not in pending)

    def _list_pending(self) -> tuple[PendingStep, ...]:
        steps = [
            PendingStep(step=f"records of {self._name(span)}", attempts=span.failure.attempts, reason=span.failure.reason)
            for span in (*self._state.set_aside, *self._state.waiting)
        ]
        for name in ("topics", "profile"):
            failure = getattr(self._state, name).failure
            steps += [PendingStep(step=name, attempts=failure.attempts, reason=failure.reason)] * bool(failure.attempts)
        return tuple(steps)

    def _name(self, span: Span) -> str:
        return f"{self._bank.messages[span.start].message_id} to {self._bank.messages[span.stop - 1].message_id}"

    def _commit(self, changes: Changes, state: BuildState, causes: Sequence[Cause]) -> None:
        counts = Counter(state.counts)
        counts.update(map(str, causes))
        state = replace(state, counts=counts)
        self._bank.commit(replace(changes, state=state.to_json()))
        self._state = state
        self._run_counts.update(map(str, causes))


def _load_state(bank: BankWriter) -> BuildState:
    """The state that the bank's last commit left; of a bank that no builder wrote, one that takes all of it as processed."""
    state: Any = bank.state
    if state:
        return parse_state(bank.bank_id, state)
    times = (message.time for message in bank.messages)
    return adopt_state((record.record_id for record in bank.records), (track.track_id for track in bank.tracks), times)


def _describe(error: NapMemError) -> str:
    """Why a step failed, short and writable: a model's or an endpoint's words may be neither."""
    return error.message.encode("utf-8", "replace").decode()[:MAX_REASON_CHARS]
