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
a record revise a newer one; a batch that failed MAX_ATTEMPTS times where the next one does not is set aside for the end of the replay. A budget that is spent
(BudgetError) is no failure of a step: it ends the run where it is, and the next run goes on from there.

Ours, where the paper is silent: the session that a round comes before has been appended already; day boundaries are looked for between batches; a profile is
asked for by any change of the tracks; that of a memory without tracks is written at the end of a replay (section 3.2 has the first profile "after the first
session", appendix B "once topic tracks become available").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, takewhile
from typing import Any

from napmem_rl.errors import BudgetError, LLMError, NapMemError, PolicyOutputError
from napmem_rl.memory.bank_writer import BankWriter
from napmem_rl.memory.build_report import BuildReport, Cause, PendingStep
from napmem_rl.memory.build_state import Batch, BuildState, Checkpoint, Waiting, adopt_state, parse_state
from napmem_rl.memory.changes import Changes, error_of, relink
from napmem_rl.memory.drawing import BatchDrawing
from napmem_rl.memory.flush_schedule import compute_flush_size, cut_batch
from napmem_rl.memory.forgotten import forgotten_ids
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
MAX_ATTEMPTS = 3  # at a batch before the one after it is tried; failures in a row before a run tries no more until its end; ours
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
        self._num_failed = 0  # extractions in a row, in this run

    async def add(self, messages: Iterable[Message], *, draws: bool = True) -> None:
        """Take in messages: append the new ones, session by session, and do everything that is due.

        A message that the bank holds already is passed over, as is one that it was made to forget. Messages older than what it holds are kept too, and counted:
        their sessions follow the ones that are there, and their records are reconciled with what is known by then.

        Args:
            messages: in any order; a session is taken to be over with the last of its messages here. One that goes on later is flushed again then.
            draws: False appends them alone; a later run draws records from them.

        Raises:
            BankError: a message is malformed, or an id comes again with other content. Nothing of `messages` was stored.
        """
        wanted, forgotten = list(messages), forgotten_ids(self._bank.path)
        messages = [message for message in wanted if message.message_id not in forgotten]
        arrival = sift_messages(self._bank.bank_id, messages, self._bank.message)
        problems = self._bank.snapshot.find_problems(Changes(messages=tuple(message for session in arrival.sessions for message in session)))
        if problems:
            raise error_of(f"bank {self._bank.bank_id}", problems, fix="Nothing was written.")
        late = count_late(arrival.sessions, self._state.newest)
        counted = {Cause.MESSAGES_KNOWN: arrival.num_known, Cause.MESSAGES_EMPTY: arrival.num_empty, Cause.MESSAGES_LATE: late}
        counted[Cause.MESSAGES_FORGOTTEN] = len(wanted) - len(messages)
        self._run_counts.update({cause: number for cause, number in counted.items() if number})
        if draws:
            await self._advance()
        for session in arrival.sessions:
            self._append(session)
            if draws:
                await self._advance()

    async def finish(self) -> BuildReport:
        """End a replay: what failed before, a round of topics and the profile where they are due, and one last try of what fails now."""
        for _ in range(2):
            await self._advance(is_end=True)
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

    async def _advance(self, *, is_end: bool = False) -> None:
        """Draw records from what waits, as far as the writer comes, with the topics and profiles that become due on the way.

        Where one try after the other failed in this run, nothing more is tried before its end.
        """
        if not self._has_started:
            self._has_started = True
            self._writer.resume(self._list_drawn_messages(), self._bank.records)
            await self._retry_set_aside(stop_at_failure=True)
        if is_end or self._num_failed < MAX_ATTEMPTS:
            await self._settle()
        while self._state.waiting and (is_end or self._num_failed < MAX_ATTEMPTS):
            batch = self._cut()
            await self._write_topics_before(batch)
            if not await self._extract(batch) and not await self._pass_over(batch):
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
        is_same_session = bool(start) and self._bank.messages[start - 1].session_id == session[0].session_id
        state = self._state.append(start, session, is_same_session=is_same_session)
        changes = Changes(messages=tuple(session), note=f"{session[0].session_id}: {len(session)} messages")
        self._commit(changes, state, [Cause.MESSAGES_ADDED] * len(session))

    def _cut(self) -> Batch:
        """The next batch of what waits."""
        waiting, messages = self._state.waiting, self._bank.messages
        session_id = messages[waiting.start].session_id
        rest = takewhile(lambda message: message.session_id == session_id, (messages[i] for i in range(waiting.start, waiting.find_cut())))
        num_turns = self._writer.turns_per_flush or compute_flush_size(self._state.num_flushes)
        return Batch(start=waiting.start, stop=waiting.start + cut_batch(rest, num_turns), failure=waiting.failure)

    async def _retry_set_aside(self, *, stop_at_failure: bool) -> None:
        for batch in self._state.set_aside:
            if not await self._extract(batch) and stop_at_failure:
                return

    async def _pass_over(self, batch: Batch) -> bool:
        """Set a batch aside that failed again and again, if the one after it can be drawn from; else it is not the batch's fault, and it goes on waiting."""
        held, passed = self._state, self._state.pass_over(batch)
        if held.waiting.failure.attempts < MAX_ATTEMPTS or not passed.waiting:
            return False
        self._state = passed
        try:
            return await self._extract(self._cut(), is_trial=True)
        finally:
            if self._state is passed:  # nothing was committed
                self._state = held

    async def _extract(self, batch: Batch, *, is_trial: bool = False) -> bool:
        """Records of one batch, committed; False where the writer failed, which is committed too unless it was a mere trial."""
        messages = self._bank.messages[batch.start : batch.stop]
        what = f"records of {messages[0].message_id} to {messages[-1].message_id}"
        drawing = BatchDrawing(self._bank, self._related, self._writer, messages, self._state.next_record)
        try:
            await drawing.run()
        except BudgetError:
            raise
        except LLMError as error:
            self._num_failed += 1
            if is_trial:
                self._run_counts[Cause.EXTRACTION_FAILED] += 1
            else:
                reason = _describe(error)
                self._commit(Changes(note=f"put off: {what}: {reason}"), self._state.put_off(batch, reason), [Cause.EXTRACTION_FAILED])
            return False
        finally:
            self._related.forget_drafts()
        self._num_failed = 0
        revisions = tuple(drawing.revisions)
        tracks, profile = relink(self._bank.tracks, self._bank.profile, revisions)
        records = [revision.record for revision in revisions]
        counted = {"topics": self._state.topics.count(records), "profile": self._state.profile.count(records)}
        state = replace(self._state.take_out(batch, messages[-1]), next_record=drawing.next_record, **counted)
        changes = Changes(revisions=revisions, tracks=tracks, profile=profile, note=f"{messages[0].session_id}: {what}")
        self._commit(changes, state, [Cause.BATCHES, *drawing.causes])
        return True

    async def _write_topics_before(self, batch: Batch) -> None:
        """A round, and the profile, where a new session or a new day begins and records are unprocessed."""
        first, last = self._bank.messages[batch.start], self._bank.messages[batch.stop - 1]
        is_due = first.session_id != self._state.last_session or last.time[:10] > self._state.last_date
        if is_due and self._has_new(self._state.topics):
            await self._write_topics(f"before {first.session_id}, {last.time[:10]}")
            await self._settle()

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
        pending = {position for batch in (*self._state.set_aside, self._state.waiting) for position in range(batch.start, batch.stop)}
        if not pending:
            return self._bank.messages
        return tuple(self._bank.messages[position] for position in range(len(self._bank.messages)) if position not in pending)

    def _list_pending(self) -> tuple[PendingStep, ...]:
        left = [*self._state.set_aside, *([self._state.waiting] if self._state.waiting else [])]
        failures = [(f"records of {self._name(batch)}", batch.failure) for batch in left]
        failures += [(name, point.failure) for name, point in (("topics", self._state.topics), ("profile", self._state.profile)) if point.failure.attempts]
        return tuple(PendingStep(step=step, attempts=failure.attempts, reason=failure.reason) for step, failure in failures)

    def _name(self, batch: Batch | Waiting) -> str:
        return f"{self._bank.messages[batch.start].message_id} to {self._bank.messages[batch.stop - 1].message_id}"

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
