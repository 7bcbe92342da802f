"""The content of one of ChatGPT's messages as text: parts of many kinds, attachments, and kinds that nobody has seen yet."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from napmem_rl.data.chat_exports.parts import make_mark
from napmem_rl.data.chat_exports.tally import LeftOut, Note
from napmem_rl.data.chat_exports.values import as_list, as_object, as_text

_CITATION = re.compile("\ue200[^\ue200\ue201]*\ue201|【[^【】]{0,40}†[^【】]{0,80}】")
_PLAIN = frozenset({"text", "multimodal_text"})
_THINKING = frozenset({"thoughts", "reasoning_recap"})
_INSTRUCTIONS = {"user_profile": "About me", "user_instructions": "How to answer me"}
_POINTERS = {"image_asset_pointer": "image", "audio_asset_pointer": "audio", "video_container_asset_pointer": "video"}
_POINTERS |= {"real_time_user_audio_video_asset_pointer": "audio"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """What a message says. `reason`: why it cannot be kept, as far as its content says so."""

    text: str
    notes: tuple[Note, ...] = ()
    reason: LeftOut | None = None
    is_instructions: bool = False


def read_content(message: Mapping[str, Any]) -> Content:
    """The content of a message, whatever it is."""
    content = message.get("content")
    if isinstance(content, str):
        return Content(text=content.strip(), notes=(Note.UNKNOWN_CONTENT,))
    content = as_object(content)
    kind = as_text(content.get("content_type"))
    if kind in _THINKING:
        return Content(text="", reason=LeftOut.THINKING)
    if kind == "user_editable_context":
        parts = [f"{title}: {said}" for name, title in _INSTRUCTIONS.items() if (said := as_text(content.get(name)).strip())]
        return Content(text="\n\n".join(parts), notes=(Note.CUSTOM_INSTRUCTIONS,), is_instructions=True)
    texts, notes = _read_parts(as_list(content.get("parts")), _list_attachments(message))
    if kind not in _PLAIN or not texts:
        texts += [said for name in ("text", "result", "model_set_context") if (said := as_text(content.get(name)).strip())]
        if not texts and as_text(content.get("content")).strip():
            texts.append(content["content"].strip())
    if kind not in _PLAIN and kind != "code":
        notes.append(Note.UNKNOWN_CONTENT)
    text = "\n\n".join(texts)
    cleaned = _CITATION.sub("", text).strip()
    if cleaned != text:
        notes.append(Note.CITATION_MARKS)
    is_strange = not cleaned and (kind not in _PLAIN and content or any(not isinstance(part, str) for part in as_list(content.get("parts"))))
    return Content(text=cleaned, notes=tuple(dict.fromkeys(notes)), reason=LeftOut.NO_TEXT if is_strange else None)


def _list_attachments(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(kind, name) of each file that was attached."""
    attachments = as_list(as_object(message.get("metadata")).get("attachments"))
    found = [attachment for attachment in attachments if isinstance(attachment, dict)]
    kinds = (as_text(attachment.get("mime_type") or attachment.get("mimeType")).partition("/")[0] for attachment in found)
    return [
        (kind if kind in ("image", "audio", "video") else "file", as_text(attachment.get("name")).strip())
        for kind, attachment in zip(kinds, found, strict=True)
    ]


def _read_parts(parts: Sequence[Any], attachments: list[tuple[str, str]]) -> tuple[list[str], list[Note]]:
    """Texts and marks in the order of the parts, then the attachments that no part stands for."""
    texts: list[str] = []
    notes: list[Note] = []
    left = list(attachments)
    for part in parts:
        if isinstance(part, str):
            texts += [part.strip()] if part.strip() else []
            continue
        if isinstance(part, (int, float)):
            texts.append(str(part))
            notes.append(Note.UNKNOWN_CONTENT)
            continue
        part = as_object(part)
        kind = as_text(part.get("content_type"))
        said = as_text(part.get("text")).strip()
        if kind in _POINTERS:
            name = next((one for one in left if one[0] == _POINTERS[kind]), (_POINTERS[kind], ""))
            left = [one for one in left if one is not name]
            texts.append(make_mark(*name))
            notes.append(Note.ATTACHMENT)
        elif said:
            texts.append(said)
            notes += [] if kind == "audio_transcription" else [Note.UNKNOWN_CONTENT]
        elif part:
            texts.append(make_mark(kind.replace("_", " ") or "content of an unknown kind", ""))
            notes.append(Note.UNKNOWN_CONTENT)
    texts += [make_mark(kind, name) for kind, name in left]
    return texts, notes + [Note.ATTACHMENT] * bool(left)
