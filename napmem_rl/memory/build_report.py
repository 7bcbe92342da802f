"""What happened in a construction, by cause: nothing is dropped, repaired or put off without being counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """What is counted. Names that begin with a level's noun are done work; the rest are repairs, refusals and failures."""

    MESSAGES_ADDED = "messages_added"
    BATCHES = "batches"  # flushed to extraction
    RECORDS_STORED = "records_stored"
    RECORDS_SKIPPED = "records_skipped"  # a draft that said nothing new
    RECORDS_UPDATED = "records_updated"
    RECORDS_MERGED = "records_merged"  # a record took in at least one other
    TOPIC_ROUNDS = "topic_rounds"
    PROFILES_WRITTEN = "profiles_written"
    PROFILES_KEPT = "profiles_kept"  # the writer saw no need for another

    MESSAGES_KNOWN = "messages_known"  # in the bank already
    MESSAGES_EMPTY = "messages_empty"  # neither text nor caption
    MESSAGES_FORGOTTEN = "messages_forgotten"  # the bank was made to forget them: not taken in again
    MESSAGES_LATE = "messages_late"  # older than what the bank held; kept, as a session of their own

    EXTRACTION_UNREADABLE = "extraction_unreadable"  # no records from this batch
    DRAFT_EMPTY = "draft_empty"  # dropped: no text
    DRAFT_BROKEN_TEXT = "draft_broken_text"  # dropped: not valid Unicode
    DRAFT_WITHOUT_SOURCE = "draft_without_source"  # dropped: it names no message of its batch
    DRAFT_SOURCE_LEFT_OUT = "draft_source_left_out"  # kept with those of its sources that are messages of its batch
    DRAFT_SHORTENED = "draft_shortened"
    DECISION_UNREADABLE = "decision_unreadable"  # stored instead
    DECISION_UNKNOWN_TARGET = "decision_unknown_target"  # left out; stored where no target was left
    DECISION_NO_TARGET = "decision_no_target"  # an update or merge of nothing: stored
    DECISION_MANY_TARGETS = "decision_many_targets"  # an update of several: the first alone was updated
    DECISION_TEXT_REPLACED = "decision_text_replaced"  # empty or broken: the draft's text instead
    DECISION_SHORTENED = "decision_shortened"

    TRACK_WRITES_REFUSED = "track_writes_refused"  # by the desk; the writer was told
    EXTRACTION_FAILED = "extraction_failed"  # put off
    TOPIC_ROUND_FAILED = "topic_round_failed"  # rolled back, put off
    PROFILE_FAILED = "profile_failed"  # the old one stays
    PROFILE_REFUSED = "profile_refused"  # failed validation; the old one stays


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingStep:
    """A step that is not done yet."""

    step: str  # e.g. "records of messages msg:5 to msg:9"
    attempts: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildReport:
    """One run of a builder over a bank."""

    bank_id: str
    version: str | None  # None where nothing was ever committed
    counts: Mapping[str, int]  # by Cause, in this run; what did not happen is absent
    pending: tuple[PendingStep, ...]

    @property
    def is_complete(self) -> bool:
        """Whether every step that was due is done."""
        return not self.pending

    def describe(self) -> str:
        """One line for people, e.g. ``bank ana 4f0c…: 12 messages added, 5 batches, …; nothing pending``."""
        counted = ", ".join(f"{number} {cause.replace('_', ' ')}" for cause, number in self.counts.items()) or "nothing to do"
        pending = "; ".join(f"{step.step} ({step.attempts} attempts: {step.reason})" for step in self.pending)
        return f"bank {self.bank_id} {self.version}: {counted}; pending: {pending}" if pending else f"bank {self.bank_id} {self.version}: {counted}"
