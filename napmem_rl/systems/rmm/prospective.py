"""Prospective reflection: at a session's end, topic memories of each speaker, added to the bank or merged into what is there (RMM, arXiv 2503.08026).

A topic memory is a record of the bank: its text is the summary, which searches look at; its sources are the turns it rests on, which the answer gets to see
(`retrospective`). To add is to store a record; to merge is an update: the text is rewritten, references are united, and what the record was before stays in
the bank's history. `build_bank`, `grow_bank` and `PyramidBuilder` drive these writers as they do any other (order, commits, resuming, counted repairs).

Deviations, and choices where the paper is silent: a merge names one known memory; a session longer than `max_input_chars` is read in parts; "no trait" is an
empty list; tracks and profile are left to other writers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from napmem_rl.errors import PolicyOutputError
from napmem_rl.llm.base import ChatClient
from napmem_rl.llm.structured import Fault, FaultCause, FaultCounts, ask_object
from napmem_rl.memory.writers.base import ProfileDraft, ReconcileAction, Reconciliation, RecordDraft, TopicDesk
from napmem_rl.memory.writers.rules_exchanges import find_exchanges
from napmem_rl.memory.writers.rules_words import find_content_stems
from napmem_rl.memory.writers.sentences import cut_at_word
from napmem_rl.schema import Message, Profile, Record, RecordType, Track
from napmem_rl.systems.rmm import prompts

WHOLE_SESSION = 100_000  # turns: whatever came of a session is drawn from at once, at its end
NUM_SIMILAR = 5  # memories that a merge chooses among; ours
JOIN_SHARE = 0.5  # content words of the shorter of two texts that make them one topic, offline; ours
MIN_SHARED = 2  # words


@dataclass(frozen=True, kw_only=True, slots=True)
class ProspectiveConfig:
    """What a request may hold."""

    max_reply_tokens: int = 2048
    max_input_chars: int = 16_000  # of turns in one request
    max_summary_chars: int = 400
    max_memories: int = 20  # that one request may write


class _TopicMemoriesAlone:
    """What both writers share: whole sessions, and neither tracks nor a profile."""

    turns_per_flush = WHOLE_SESSION
    num_related = NUM_SIMILAR

    def resume(self, messages: Sequence[Message], records: Sequence[Record]) -> None:
        """Nothing is kept from step to step."""

    async def write_topics(self, desk: TopicDesk, records: Sequence[Record]) -> None:
        """No tracks."""

    async def write_profile(self, profile: Profile, tracks: Sequence[Track], new_records: Sequence[Record], *, max_chars: int) -> ProfileDraft | None:
        """The old one stays."""
        return None


class TopicMemoryWriter(_TopicMemoriesAlone):
    """A `MemoryWriter` that asks a language model. `counts`: what was asked, repaired and given up."""

    def __init__(self, client: ChatClient, config: ProspectiveConfig = ProspectiveConfig()) -> None:
        self.name = f"rmm:{client.name}"
        self.client = client
        self.counts = FaultCounts()
        self._config = config

    async def extract_records(self, batch: Sequence[Message], recent: Sequence[Record]) -> list[RecordDraft]:
        """Topic memories of every speaker of the session, one request for each speaker and part.

        Raises:
            PolicyOutputError: no reply could be used.
            LLMError: the endpoint failed.
        """
        asked = [(speaker, part) for part in self._split(batch) for speaker in dict.fromkeys(message.speaker for message in part)]
        found = [await self._extract(speaker, part) for speaker, part in asked]
        faults = [one for one in found if isinstance(one, Fault)]
        if faults and len(faults) == len(found):
            raise PolicyOutputError.of(f"topic memories of {batch[0].message_id} to {batch[-1].message_id}", faults[0].problem)
        return [draft for one in found if not isinstance(one, Fault) for draft in one]

    async def reconcile(self, draft: RecordDraft, batch: Sequence[Message], related: Sequence[Record]) -> Reconciliation:
        """Add, or merge into one of `related`. Raises PolicyOutputError where no reply could be used: the memory is then added."""
        known = [{"label": f"r{number}", "time": record.time, "summary": record.text} for number, record in enumerate(related, start=1)]
        decision = await ask_object(
            self.client,
            prompts.build_messages(prompts.MERGE, {"new": draft.text, "known": known}),
            step="merge",
            schema=prompts.build_merge_schema(len(related), max_chars=self._config.max_summary_chars),
            read=lambda value: _read_decision(value["decision"], related),
            counts=self.counts,
            max_tokens=self._config.max_reply_tokens,
        )
        if isinstance(decision, Fault):
            raise PolicyOutputError.of(f"decision about a memory of {', '.join(draft.source_ids)}", decision.problem)
        return decision

    async def _extract(self, speaker: str, part: Sequence[Message]) -> list[RecordDraft] | Fault:
        config = self._config
        return await ask_object(
            self.client,
            prompts.build_messages(prompts.EXTRACT, {"speaker": speaker, "turns": [show_turn(f"t{n}", one) for n, one in enumerate(part, start=1)]}),
            step="extract",
            schema=prompts.build_extract_schema(len(part), max_memories=config.max_memories, max_chars=config.max_summary_chars),
            read=lambda value: _read_memories(value, part),
            counts=self.counts,
            max_tokens=config.max_reply_tokens,
        )

    def _split(self, batch: Sequence[Message]) -> list[list[Message]]:
        """The session in parts of at most `max_input_chars`; a longer turn is a part of its own."""
        parts: list[list[Message]] = []
        room = 0
        for message in batch:
            size = len(message.text) + len(message.caption or "")
            if not parts or size > room:
                parts.append([])
                room = self._config.max_input_chars
            parts[-1].append(message)
            room -= size
        return parts


class OfflineTopicWriter(_TopicMemoriesAlone):
    """A `MemoryWriter` without a language model: exchanges that share their words are one topic, within a session and across."""

    name = "rmm-rules"

    async def extract_records(self, batch: Sequence[Message], recent: Sequence[Record]) -> list[RecordDraft]:
        """The topics of a session, in order of their first turn."""
        topics: list[RecordDraft] = []
        for exchange in find_exchanges(batch):
            index = next((index for index, topic in enumerate(topics) if is_one_topic(topic.text, exchange.draft.text)), None)
            if index is None:
                topics.append(exchange.draft)
            else:
                topic = topics[index]
                topics[index] = replace(topic, text=join_summaries(topic.text, exchange.draft.text), source_ids=topic.source_ids + exchange.draft.source_ids)
        return topics

    async def reconcile(self, draft: RecordDraft, batch: Sequence[Message], related: Sequence[Record]) -> Reconciliation:
        """Merge into the most related memory of the same topic."""
        target = next((record for record in related if is_one_topic(record.text, draft.text)), None)
        if target is None:
            return Reconciliation(action=ReconcileAction.STORE)
        return Reconciliation(action=ReconcileAction.UPDATE, target_ids=(target.record_id,), text=join_summaries(target.text, draft.text))


def show_turn(label: str, message: Message) -> dict[str, str]:
    """A turn as a model reads it."""
    shown = {"label": label, "time": message.time, "speaker": message.speaker, "text": message.text}
    return shown | ({"image": message.caption} if message.caption else {})


def is_one_topic(first: str, second: str) -> bool:
    """Whether two texts share so many content words, at least MIN_SHARED and JOIN_SHARE of the shorter one's, that they are of one topic."""
    words = find_content_stems(first), find_content_stems(second)
    shared = len(words[0] & words[1])
    return shared >= MIN_SHARED and shared >= JOIN_SHARE * min(map(len, words))


def join_summaries(old: str, new: str, *, max_chars: int = ProspectiveConfig().max_summary_chars) -> str:
    """Both texts, the newer one last and never cut in favour of the older; one alone where it holds all words of the other."""
    old_words, new_words = find_content_stems(old), find_content_stems(new)
    if old_words <= new_words:
        return cut_at_word(new, max_chars)
    if new_words <= old_words:
        return cut_at_word(old, max_chars)
    room = max_chars - len(new) - 1
    return cut_at_word(f"{cut_at_word(old, room)} {new}" if room > 0 else new, max_chars)


def _read_memories(value: dict[str, Any], part: Sequence[Message]) -> list[RecordDraft] | Fault:
    """Drafts of an object that fits the schema."""
    ids = {f"t{number}": message.message_id for number, message in enumerate(part, start=1)}
    drafts = []
    for position, memory in enumerate(value["memories"]):
        summary = " ".join(memory["summary"].split())
        if not summary:
            return Fault(FaultCause.CONTENT, f"the summary of memory {position} is blank")
        source_ids = tuple(dict.fromkeys(ids[label] for label in memory["turns"]))
        drafts.append(RecordDraft(type=RecordType.FACT, text=summary, source_ids=source_ids))
    return drafts


def _read_decision(value: dict[str, Any], related: Sequence[Record]) -> Reconciliation | Fault:
    """The decision of an object that fits the schema."""
    if value["action"] == "add":
        return Reconciliation(action=ReconcileAction.STORE)
    summary = " ".join(value["summary"].split())
    if not summary:
        return Fault(FaultCause.CONTENT, "the summary of the merge is blank")
    target = related[int(value["target"][1:]) - 1]
    return Reconciliation(action=ReconcileAction.UPDATE, target_ids=(target.record_id,), text=summary)
