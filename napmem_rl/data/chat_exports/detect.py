"""Which program an export is of: by what its first conversations look like, whatever the file is called."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from napmem_rl.data.chat_exports import chatgpt, claude, openai_jsonl, sharegpt
from napmem_rl.data.chat_exports.conversation import Conversation
from napmem_rl.data.chat_exports.files import ExportFile
from napmem_rl.data.chat_exports.json_stream import read_items
from napmem_rl.data.chat_exports.tally import Tally
from napmem_rl.data.chat_exports.whatsapp import FORMAT as WHATSAPP
from napmem_rl.data.chat_exports.whatsapp import is_chat
from napmem_rl.errors import DataError

_NUM_LOOKED_AT = 50
_JSON_START = re.compile(rb"[\xef\xbb\xbf\xff\xfe \t\r\n\0]*(\{|\[(?![\s\0]*\d))")  # a list of numbers is none of chats; "[25/4/2024" is a chat's line
Reader = Callable[[Mapping[str, Any], str, Tally, str | None], Conversation | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class JsonFormat:
    """A format whose conversations are JSON objects."""

    name: str
    is_conversation: Callable[[Any], bool]
    read: Reader


JSON_FORMATS = tuple(
    JsonFormat(name=module.FORMAT, is_conversation=module.is_conversation, read=module.read_conversation)
    for module in (chatgpt, claude, openai_jsonl, sharegpt)
)
FORMATS = (*(one.name for one in JSON_FORMATS), WHATSAPP)


def find_json_format(value: Any) -> JsonFormat | None:
    """The format of one conversation; None for what is none."""
    return next((one for one in JSON_FORMATS if one.is_conversation(value)), None)


def detect_format(file: ExportFile) -> str | None:
    """The name of a file's format; None where it is of none that is known.

    Raises:
        DataError: it begins like JSON but cannot be read.
    """
    with file.read() as stream:
        head = stream.read(4096)
    if is_chat(file):
        return WHATSAPP
    if not any(mark in head for mark in (b"{", b"[")):
        return None
    try:
        for _, value in itertools.islice(read_items(file.read, file.name), _NUM_LOOKED_AT):
            found = find_json_format(value)
            if found is not None:
                return found.name
    except DataError:
        if _JSON_START.match(head):
            raise
    return None
