"""Who speaks: the names that exports give to the parties of a talk with an assistant."""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class Party(StrEnum):
    """A side of a talk."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"
    TOOL = "tool"
    UNKNOWN = "unknown"


_NAMES = {
    Party.USER: ("user", "human", "prompter", "me", "customer", "client", "student", "self"),
    Party.ASSISTANT: ("assistant", "gpt", "chatgpt", "bot", "chatbot", "model", "ai", "claude", "bing", "bard", "gemini", "agent", "llm"),
    Party.SYSTEM: ("system", "developer", "instruction", "instructions", "system_prompt"),
    Party.TOOL: ("tool", "function", "function_call", "function_response", "observation", "tool_call", "tool_response", "tool_result", "ipython"),
}
_PARTIES = {name: party for party, names in _NAMES.items() for name in names}


def find_party(role: Any) -> Party:
    """The party that an export names, in any spelling of capitals."""
    return _PARTIES.get(role.strip().lower(), Party.UNKNOWN) if isinstance(role, str) else Party.UNKNOWN


def name_speaker(party: Party, role: Any, user: str | None) -> tuple[str, str]:
    """(role, speaker) as a bank holds them. An unknown party is another than the user, under the name that the export gives it.

    Example: ``name_speaker(Party.UNKNOWN, "moderator", None)`` is ``("assistant", "moderator")``.
    """
    if party is Party.USER:
        return "user", user or "User"
    if party is Party.ASSISTANT:
        return "assistant", "Assistant"
    return "assistant", (role.strip()[:80] if isinstance(role, str) and role.strip() else "Unknown")
