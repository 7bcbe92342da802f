"""Exports in the forms of several programs, made up here, and what reading them gives."""

from __future__ import annotations

import json
import uuid
import zipfile
from pathlib import Path
from typing import Any

from napmem_rl.data.chat_exports.files import find_files
from napmem_rl.data.chat_exports.placing import Placing
from napmem_rl.data.chat_exports.reading import ExportReader, ReadOptions
from napmem_rl.data.chat_exports.tally import Tally
from napmem_rl.schema import Message

KEY = bytes(range(32))


def make_uuid(number: int) -> str:
    """An id as vendors' exports have them."""
    return str(uuid.UUID(int=number + (1 << 100)))


def gpt_node(name: str, parent: str | None, children: list[str], role: str | None, content: Any, **more: Any) -> dict[str, Any]:
    """A node of a ChatGPT conversation; `content` is a text or a whole content object; no role: the root."""
    if role is None:
        return {"id": name, "message": None, "parent": parent, "children": children}
    content = {"content_type": "text", "parts": [content]} if isinstance(content, str) else content
    message = {"id": name, "author": {"role": role}, "create_time": None, "content": content, "recipient": "all", "metadata": {}} | more
    return {"id": name, "message": message, "parent": parent, "children": children}


def gpt_chain(key: str, texts: list[Any], *, start: float = 1714000000.0, step: float = 60.0, first_id: int = 0) -> dict[str, Any]:
    """A ChatGPT conversation without branches: user and assistant in turn, `step` seconds apart."""
    names = ["root", *(make_uuid(first_id + number) for number in range(len(texts)))]
    mapping = {"root": gpt_node("root", None, names[1:2], None, None)}
    for number, text in enumerate(texts):
        role = "assistant" if number % 2 else "user"
        node = gpt_node(names[number + 1], names[number], names[number + 2 : number + 3], role, text, create_time=start + number * step)
        mapping[names[number + 1]] = node
    return {"conversation_id": key, "title": "t", "create_time": start, "mapping": mapping, "current_node": names[-1]}


def claude_chat(messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A Claude conversation."""
    return {"uuid": make_uuid(900), "name": "t", "created_at": "2024-04-24T22:00:00.000000Z", "account": {"uuid": "acc-1"}, "chat_messages": messages} | more


def claude_message(number: int, sender: str, text: str, **more: Any) -> dict[str, Any]:
    """One of its messages."""
    content = [{"type": "text", "text": text}] if text else []
    time = f"2024-04-24T22:{number:02d}:00.000000Z"
    return {"uuid": make_uuid(1000 + number), "text": text, "content": content, "sender": sender, "created_at": time, "attachments": [], "files": []} | more


def write_json(path: Path, value: Any) -> Path:
    """A JSON file."""
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def write_zip(path: Path, files: dict[str, bytes]) -> Path:
    """A zip file with these members."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def read_export(path: Path, **options: Any) -> tuple[list[Message], Tally]:
    """The messages that an export gives, session by session, and the counts, which are checked."""
    tally = Tally()
    reader = ExportReader.open(find_files([path]), ReadOptions(**options), tally)
    placing = Placing(key=KEY, tally=tally)
    messages = [message for conversation in reader.conversations() for session in placing.place(conversation) for message in session.messages]
    tally.num_new = len(messages)
    tally.check()
    return messages, tally


def read_value(directory: Path, value: Any, **options: Any) -> tuple[list[Message], Tally]:
    """See `read_export`; the export is a JSON file that is written first."""
    return read_export(write_json(directory / "conversations.json", value), **options)


def read_chat_text(directory: Path, text: str, name: str = "_chat.txt", encoding: str = "utf-8", **options: Any) -> tuple[list[Message], Tally]:
    """See `read_export`; the export is a WhatsApp chat."""
    (directory / name).write_bytes(text.encode(encoding))
    return read_export(directory / name, **options)
