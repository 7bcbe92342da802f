"""ShareGPT: a list of ``{"id", "conversations": [{"from": "human|gpt|system|tool", "value"}, …]}``. No times.

Variants call the list `items` or `conversation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from napmem_rl.data.chat_exports.chat_rows import read_row
from napmem_rl.data.chat_exports.conversation import Conversation
from napmem_rl.data.chat_exports.tally import Tally

FORMAT = "sharegpt"
_LISTS = ("conversations", "items", "conversation", "dialogue", "turns")


def is_conversation(value: Any) -> bool:
    """Whether this is one of ShareGPT's conversations: a list of objects that name who speaks."""
    if not isinstance(value, dict):
        return False
    messages = next((value[name] for name in _LISTS if isinstance(value.get(name), list)), None)
    if messages is None:
        return False
    speaks = [message for message in messages if isinstance(message, dict) and {"from", "role", "user", "value", "content"} & message.keys()]
    return bool(speaks) or (not messages and "conversations" in value)


def read_conversation(value: Mapping[str, Any], where: str, tally: Tally, user: str | None) -> Conversation | None:
    """One conversation; None where it has no messages, which is counted. See `chatgpt.read_conversation`."""
    messages = next(value[name] for name in _LISTS if isinstance(value.get(name), list))
    return read_row(value, messages, FORMAT, where, tally, user)
