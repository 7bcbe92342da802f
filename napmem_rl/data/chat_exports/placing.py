"""From conversations to sessions of messages that a bank can hold: ids, times, texts that can be written, repeats merged."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from napmem_rl.data.chat_exports.conversation import Conversation, Said
from napmem_rl.data.chat_exports.moments import cut_at_gaps, settle_times
from napmem_rl.data.chat_exports.tally import Merged, Note, Tally
from napmem_rl.data.chat_exports.values import clean_text
from napmem_rl.schema import Message

GAP_HOURS = 8.0  # of silence, after which another session begins
_UNIQUE_ID = re.compile(r"[0-9A-Za-z_-]{16,100}")  # long enough to be the only one of its kind, as UUIDs are
_SHORT_ID = re.compile(r"[0-9A-Za-z._-]{1,100}")
_HASH_BYTES = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedSession:
    """Messages of one session in their order, each with its place in the export."""

    time: str  # of the first one
    messages: tuple[Message, ...]
    places: tuple[str, ...]


@dataclass(slots=True)
class Placing:
    """Places the conversations of one import; knows the ids that it gave, so that what comes twice is merged."""

    key: bytes  # of the bank, random: hashes of a content reveal nothing of it to whoever does not have the bank
    tally: Tally
    gap_hours: float = GAP_HOURS
    _given: dict[str, int] = field(default_factory=dict)  # message id -> hash of what it says

    def place(self, conversation: Conversation) -> Iterator[PlacedSession]:
        """The sessions of a conversation, oldest first. A session without a message of its own is left away."""
        times = settle_times(conversation, self.tally)
        starts = cut_at_gaps(times, self.gap_hours * 3600)
        base = self._name_session(conversation)
        stops = [*starts[1:], len(times)] if starts else []
        for number, (start, stop) in enumerate(zip(starts, stops, strict=True), start=1):
            name = f"{base}@{times[start][:16]}" if conversation.is_chat else base if number == 1 else f"{base}#{number}"
            placed = [self._place(said, time, name, conversation.key) for said, time in zip(conversation.said[start:stop], times[start:stop], strict=True)]
            kept = [(message, said.where) for message, said in zip(placed, conversation.said[start:stop], strict=True) if message is not None]
            if kept:
                yield PlacedSession(time=times[start], messages=tuple(one for one, _ in kept), places=tuple(where for _, where in kept))

    def _name_session(self, conversation: Conversation) -> str:
        if conversation.key is not None and _SHORT_ID.fullmatch(conversation.key):
            return conversation.key
        identity = conversation.identity if conversation.key is None else (conversation.identity[0], conversation.key)
        return f"{conversation.identity[0]}-{self._hash(identity)[:12]}"

    def _place(self, said: Said, time: str, session_id: str, key: str | None) -> Message | None:
        """The message; None where it is there already, which is counted."""
        text, is_broken = clean_text(said.text)
        speaker, _ = clean_text(said.speaker)
        message_id = self._name_message(said, key)
        content = hash((said.role, text))
        base, number = message_id, 1
        while (earlier := self._given.get(message_id)) is not None:
            if earlier == content:
                self.tally.merge(Merged.SAME_INSTRUCTIONS if said.is_instructions else Merged.SAME_MESSAGE, said.where)
                return None
            number += 1
            message_id = f"{base}.v{number}"
        self._given[message_id] = content
        if is_broken:
            self.tally.note(Note.BROKEN_CHARACTERS, said.where)
        return Message(message_id=message_id, session_id=session_id, role=said.role, speaker=speaker, text=text, time=time)

    def _name_message(self, said: Said, key: str | None) -> str:
        """The export's own id where it is the only one of its kind, with that of its conversation where it is short, else a hash."""
        if said.own_id is None:
            return f"msg:h{self._hash(said.identity)}"
        if _UNIQUE_ID.fullmatch(said.own_id):
            return f"msg:{said.own_id}"
        if key is not None and _SHORT_ID.fullmatch(said.own_id) and _SHORT_ID.fullmatch(key):
            return f"msg:{key}.{said.own_id}"
        return f"msg:h{self._hash((*said.identity[:2], said.own_id))}"

    def _hash(self, parts: Sequence[str]) -> str:
        content = "\x1f".join(parts).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(content, key=self.key, digest_size=_HASH_BYTES).hexdigest()
