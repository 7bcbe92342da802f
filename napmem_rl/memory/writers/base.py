"""The seam between the construction of a memory and what writes its upper levels: a language model, or rules.

The builder (`napmem_rl.memory.builder`) decides when each method is called, checks what comes back and commits it; a writer decides what to say.
All methods raise LLMError where an endpoint failed after all retries: the step is then not done, and is tried again later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from napmem_rl.schema import Message, Profile, Record, RecordType, Track


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordDraft:
    """A record that a writer drew from a batch of messages; ids, time and session follow from its sources."""

    type: RecordType
    text: str
    source_ids: tuple[str, ...]  # ids of messages of the batch, at least one


class ReconcileAction(StrEnum):
    """What becomes of a drawn record beside the related ones that are there (NapMem appendix B)."""

    STORE = "store"
    SKIP = "skip"
    UPDATE = "update"
    MERGE = "merge"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reconciliation:
    """The decision about one draft. `text` and `type` are of the resulting record, for update and merge; None keeps the draft's."""

    action: ReconcileAction
    target_ids: tuple[str, ...] = ()  # none for store and skip, one for update, one or more for merge: the first keeps its id
    text: str | None = None
    type: RecordType | None = None


class TopicDesk(Protocol):
    """What a topic writer may do in one round; every write is checked, and refused with a readable PolicyOutputError that leaves all as it was."""

    new_records: Sequence[Record]  # created or revised since the last round, live ones

    def list_tracks(self) -> Sequence[Track]:
        """All tracks as they are now, in this round."""
        ...

    def read_track(self, file_name: str) -> Track:
        """One track. Raises PolicyOutputError for an unknown name."""
        ...

    def create_track(self, *, title: str, summary: str, narrative: str) -> Track:
        """A new track; its record links are the [rec:…] of its text. Raises PolicyOutputError: no or unknown links, too many tracks, bad text."""
        ...

    def update_track(self, file_name: str, *, title: str | None = None, summary: str | None = None, narrative: str | None = None) -> Track:
        """A track with these parts replaced."""
        ...

    def merge_tracks(self, file_names: Sequence[str], *, title: str, summary: str, narrative: str) -> Track:
        """One track in place of several; the first one's file name stays."""
        ...

    def edit_track(self, file_name: str, *, old: str, new: str) -> Track:
        """Replace the only occurrence of `old` in the narrative. Raises PolicyOutputError where it occurs never or more than once."""
        ...

    def drop_track(self, file_name: str) -> None:
        """Remove a track that no longer holds."""
        ...

    def request_profile(self) -> None:
        """Ask for a refresh of the profile after this round."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileDraft:
    """A profile's text; its sources are the [rec:…] and [trk:…] in it."""

    text: str


class MemoryWriter(Protocol):
    """What writes records, tracks and profile."""

    name: str  # kept in the bank, e.g. "rules" or "llm:<model>"
    turns_per_flush: int | None  # complete turns of a session that are drawn from at once; None: as the flush schedule says (NapMem appendix B)
    num_related: int  # live records that `reconcile` wants to see beside a draft, at most; 0: none are searched for, and every draft is stored

    def resume(self, messages: Sequence[Message], records: Sequence[Record]) -> None:
        """Called once, before anything else, with all messages that records were drawn from, and all live records; nothing to do where no counts are kept."""
        ...

    async def extract_records(self, batch: Sequence[Message], recent: Sequence[Record]) -> Sequence[RecordDraft]:
        """Records that the batch supports. `recent`: the newest live records, as background only."""
        ...

    async def reconcile(self, draft: RecordDraft, batch: Sequence[Message], related: Sequence[Record]) -> Reconciliation:
        """What to do with a draft; `related`: live records found for it, best first. Not called where there are none: the draft is stored."""
        ...

    async def write_topics(self, desk: TopicDesk, records: Sequence[Record]) -> None:
        """One round of topic writing; `records`: all live records. What was written when it raises LLMError is dropped as a whole."""
        ...

    async def write_profile(self, profile: Profile, tracks: Sequence[Track], new_records: Sequence[Record], *, max_chars: int) -> ProfileDraft | None:
        """The revised profile within `max_chars`; None keeps the old one. `new_records`: since the last profile; empty text is a valid empty profile."""
        ...
