"""What a WhatsApp message says: its text, and marks for what is no text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from napmem_rl.data.chat_exports import whatsapp_words as words
from napmem_rl.data.chat_exports.parts import make_mark
from napmem_rl.data.chat_exports.tally import Note

_LRM = "\u200e"
_INVISIBLE = re.compile("[\u200e\u202a-\u202e\u2066-\u2069\ufeff]")
_ENDS = " .\t\u200f"


def _join(phrases: Mapping[str, Sequence[str]], language: str | None) -> str:
    chosen = phrases.values() if language is None else [phrases.get(language, ()), phrases["en"]]
    return "|".join(sorted({re.escape(phrase) for one in chosen for phrase in one}, key=len, reverse=True))


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatText:
    """One message. `identity` is what stays the same whether a chat was exported with its media or without."""

    text: str
    identity: str
    notes: tuple[Note, ...]
    is_deleted: bool = False
    is_system: bool = False


class ChatWords:
    """WhatsApp's own words: of all languages that are known, or of one and English."""

    def __init__(self, language: str | None = None) -> None:
        media, files, edited = (_join(phrases, language) for phrases in (words.MEDIA, words.FILES, words.EDITED))
        self._media = re.compile(rf"(?:<({media})>|(?:(?<={_LRM})|^{_LRM})({media}))\s*$", re.IGNORECASE | re.MULTILINE)
        self._attached = re.compile(rf"{_LRM}?<(?:{files}): ?([^<>\n]+)>", re.IGNORECASE)
        self._file = re.compile(rf"^{_LRM}?([^\n]+?) \((?:{files})\)\s*$", re.IGNORECASE | re.MULTILINE)
        self._edited = re.compile(rf"\s*{_LRM}?<(?:{edited})>", re.IGNORECASE)
        self._deleted = re.compile(rf"(?:{_join(words.DELETED, language)})", re.IGNORECASE)
        self._system = re.compile(_join(words.SYSTEM, language), re.IGNORECASE)

    def read(self, raw: str) -> ChatText:
        """The text of a message as the export has it."""
        if self._deleted.fullmatch(_INVISIBLE.sub("", raw).strip(_ENDS)):
            return ChatText(text="", identity="", notes=(), is_deleted=True)
        notes: list[Note] = []
        text, is_edited = self._edited.subn("", raw)
        marked, num_media = self._media.subn(lambda match: make_mark(words.name_media(match[1] or match[2])), text)
        marked, num_attached = self._attached.subn(lambda match: make_mark(words.name_file_kind(match[1]), match[1]), marked)
        num_files = 0
        if not num_attached:
            marked, num_files = self._file.subn(lambda match: make_mark(words.name_file_kind(match[1]), match[1]), marked, count=1)
        notes += [Note.EDITED] * bool(is_edited) + [Note.ATTACHMENT] * bool(num_media + num_attached + num_files)
        plain = _INVISIBLE.sub("", marked).strip()
        is_system = not notes and raw.startswith(_LRM) and self._system.search(raw) is not None
        identity = re.sub(r"\[[^\[\]\n]*\]", "[media]", plain) if num_media + num_attached + num_files else plain
        return ChatText(text=plain, identity=identity, notes=tuple(notes), is_system=is_system)

    def is_system_name(self, name: str) -> bool:
        """Whether what stands before a colon is no name, but the beginning of a line that the messenger says, e.g. ``Ana changed the group description``."""
        return " " in name and (found := self._system.search(name)) is not None and " " in found[0]
