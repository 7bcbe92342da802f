"""What became of every message of an export: counts that add up, each reason with the places that it was found at.

::

    read = kept + merged + left out

Names and numbers alone, and places such as "conversations.json, conversation 3, message 12": never what a message says.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SHOWN = 20  # places that are kept for a reason


class LeftOut(StrEnum):
    """Why a message is not in the bank."""

    OTHER_BRANCH = "other_branch"  # an answer that was regenerated, or a question that was edited: not on the path that the chat shows
    EMPTY = "empty"  # neither text nor attachment
    HIDDEN = "hidden"  # marked as not shown to the user
    SYSTEM = "system"  # what the program told the model
    SYSTEM_LINE = "system_line"  # what the messenger says itself: who joined, who changed the picture
    TOOL_CALL = "tool_call"  # what a model wrote for a tool
    TOOL_RESULT = "tool_result"  # what a tool answered
    THINKING = "thinking"  # what a model wrote for itself
    DELETED = "deleted"  # the sender took it back; the export holds no text
    NO_TEXT = "no_text"  # content of a kind that is not known, without text
    NOT_A_MESSAGE = "not_a_message"  # something else stands in its place, such as a number
    OTHER_ACCOUNT = "other_account"  # of another user of a shared account
    FORGOTTEN = "forgotten_earlier"  # the bank was made to forget it
    NOT_YET = "not_yet"  # the run ended before its turn; the same command goes on


class Merged(StrEnum):
    """Why a message is in the bank, but not a second time."""

    SAME_MESSAGE = "same_message"  # the same id and text, or the same moment, sender and words, in another place of the input
    SAME_INSTRUCTIONS = "same_instructions"  # custom instructions, which some exports repeat with every conversation


class Note(StrEnum):
    """What was mapped, put right or cut off on the way. The message is kept."""

    ATTACHMENT = "attachment"  # became a mark such as [image: beach.jpg]
    ATTACHMENT_TEXT = "attachment_text"  # the text of an attachment stands below the message
    BROKEN_CHARACTERS = "broken_characters"  # became U+FFFD
    CHANGED = "changed"  # the bank holds another text of this message: both are kept
    CITATION_MARKS = "citation_marks"  # cut off
    CURRENT_NODE_MISSING = "current_node_missing"  # the newest branch was taken
    CUSTOM_INSTRUCTIONS = "custom_instructions"  # kept as words of the user
    EDITED = "edited"  # marked as edited by the sender
    HTML = "html"  # became text
    OTHER_ROLE = "other_role"  # the bank has it already, as said by the other side, which stays
    OTHER_TIME = "other_time"  # the bank has it already, at another time, which stays
    PART_NOT_KEPT = "part_not_kept"  # thinking, tool calls or tool results within a message
    TIME_AMBIGUOUS = "time_ambiguous"  # clocks were set back: the wall time was there twice
    TIME_BORROWED = "time_borrowed"  # none of its own: that of a neighbour
    TIME_MOVED = "time_moved"  # before the message that it follows: that one's instead
    TIME_NONEXISTENT = "time_nonexistent"  # clocks were set forward over it: moved forward
    TIME_UNKNOWN = "time_unknown"  # nothing in the conversation has one
    TIME_UNREADABLE = "time_unreadable"  # taken as missing
    TREE_REPAIRED = "tree_repaired"  # a link of the conversation's tree was missing or went in a circle
    UNKNOWN_CONTENT = "unknown_content"  # of a kind that is not known; its text is kept
    UNKNOWN_ROLE = "unknown_role"  # kept as words of another than the user
    USER_UNKNOWN = "user_unknown"  # of a chat: it does not say who of them the user is, and everybody's words count as the user's


class LostConversation(StrEnum):
    """Why a whole conversation gave no message."""

    EMPTY = "empty"
    NOT_A_CONVERSATION = "not_a_conversation"  # something else stands in its place, or it has no messages
    NOT_JSON = "not_json"  # a line that cannot be read
    UNREADABLE = "unreadable"  # its reader failed on something that nobody has thought of; the message of the failure is among the places


@dataclass(slots=True)
class Tally:
    """Counts of one import. `read_message` says that there is one more; exactly one of the others says what became of it."""

    num_read: int = 0
    num_new: int = 0
    num_known: int = 0  # the bank has it already
    num_conversations: int = 0
    merged: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    lost_conversations: Counter[str] = field(default_factory=Counter)
    places: dict[str, list[str]] = field(default_factory=dict)
    speakers: Counter[str] = field(default_factory=Counter)  # by name, of the messages that are kept
    files: list[tuple[str, str]] = field(default_factory=list)  # (name, format) of what was read
    other_files: list[str] = field(default_factory=list)  # beside them, without chats
    problems: list[str] = field(default_factory=list)  # files that were taken in part

    def read_message(self, number: int = 1) -> None:
        """There are so many more."""
        self.num_read += number

    def leave_out(self, reason: LeftOut, where: str) -> None:
        """It is not kept."""
        self.left_out[reason] += 1
        self._place(reason, where)

    def merge(self, reason: Merged, where: str) -> None:
        """It is there already, from another place of the input."""
        self.merged[reason] += 1
        self._place(reason, where)

    def note(self, what: Note, where: str) -> None:
        """Something about a message that is kept."""
        self.notes[what] += 1
        self._place(what, where)

    def lose_conversation(self, reason: LostConversation, where: str) -> None:
        """A conversation without a message that can be counted."""
        self.num_conversations += 1
        self.lost_conversations[reason] += 1
        self._place(f"conversation_{reason}", where)

    @property
    def num_kept(self) -> int:
        """Messages that are in the bank now."""
        return self.num_new + self.num_known

    def absorb(self, other: Tally) -> None:
        """Take in the counts of a part."""
        for name in ("num_read", "num_new", "num_known", "num_conversations"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("merged", "left_out", "notes", "lost_conversations", "speakers"):
            getattr(self, name).update(getattr(other, name))
        for reason, places in other.places.items():
            known = self.places.setdefault(reason, [])
            known += places[: max(0, SHOWN - len(known))]

    def check(self) -> None:
        """That every message has one fate."""
        ends = self.num_kept + self.merged.total() + self.left_out.total()
        assert self.num_read == ends, f"{self.num_read} messages were read and {ends} accounted for"

    def to_json(self) -> dict[str, Any]:
        """The counts as JSON holds them."""
        return {
            "files": [{"name": name, "format": form} for name, form in self.files],
            "other_files": list(self.other_files),
            "problems": list(self.problems),
            "messages": {
                "read": self.num_read,
                "kept": {"new": self.num_new, "already_in_bank": self.num_known},
                "merged": dict(sorted(self.merged.items())),
                "left_out": dict(sorted(self.left_out.items())),
            },
            "conversations": {"read": self.num_conversations, "without_messages": dict(sorted(self.lost_conversations.items()))},
            "notes": dict(sorted(self.notes.items())),
            "places": {reason: list(places) for reason, places in sorted(self.places.items())},
            "speakers": dict(self.speakers.most_common()),
        }

    def describe(self) -> list[str]:
        """The counts in lines for people."""
        merged, left_out = self.merged.total(), self.left_out.total()
        formats = Counter(form for _, form in self.files)
        lines = [f"{number:,} file{'s' * (number > 1)} in the format {form}" for form, number in sorted(formats.items())]
        more = len(self.other_files) - 5
        shown = "; ".join(self.other_files[:5]) + (f" and {more:,} more" if more > 0 else "")
        lines += [f"{len(self.other_files):,} other files were not read: {shown}"] if self.other_files else []
        lines += [f"taken in part: {problem}" for problem in self.problems]
        lines += [f"{self.num_read:,} messages read = {self.num_kept:,} kept ({self.num_new:,} new) + {merged:,} merged + {left_out:,} left out"]
        titles = (("merged", self.merged, ""), ("left out", self.left_out, ""), ("noted", self.notes, ""))
        titles += (("conversations without messages", self.lost_conversations, "conversation_"),)
        for title, counts, prefix in titles:
            lines += [f"  {title}: {number:,} {reason.replace('_', ' ')} ({self._show(prefix + reason)})" for reason, number in sorted(counts.items())]
        return ["".join(char if char.isprintable() else " " for char in line) for line in lines]

    def _show(self, reason: str) -> str:
        places = self.places.get(reason, [])
        return "; ".join(places[:2]) + (" …" if len(places) > 2 else "")

    def _place(self, reason: str, where: str) -> None:
        places = self.places.setdefault(str(reason), [])
        if len(places) < SHOWN:
            places.append(where)
