"""Claude's `conversations.json`: a list of conversations, each with `chat_messages` in the order in which they were said.

A message's `text` may be empty where `content` is not, and the reverse; what a user pasted may stand in `attachments[].extracted_content`. Messages that were
edited or generated again share a parent (`parent_message_uuid`); the branch of the newest message is the chat, the others are left out and counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from napmem_rl.data.chat_exports.conversation import Conversation, Said
from napmem_rl.data.chat_exports.parts import make_mark, name_files
from napmem_rl.data.chat_exports.roles import Party, find_party, name_speaker
from napmem_rl.data.chat_exports.tally import LeftOut, LostConversation, Note, Tally
from napmem_rl.data.chat_exports.values import as_id, as_list, as_object, as_text, read_moment

FORMAT = "claude"
_TOOLS = {"tool_use": LeftOut.TOOL_CALL, "tool_result": LeftOut.TOOL_RESULT, "thinking": LeftOut.THINKING, "redacted_thinking": LeftOut.THINKING}
_TOOLS |= {"server_tool_use": LeftOut.TOOL_CALL, "web_search_tool_result": LeftOut.TOOL_RESULT, "token_budget": LeftOut.SYSTEM, "flag": LeftOut.SYSTEM}
_FILES = {"image": "image", "document": "file", "file": "file", "audio": "audio", "video": "video"}
_PLACEHOLDER = re.compile(r"(?:```\s*)?This block is not supported on your current device yet\.(?:\s*```)?")  # for tools, in old exports


def is_conversation(value: Any) -> bool:
    """Whether this is one of Claude's conversations."""
    return isinstance(value, dict) and isinstance(value.get("chat_messages"), list)


def read_account(value: Mapping[str, Any]) -> str | None:
    """The account that a conversation belongs to."""
    return as_id(as_object(value.get("account")).get("uuid"))


def read_conversation(value: Mapping[str, Any], where: str, tally: Tally, user: str | None) -> Conversation | None:
    """One conversation; None where it has no messages, which is counted. See `chatgpt.read_conversation`."""
    messages = as_list(value.get("chat_messages"))
    if not messages:
        tally.lose_conversation(LostConversation.EMPTY, where)
        return None
    tally.num_conversations += 1
    tally.read_message(len(messages))
    key = as_id(value.get("uuid")) or as_id(value.get("id"))
    kept = _find_path(value, messages)
    said = []
    for number, message in enumerate(messages, start=1):
        place = f"{where}, message {number}"
        if not isinstance(message, dict):
            tally.leave_out(LeftOut.NOT_A_MESSAGE, place)
        elif number - 1 not in kept:
            tally.leave_out(LeftOut.OTHER_BRANCH, place)
        else:
            said.append(_read_message(message, (FORMAT, key or "", str(number)), place, tally, user))
    time = read_moment(value.get("created_at"))[0] or read_moment(value.get("updated_at"))[0]
    first = as_object(messages[0])
    identity = (FORMAT, as_text(first.get("uuid")), as_text(first.get("text")))
    return Conversation(key=key, identity=identity, said=tuple(one for one in said if one is not None), time=time)


def _find_path(value: Mapping[str, Any], messages: Sequence[Any]) -> set[int]:
    """Positions of the messages of the newest branch; all of them where the export knows no branches."""
    places: dict[str, int] = {}
    for position, message in enumerate(messages):
        uuid = as_id(as_object(message).get("uuid"))
        if uuid is not None:
            places.setdefault(uuid, position)
    parents = [places.get(as_text(as_object(message).get("parent_message_uuid"))) for message in messages]
    everything = set(range(len(messages)))
    inner = [parent for parent in parents if parent is not None]
    num_roots = len(parents) - len(inner)
    if not inner or (len(set(inner)) == len(inner) and num_roots == 1) or len(places) < len(messages):
        return everything
    leaf = places.get(as_text(value.get("current_leaf_message_uuid")))
    if leaf is None:
        leaf = max(everything, key=lambda position: (read_moment(as_object(messages[position]).get("created_at"))[0] or "", position))
    path: set[int] = set()
    position: int | None = leaf
    while position is not None and position not in path:
        path.add(position)
        position = parents[position]
    return path


def _read_message(message: Mapping[str, Any], identity: tuple[str, ...], where: str, tally: Tally, user: str | None) -> Said | None:
    texts, notes, reasons = _read_content(as_list(message.get("content")))
    old, num_blocks = _PLACEHOLDER.subn("", as_text(message.get("text")))
    if not texts and num_blocks:
        reasons.append(LeftOut.TOOL_CALL)
    if not texts and old.strip():
        texts = [old.strip()]
    for attachment in as_list(message.get("attachments")):
        texts += _read_attachment(as_object(attachment), notes)
    seen = {as_text(as_object(one).get("file_name")) for one in as_list(message.get("attachments"))}
    marks = [mark for key in ("files", "files_v2") for mark in name_files(message.get(key), seen)]
    texts += marks
    notes += [Note.ATTACHMENT] * bool(marks)
    role = message.get("sender", message.get("role"))
    party = find_party(role)
    if party is Party.TOOL or party is Party.SYSTEM or not texts:
        reason = LeftOut.TOOL_RESULT if party is Party.TOOL else LeftOut.SYSTEM if party is Party.SYSTEM else reasons[0] if reasons else LeftOut.EMPTY
        tally.leave_out(reason, where)
        return None
    time, is_unreadable = read_moment(message.get("created_at"))
    notes += [Note.PART_NOT_KEPT] * bool(reasons) + [Note.UNKNOWN_ROLE] * (party is Party.UNKNOWN) + [Note.TIME_UNREADABLE] * is_unreadable
    for note in dict.fromkeys(notes):
        tally.note(note, where)
    role, speaker = name_speaker(party, role, user)
    text = "\n\n".join(texts)
    return Said(own_id=as_id(message.get("uuid")), identity=(*identity, role, text), role=role, speaker=speaker, text=text, time=time, where=where)


def _read_content(parts: Sequence[Any]) -> tuple[list[str], list[Note], list[LeftOut]]:
    """Texts and marks, what is to be noted, and why parts are not kept."""
    texts: list[str] = []
    notes: list[Note] = []
    reasons: list[LeftOut] = []
    for part in parts:
        if isinstance(part, str):
            texts += [part.strip()] if part.strip() else []
            continue
        part = as_object(part)
        kind = as_text(part.get("type"))
        said = as_text(part.get("text")).strip()
        if kind in _TOOLS:
            reasons.append(_TOOLS[kind])
        elif kind in _FILES:
            texts.append(make_mark(_FILES[kind], as_text(part.get("file_name") or part.get("title"))))
            notes.append(Note.ATTACHMENT)
        elif said:
            texts.append(said)
            notes += [] if kind in ("text", "voice_note") else [Note.UNKNOWN_CONTENT]
        elif kind != "text":
            texts.append(make_mark(kind.replace("_", " ") or "content of an unknown kind", ""))
            notes.append(Note.UNKNOWN_CONTENT)
    return texts, notes, reasons


def _read_attachment(attachment: Mapping[str, Any], notes: list[Note]) -> list[str]:
    """A mark, and the text that was drawn from the file."""
    content = as_text(attachment.get("extracted_content")).strip()
    name = as_text(attachment.get("file_name"))
    if not content and not name and not attachment:
        return []
    notes.append(Note.ATTACHMENT_TEXT if content else Note.ATTACHMENT)
    return [f"{make_mark('file', name)}\n{content}" if content else make_mark("file", name)]
