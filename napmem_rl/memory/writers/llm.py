"""A memory writer that asks a language model, over any OpenAI-compatible endpoint (NapMem section 3.2 and appendix B; the model is the paper's "agent").

Four steps, each with a prompt of its own (`llm_prompts`) and a reply that must be one JSON object of a given form: records are extracted from new dialogue,
each is reconciled with the related records, topic files are written in a loop of actions (`llm_topics`), the profile is revised.

A reply that cannot be used (prose, broken JSON, an id or type that does not exist, nothing, cut at the length limit; see `llm.structured`) is answered with
its problem once. If the second one is no better, the step is given up and counted in `counts`: a batch then yields no records (its messages stay in the raw
level), a draft is stored by the builder, a topic round ends with what it had written, or is put off where that is nothing, the old profile stays. Nothing is
filled in.

Decisions where the paper is silent, and deviations:

- Messages and related records reach the model under labels (m1, r1), not ids. Weekdays are given beside times, so that "last Friday" can be reckoned.
- A batch longer than `max_input_chars` is extracted in parts; a message longer than `max_message_chars` is shown cut, which is counted. The raw level has it
  whole.
- Each draft is reconciled by a request of its own, with the records that the builder found for it (the paper does not say how many it decides at once).
- Topic writing is a loop of JSON actions rather than native tool calls: it runs on endpoints without a tool parser, and every action is checked by one schema.
  More than `max_topic_records` new records are taken in several loops over the same files.
- The topic writer sees the new records and what it reads; older records that no file links to are not shown again.
- A record's metadata beyond the fields of `schema.Record` ("other type-specific metadata") is not asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from napmem_rl.errors import PolicyOutputError
from napmem_rl.llm.base import ChatClient
from napmem_rl.llm.structured import Fault, FaultCause, FaultCounts, ask_object
from napmem_rl.memory.pyramid import find_links
from napmem_rl.memory.writers import llm_prompts as prompts
from napmem_rl.memory.writers.base import ProfileDraft, ReconcileAction, Reconciliation, RecordDraft, TopicDesk
from napmem_rl.memory.writers.llm_topics import TopicLimits, write_topics
from napmem_rl.schema import Message, Profile, Record, RecordType, Track

CLIPPED = "extract: message shown cut"


@dataclass(frozen=True, kw_only=True, slots=True)
class LLMWriterConfig:
    """What a request may hold. The defaults want a model with a context of 16,000 tokens."""

    max_reply_tokens: int = 2048  # thinking included
    max_input_chars: int = 16_000  # of messages in one request
    max_message_chars: int = 8_000  # of one message
    max_record_chars: int = 400
    max_records: int = 20  # that one request may write
    max_known: int = 10  # recent records shown as background
    max_profile_records: int = 40  # new ones shown to the profile writer, the newest
    topics: TopicLimits = TopicLimits()


class LLMWriter:
    """A `MemoryWriter` over a chat client.

    Attributes: `name`, `client`, `counts` (what was asked, repaired and given up, over the writer's life).
    """

    turns_per_flush = None
    num_related = 8

    def __init__(self, client: ChatClient, config: LLMWriterConfig = LLMWriterConfig()) -> None:
        self.name = f"llm:{client.name}"
        self.client = client
        self.counts = FaultCounts()
        self._config = config

    def resume(self, messages: Sequence[Message], records: Sequence[Record]) -> None:
        """Nothing is kept from step to step."""

    async def extract_records(self, batch: Sequence[Message], recent: Sequence[Record]) -> Sequence[RecordDraft]:
        """See `MemoryWriter`. Drafts of a part whose replies could not be used are missing, and counted.

        Raises:
            PolicyOutputError: this was so of all parts.
        """
        config = self._config
        known = [_show_record(record) for record in recent[-config.max_known :]]
        drafts: list[RecordDraft] = []
        faults: list[Fault] = []
        parts = self._split(batch)
        for part in parts:
            data = {"known": known, "messages": [self._show_message(number, message) for number, message in enumerate(part, start=1)]}
            found = await ask_object(
                self.client,
                prompts.build_messages(prompts.EXTRACT, data),
                step="extract",
                schema=prompts.build_extract_schema(len(part), max_records=config.max_records, max_chars=config.max_record_chars),
                read=lambda value, part=part: _read_drafts(value, part),
                counts=self.counts,
                max_tokens=config.max_reply_tokens,
            )
            if isinstance(found, Fault):
                faults.append(found)
            else:
                drafts += found
        if len(faults) == len(parts):
            raise PolicyOutputError.of(f"records of {batch[0].message_id} to {batch[-1].message_id}", faults[0].problem)
        return drafts

    async def reconcile(self, draft: RecordDraft, batch: Sequence[Message], related: Sequence[Record]) -> Reconciliation:
        """See `MemoryWriter`.

        Raises:
            PolicyOutputError: two replies in a row that cannot be used.
        """
        said = [message for message in batch if message.message_id in draft.source_ids]
        data = {
            "new": {"type": str(draft.type), "text": draft.text},
            "said": [self._show_message(number, message) for number, message in enumerate(said, start=1)],
            "related": [{"label": f"r{number}", **_show_record(record)} for number, record in enumerate(related, start=1)],
        }
        decision = await ask_object(
            self.client,
            prompts.build_messages(prompts.RECONCILE, data),
            step="reconcile",
            schema=prompts.build_reconcile_schema(len(related), max_chars=self._config.max_record_chars),
            read=lambda value: _read_decision(value["decision"], related),
            counts=self.counts,
            max_tokens=self._config.max_reply_tokens,
        )
        if isinstance(decision, Fault):
            raise PolicyOutputError.of(f"decision about a record of {', '.join(draft.source_ids)}", decision.problem)
        return decision

    async def write_topics(self, desk: TopicDesk, records: Sequence[Record]) -> None:
        """See `MemoryWriter`; ends early, with what was written so far, where steps run out or replies cannot be used.

        Raises:
            PolicyOutputError: two replies in a row that could not be used, and nothing written.
        """
        limits = self._config.topics
        new, before = list(desk.new_records), tuple(desk.list_tracks())
        for start in range(0, len(new), limits.max_records):
            shown = [{"id": record.record_id, **_show_record(record)} for record in new[start : start + limits.max_records]]
            fault = await write_topics(self.client, desk, shown, limits=limits, counts=self.counts, max_tokens=self._config.max_reply_tokens)
            if fault is not None and tuple(desk.list_tracks()) == before:
                raise PolicyOutputError.of("topics", fault.problem)

    async def write_profile(self, profile: Profile, tracks: Sequence[Track], new_records: Sequence[Record], *, max_chars: int) -> ProfileDraft | None:
        """See `MemoryWriter`.

        Raises:
            PolicyOutputError: two replies in a row that could not be used.
        """
        newest = new_records[-self._config.max_profile_records :]
        links = {*profile.source_ids, *(track.track_id for track in tracks), *(record.record_id for record in newest)}
        data = {
            "profile": profile.text,
            "topics": [{"id": track.track_id, "title": track.title, "summary": track.summary, "newest": track.time} for track in tracks],
            "new_records": [{"id": record.record_id, **_show_record(record)} for record in newest],
        }
        draft = await ask_object(
            self.client,
            prompts.build_messages(prompts.PROFILE.replace("MAX_CHARS", str(max_chars)), data),
            step="profile",
            schema=prompts.build_profile_schema(max_chars=max_chars),
            read=lambda value: _read_profile(value["decision"], links),
            counts=self.counts,
            max_tokens=self._config.max_reply_tokens,
        )
        if isinstance(draft, Fault):
            raise PolicyOutputError.of("profile", draft.problem)
        return draft

    def _split(self, batch: Sequence[Message]) -> list[list[Message]]:
        """The batch in parts of at most `max_input_chars`; a longer message is a part of its own."""
        parts: list[list[Message]] = []
        room = 0
        for message in batch:
            size = min(len(message.text), self._config.max_message_chars) + len(message.caption or "")
            if not parts or size > room:
                parts.append([])
                room = self._config.max_input_chars
            parts[-1].append(message)
            room -= size
        return parts

    def _show_message(self, number: int, message: Message) -> dict[str, Any]:
        """A message as the model reads it, under the label m<number>."""
        text, limit = message.text, self._config.max_message_chars
        if len(text) > limit:
            self.counts.repairs[CLIPPED] += 1
            text = f"{text[:limit]} … ({len(text) - limit} more characters are not shown)"
        shown = {"label": f"m{number}", "time": message.time, "weekday": _find_weekday(message.time), "role": message.role, "speaker": message.speaker}
        return shown | {"text": text} | ({"image": message.caption} if message.caption else {})


def _show_record(record: Record) -> dict[str, str]:
    return {"time": record.time, "type": str(record.type), "text": record.text}


def _find_weekday(time: str) -> str:
    """The weekday of a bank's time; "" for a time that is none, which a bank refuses anyway."""
    try:
        return date.fromisoformat(time[:10]).strftime("%A")
    except ValueError:
        return ""


def _read_drafts(value: dict[str, Any], part: Sequence[Message]) -> list[RecordDraft] | Fault:
    """Drafts of an object that fits the schema; their labels are known to be shown ones."""
    ids = {f"m{number}": message.message_id for number, message in enumerate(part, start=1)}
    drafts = []
    for position, record in enumerate(value["records"]):
        text = " ".join(record["text"].split())
        if not text:
            return Fault(FaultCause.CONTENT, f"the text of record {position} is blank")
        source_ids = tuple(dict.fromkeys(ids[label] for label in record["sources"]))
        drafts.append(RecordDraft(type=RecordType(record["type"]), text=text, source_ids=source_ids))
    return drafts


def _read_decision(value: dict[str, Any], related: Sequence[Record]) -> Reconciliation | Fault:
    """The decision of an object that fits the schema."""
    ids = {f"r{number}": record.record_id for number, record in enumerate(related, start=1)}
    action = ReconcileAction(value["action"])
    if action in (ReconcileAction.STORE, ReconcileAction.SKIP):
        return Reconciliation(action=action)
    text = " ".join(value["text"].split())
    if not text:
        return Fault(FaultCause.CONTENT, f"the text of the {action} is blank")
    labels = [value["target"]] if action is ReconcileAction.UPDATE else value["targets"]
    targets = tuple(dict.fromkeys(ids[label] for label in labels))
    return Reconciliation(action=action, target_ids=targets, text=text, type=RecordType(value["type"]))


def _read_profile(value: dict[str, Any], links: set[str]) -> ProfileDraft | None | Fault:
    """The revised profile; None to keep the old one."""
    if value["action"] == "keep":
        return None
    text = value["text"].strip()
    found = find_links(text)
    unknown = [link for link in found if link not in links]
    if unknown:
        return Fault(FaultCause.UNKNOWN_ID, f"the profile links to {', '.join(unknown[:5])}, which was not shown")
    if text and not found:
        return Fault(FaultCause.CONTENT, "no line of the profile links to what it rests on, as in [rec:7]")
    return ProfileDraft(text=text)
