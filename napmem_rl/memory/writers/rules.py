"""A memory writer without a language model: offline, deterministic, compact; what a bank is built with unless something else is asked for.

Against NapMem section 3.2: word lists take the place of the extraction, topic and profile models, and records are neither updated nor merged (what is restated
later is a record of its own time, so that the bank can be read as of any moment). Parts: `rules_exchanges` (messages to records), `rules_topics` (records to
tracks), `rules_profile` (records to the profile), `sentences` and `rules_words` (the word lists).

The writer counts topics and lasting statements as records come, so that a session costs the same after ten thousand others; where a builder goes on with a
bank that is there, it counts the bank's records once.
"""

from __future__ import annotations

from collections.abc import Sequence

from napmem_rl.memory.build_state import number_of
from napmem_rl.memory.drawing import RECENT_RECORDS
from napmem_rl.memory.flush_schedule import cut_batch
from napmem_rl.memory.profile_check import check_profile
from napmem_rl.memory.reconcile import build_record
from napmem_rl.memory.sessions import split_sessions
from napmem_rl.memory.writers.base import ProfileDraft, ReconcileAction, Reconciliation, RecordDraft, TopicDesk
from napmem_rl.memory.writers.rules_exchanges import MAX_SOURCES, find_exchanges
from napmem_rl.memory.writers.rules_profile import MAX_PROFILE_CHARS, StandingFacts
from napmem_rl.memory.writers.rules_topics import Topic, TopicCounts, write_track
from napmem_rl.retrieval.bm25 import tokenize_words
from napmem_rl.schema import Message, Profile, Record, Track


class RulesWriter:
    """The `rules` writer. One for each bank at a time: it counts what it has seen."""

    name = "rules"
    turns_per_flush = 50  # a session as a whole, as far as it is not endless: a question and its answer fall into one batch
    num_related = 0  # a draft is compared with its own session alone, by `extract_records`

    def __init__(self, *, max_sources: int = MAX_SOURCES, max_records_per_message: float | None = None) -> None:
        """Args:
        max_sources: messages that one record rests on, at most.
        max_records_per_message: keep only the records of a batch that tell most, so many for each of its messages (at least one); None keeps all.
        """
        self._max_sources = max_sources
        self._max_records_per_message = max_records_per_message
        self.user_names: dict[str, None] = {}  # in order of appearance
        self._name_stems: set[str] = set()
        self._topics = TopicCounts()
        self._standing = StandingFacts()
        self._shown: dict[str, tuple[str, int]] = {}  # file name -> stem and newest position of what its track shows
        self._before: Sequence[Record] = ()  # the bank's records when the builder began
        self._last_id = ""  # of the last record that is counted
        self._highest = 0  # number of a counted record; not the last one's where records were drawn again in their old place
        self._is_profile_stale = False

    def resume(self, messages: Sequence[Message], records: Sequence[Record]) -> None:
        """See `MemoryWriter`. Records are counted when they are first needed."""
        for message in messages:
            self._meet(message)
        self._before = records

    async def extract_records(self, batch: Sequence[Message], recent: Sequence[Record]) -> list[RecordDraft]:
        """See `MemoryWriter`."""
        return self.draw(batch, recent)

    def draw(self, batch: Sequence[Message], recent: Sequence[Record]) -> list[RecordDraft]:
        """The records of a batch; the same words again in the same session say nothing new."""
        for message in batch:
            self._meet(message)
        exchanges = find_exchanges(batch, max_sources=self._max_sources)
        if self._max_records_per_message is not None:
            limit = max(1, round(self._max_records_per_message * len(batch)))
            best = set(sorted(range(len(exchanges)), key=lambda i: (-exchanges[i].num_stems, i))[:limit])
            exchanges = [exchange for i, exchange in enumerate(exchanges) if i in best]
        said = {record.text.lower() for record in recent if batch and record.session_id == batch[-1].session_id}
        drafts = {exchange.draft.text.lower(): exchange.draft for exchange in reversed(exchanges)}
        return [draft for text, draft in reversed(drafts.items()) if text not in said]

    async def reconcile(self, draft: RecordDraft, batch: Sequence[Message], related: Sequence[Record]) -> Reconciliation:
        """Skip what the same session said in the same words; store everything else, also what revises an older record."""
        is_known = any(record.text.lower() == draft.text.lower() and record.session_id == batch[-1].session_id for record in related)
        return Reconciliation(action=ReconcileAction.SKIP if is_known else ReconcileAction.STORE)

    async def write_topics(self, desk: TopicDesk, records: Sequence[Record]) -> None:
        """Bring the tracks to what the topics of all records are now; those that are no longer chosen are dropped."""
        num_counted = self._topics.num_records
        if num_counted and (len(records) < num_counted or records[num_counted - 1].record_id != self._last_id):
            self._forget()  # records were merged: positions are others now
        self._count(records[self._topics.num_records :])
        chosen = {topic.stem: topic for topic in self._topics.choose(self._name_stems)}
        files: dict[str, str] = {}
        for track in desk.list_tracks():
            stem = next(iter(tokenize_words(track.title)), "")
            if stem not in chosen or stem in files:
                desk.drop_track(track.file_name)
            else:
                files[stem] = track.file_name
        for stem, topic in chosen.items():
            self._put_track(desk, topic, files.get(stem), records)
        if self._is_profile_stale:
            desk.request_profile()

    async def write_profile(self, profile: Profile, tracks: Sequence[Track], new_records: Sequence[Record], *, max_chars: int) -> ProfileDraft | None:
        """See `MemoryWriter`. At most MAX_PROFILE_CHARS, whatever the budget."""
        if not self._topics.num_records:
            self._count(self._before)
        self._count([record for record in new_records if number_of(record.record_id) > self._highest])
        self._is_profile_stale = False
        return self._standing.write(min(max_chars, MAX_PROFILE_CHARS))

    def _meet(self, message: Message) -> None:
        self._name_stems.update(tokenize_words(message.speaker))
        if message.role == "user":
            self.user_names.setdefault(message.speaker)

    def _forget(self) -> None:
        """Start counting anew."""
        self._topics, self._standing, self._shown, self._last_id, self._highest = TopicCounts(), StandingFacts(), {}, "", 0

    def _count(self, records: Sequence[Record]) -> None:
        for record in records:
            self._topics.add(record.text)
            self._is_profile_stale |= self._standing.add(record, self.user_names)
            self._last_id = record.record_id
            self._highest = max(self._highest, number_of(record.record_id))

    def _put_track(self, desk: TopicDesk, topic: Topic, file_name: str | None, records: Sequence[Record]) -> None:
        """Write a topic's track unless it shows all of it already."""
        state = (topic.title, topic.positions[-1])
        if file_name is not None and self._shown.get(file_name) == state:
            return
        parts = write_track(topic, records)
        track = desk.create_track(**parts) if file_name is None else desk.update_track(file_name, **parts)
        self._shown[track.file_name] = state


def build_pyramid(messages: Sequence[Message], writer: RulesWriter | None = None) -> tuple[tuple[Record, ...], Profile]:
    """Records and profile as a builder with this writer makes them of a whole history, without a bank on disk.

    Args:
        messages: in any order.
        writer: a new one; None for one with the settings that banks are built with.

    Returns:
        The records, as "rec:1", …, and the profile, empty where nothing is known.
    """
    writer, by_id = writer or RulesWriter(), {message.message_id: message for message in messages}
    records: list[Record] = []
    for session in split_sessions(messages):
        while session:
            size = cut_batch(session, writer.turns_per_flush)
            for draft in writer.draw(session[:size], records[-RECENT_RECORDS:]):
                records.append(build_record(f"rec:{len(records) + 1}", draft, draft.source_ids, by_id.get))
            session = session[size:]
    standing = StandingFacts()
    for record in records:
        standing.add(record, writer.user_names)
    found, times = {record.record_id: record for record in records}, [record.time for record in records]
    draft = standing.write(MAX_PROFILE_CHARS)
    return tuple(records), check_profile(draft, tracks=(), find_record=found.get, seen_times=times, max_chars=MAX_PROFILE_CHARS)
