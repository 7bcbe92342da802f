"""One conversation as a list of messages in an object, as OpenAI's and ShareGPT's files have it: `role` or `from`, `content` or `value`, rarely times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from napmem_rl.data.chat_exports.conversation import Conversation, Said
from napmem_rl.data.chat_exports.parts import read_parts, strip_html
from napmem_rl.data.chat_exports.roles import Party, find_party, name_speaker
from napmem_rl.data.chat_exports.tally import LeftOut, LostConversation, Note, Tally
from napmem_rl.data.chat_exports.values import as_id, as_object, as_text, read_moment

_ROLES = ("role", "from", "sender", "author", "speaker", "user")
_CONTENTS = ("content", "value", "text", "markdown", "message")
_TIMES = ("timestamp", "time", "created_at", "create_time", "created", "date")
_KEYS = ("conversation_id", "id", "uuid", "session_id", "custom_id")
_NUM_IDENTIFYING = 2  # first messages that tell a conversation without an id


def read_row(row: Mapping[str, Any], messages: Sequence[Any], format_name: str, where: str, tally: Tally, user: str | None) -> Conversation | None:
    """One conversation; None where it has no messages, which is counted. See `chatgpt.read_conversation`.

    Example: ``read_row(row, row["messages"], "openai_jsonl", "chats.jsonl, line 3", tally, "Ana")``
    """
    if not messages:
        tally.lose_conversation(LostConversation.EMPTY, where)
        return None
    tally.num_conversations += 1
    tally.read_message(len(messages))
    key = next((found for name in _KEYS if (found := as_id(row.get(name))) is not None), None)
    said = [_read_message(message, f"{where}, message {number}", tally, user) for number, message in enumerate(messages, start=1)]
    first = [part for one in [one for one in said if one is not None][:_NUM_IDENTIFYING] for part in (one.role, one.text)]
    base = (format_name, *((key,) if key is not None else first))
    placed = tuple(_place(one, (*base, str(number))) for number, one in enumerate(said, start=1) if one is not None)
    return Conversation(key=key, identity=base, said=placed, time=next((found for name in _TIMES if (found := read_moment(row.get(name))[0])), None))


def _place(said: Said, base: tuple[str, ...]) -> Said:
    return replace(said, identity=(*base, said.role, said.text))


def _read_message(message: Any, where: str, tally: Tally, user: str | None) -> Said | None:
    """One message; None where it is left out, which is counted."""
    if not isinstance(message, dict):
        tally.leave_out(LeftOut.NOT_A_MESSAGE, where)
        return None
    role = next((message[name] for name in _ROLES if message.get(name) is not None), None)
    role = as_object(role).get("role", role) if isinstance(role, dict) else role
    party = find_party(role)
    content = next((message[name] for name in _CONTENTS if message.get(name) is not None), None)
    texts, notes, reasons = read_parts(content)
    if message.get("tool_calls") or message.get("function_call"):
        reasons.append(LeftOut.TOOL_CALL)
    text = "\n\n".join(texts)
    if party is Party.ASSISTANT and (plain := strip_html(text)) is not None:
        text = plain
        notes.append(Note.HTML)
    if party in (Party.SYSTEM, Party.TOOL) or not text:
        reason = {Party.SYSTEM: LeftOut.SYSTEM, Party.TOOL: LeftOut.TOOL_RESULT}.get(party) or (reasons[0] if reasons else LeftOut.EMPTY)
        tally.leave_out(reason, where)
        return None
    time, is_unreadable = next((read_moment(message[name]) for name in _TIMES if message.get(name) is not None), (None, False))
    notes += [Note.PART_NOT_KEPT] * bool(reasons) + [Note.TIME_UNREADABLE] * is_unreadable + [Note.UNKNOWN_ROLE] * (party is Party.UNKNOWN)
    for note in dict.fromkeys(notes):
        tally.note(note, where)
    role_name, speaker = name_speaker(party, role, user)
    name = as_text(message.get("name")).strip()
    return Said(own_id=as_id(message.get("id")), identity=(), role=role_name, speaker=name or speaker, text=text, time=time, where=where)
