"""The seam between formats and banks: what a reader of a format gives, whatever the format.

A reader counts each message once as read (`Tally.read_message`), leaves out what is none of a memory, and gives the rest as `Said`, in the order of the chat.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """One message of an export.

    Example: Said(identity=("whatsapp", "2024-04-12T21:06:00", "Ana", "wow", "1"), role="user", speaker="Ana", text="wow", time="2024-04-12T19:06:00",
    where="_chat.txt, line 3")
    """

    identity: tuple[str, ...]  # what makes it this message and no other; hashed where `own_id` is None
    role: str  # "user" or "assistant"
    speaker: str
    text: str
    time: str | None  # UTC, ISO 8601 to the second, without a zone; None where the export has none
    where: str  # for people
    own_id: str | None = None  # the export's own, unique in the world
    is_instructions: bool = False  # custom instructions: the same ones are kept once


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """One chat, or one thread of talk with an assistant."""

    key: str | None  # the export's own id; None where it has none
    identity: tuple[str, ...]  # stands for `key` where there is none
    said: tuple[Said, ...]  # in the chat's order
    time: str | None = None  # of the conversation, for messages without any
    is_chat: bool = False  # one endless chat between people: its sessions are named by when they begin
