"""Chats in the form of OpenAI's API and fine-tuning files: one object ``{"messages": [{"role", "content"}, …]}`` a line. No times, no ids of sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from napmem_rl.data.chat_exports.chat_rows import read_row
from napmem_rl.data.chat_exports.conversation import Conversation
from napmem_rl.data.chat_exports.tally import Tally
from napmem_rl.data.chat_exports.values import as_object

FORMAT = "openai_jsonl"


def is_conversation(value: Any) -> bool:
    """Whether this is a conversation in the form of OpenAI's API, or a request of its batches that holds one."""
    return isinstance(value, dict) and isinstance(_find_messages(value), list)


def read_conversation(value: Mapping[str, Any], where: str, tally: Tally, user: str | None) -> Conversation | None:
    """One conversation; None where it has no messages, which is counted. See `chatgpt.read_conversation`."""
    return read_row(value, _find_messages(value), FORMAT, where, tally, user)


def _find_messages(value: Mapping[str, Any]) -> Any:
    return value.get("messages", as_object(value.get("body")).get("messages"))
