"""A memory writer that says what the messages tell it to, and histories for it: what construction does with a writer's words is then worked out by hand.

Each line of a user's message is one draft: ``add tea green`` is stored, ``set city Oslo`` updates the first related record of the same key, ``join trip
Rome`` merges all related records of its key, and the same words again are skipped. ``bad:…`` lines are what a model gets wrong. There is one track a key, the
profile lists the tracks. All of it depends on the arguments alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from napmem_rl.errors import LLMError, PolicyOutputError
from napmem_rl.memory.writers.base import ProfileDraft, ReconcileAction, Reconciliation, RecordDraft, TopicDesk
from napmem_rl.schema import Message, Profile, Record, RecordType, Track


def say(number: int, text: str = "", *, session: str = "s1", time: str | None = None, role: str = "user", speaker: str = "Ana") -> Message:
    """Message msg:<number>, a minute after the one before it, on 2024-03-01 unless told otherwise."""
    time = time or f"2024-03-01T{10 + number // 60:02d}:{number % 60:02d}:00"
    return Message(message_id=f"msg:{number}", session_id=session, role=role, speaker=speaker if role == "user" else "bot", text=text or "ok", time=time)


def talk(*texts: str, first: int = 1, session: str = "s1", date: str = "2024-03-01") -> list[Message]:
    """One complete turn a text: the user says it, the assistant says ok. Two messages a turn, from msg:<first> on; a minute a turn, later for higher ids."""
    messages = []
    for number, text in enumerate(texts, start=first // 2):
        for role in ("user", "assistant"):
            position = first + len(messages)
            time = f"{date}T{10 + number // 60:02d}:{number % 60:02d}:{30 * (role == 'assistant'):02d}"
            messages.append(say(position, text if role == "user" else "", session=session, time=time, role=role))
    return messages


class ScriptedWriter:
    """See the module. Attributes: `calls`, every call as (step, what it was about); `faults`, by number of a call (from 0): raised in its place."""

    name = "scripted"
    turns_per_flush: int | None = None
    num_related = 10

    def __init__(self, *, before_call: Callable[[str], None] | None = None, asks_for_profile: bool = False) -> None:
        self.calls: list[tuple[str, str]] = []
        self.resumed: tuple[int, int] | None = None
        self.asks_for_profile = asks_for_profile
        self.keeps_profile = False
        self._before_call = before_call

    def resume(self, messages: Sequence[Message], records: Sequence[Record]) -> None:
        self.resumed = (len(messages), len(records))

    async def extract_records(self, batch: Sequence[Message], recent: Sequence[Record]) -> Sequence[RecordDraft]:
        await self._called("extract", " ".join(message.message_id.removeprefix("msg:") for message in batch))
        lines = [(message, line) for message in batch if message.role == "user" for line in message.text.splitlines()]
        return [draft for message, line in lines if (draft := _draft_line(message, line))]

    async def reconcile(self, draft: RecordDraft, batch: Sequence[Message], related: Sequence[Record]) -> Reconciliation:
        await self._called("reconcile", draft.text)
        said = [line for message in batch if message.message_id in draft.source_ids for line in message.text.splitlines()]
        verb = next((line.split()[0] for line in said if line.split()[1:] == draft.text.split()), "add")
        if verb == "bad:decision":
            raise PolicyOutputError("no decision")
        if verb.startswith("bad:"):
            return _decide_badly(verb, related)
        same_key = [record for record in related if record.text.split()[:1] == draft.text.split()[:1]]
        if any(record.text == draft.text for record in same_key):
            return Reconciliation(action=ReconcileAction.SKIP)
        if verb == "set" and same_key:
            return Reconciliation(action=ReconcileAction.UPDATE, target_ids=(same_key[0].record_id,))
        if verb == "join" and same_key:
            chosen = sorted(same_key, key=lambda record: int(record.record_id[4:]))
            values = sorted({value for record in (*chosen, draft) for value in record.text.split()[1:]})
            text = " ".join((draft.text.split()[0], *values))
            return Reconciliation(action=ReconcileAction.MERGE, target_ids=tuple(record.record_id for record in chosen), text=text, type=RecordType.PREFERENCE)
        return Reconciliation(action=ReconcileAction.STORE)

    async def write_topics(self, desk: TopicDesk, records: Sequence[Record]) -> None:
        await self._called("topics", " ".join(record.record_id.removeprefix("rec:") for record in desk.new_records))
        live = list(records)
        for key in dict.fromkeys(record.text.split()[0] for record in desk.new_records):
            if key == "notopic":
                continue
            about = [record for record in live if record.text.split()[0] == key]
            narrative = "\n".join(f"- {record.text} [{record.record_id}]" for record in about)
            track = next((track for track in desk.list_tracks() if track.title == key), None)
            if track is None:
                desk.create_track(title=key, summary=f"{len(about)} records", narrative=narrative)
            else:
                desk.update_track(track.file_name, summary=f"{len(about)} records", narrative=narrative)
            await self._called("track", key)
        if self.asks_for_profile:
            desk.request_profile()

    async def write_profile(self, profile: Profile, tracks: Sequence[Track], new_records: Sequence[Record], *, max_chars: int) -> ProfileDraft | None:
        await self._called("profile", " ".join(record.record_id.removeprefix("rec:") for record in new_records))
        if self.keeps_profile:
            return None
        lines = [f"- {track.title} [{track.track_id}]" for track in tracks] or [f"- {record.text} [{record.record_id}]" for record in new_records[:3]]
        return ProfileDraft(text="\n".join(lines))

    def steps(self, *names: str) -> list[tuple[str, str]]:
        """The calls of these steps, in order."""
        return [call for call in self.calls if call[0] in names]

    async def _called(self, step: str, about: str) -> None:
        await asyncio.sleep(0)
        if self._before_call is not None:
            self._before_call(step)
        self.calls.append((step, about))


class Faults:
    """Raises at the calls of a step that it is told of, counted from 1 over all writers that it is given to."""

    def __init__(self, step: str, *numbers: int, error: Callable[[str], Exception] = LLMError) -> None:
        self._step, self._numbers, self._error, self._count = step, numbers, error, 0

    def __call__(self, step: str) -> None:
        self._count += step == self._step
        if step == self._step and self._count in self._numbers:
            raise self._error(f"{step} {self._count} is down")


def _draft_line(message: Message, line: str) -> RecordDraft | None:
    verb, _, text = line.partition(" ")
    draft = RecordDraft(type=RecordType.FACT, text=text, source_ids=(message.message_id,))
    match verb:
        case "add" | "set" | "join":
            return draft
        case "bad:empty":
            return RecordDraft(type=RecordType.FACT, text="  ", source_ids=draft.source_ids)
        case "bad:surrogate":
            return RecordDraft(type=RecordType.FACT, text="\ud800", source_ids=draft.source_ids)
        case "bad:long":
            return RecordDraft(type=RecordType.FACT, text=f"{text} " + "word " * 1000, source_ids=draft.source_ids)
        case "bad:source":
            return RecordDraft(type=RecordType.FACT, text=text, source_ids=("msg:999",))
        case "bad:half-source":
            return RecordDraft(type=RecordType.FACT, text=text, source_ids=(message.message_id, "msg:999"))
        case _:
            return draft if verb.startswith("bad:") else None


def _decide_badly(verb: str, related: Sequence[Record]) -> Reconciliation:
    shown = tuple(record.record_id for record in related)
    match verb:
        case "bad:update-unknown":
            return Reconciliation(action=ReconcileAction.UPDATE, target_ids=("rec:999",))
        case "bad:merge-unknown":
            return Reconciliation(action=ReconcileAction.MERGE, target_ids=("rec:999", shown[0]), text="tea merged")
        case "bad:update-none":
            return Reconciliation(action=ReconcileAction.UPDATE)
        case "bad:update-many":
            return Reconciliation(action=ReconcileAction.UPDATE, target_ids=shown)
        case "bad:update-blank":
            return Reconciliation(action=ReconcileAction.UPDATE, target_ids=shown[:1], text=" ")
        case "bad:update-long":
            return Reconciliation(action=ReconcileAction.UPDATE, target_ids=shown[:1], text="tea " + "word " * 1000)
        case _:
            return Reconciliation(action=ReconcileAction.STORE)
