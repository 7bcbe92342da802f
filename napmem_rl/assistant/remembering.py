"""Adding what was said to a bank, by the builder that built it."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from napmem_rl.errors import DataError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.build_report import BuildReport, Cause
from napmem_rl.memory.builder import grow_bank
from napmem_rl.schema import Message

USER, ASSISTANT = "user", "assistant"
_NAMES_FROM = 200  # newest messages that are looked at for what the two are called


@dataclass(frozen=True, kw_only=True, slots=True)
class Saying:
    """Something that was said, and when (UTC, ISO 8601 without a zone, as banks hold times)."""

    role: str
    text: str
    time: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Remembered:
    """What became of sayings: ids of the new messages, and how many records were drawn from them or changed by them."""

    message_ids: tuple[str, ...]
    num_records: int
    session_id: str

    def describe(self) -> str:
        """One line for people."""
        messages = f"{len(self.message_ids)} message{'' if len(self.message_ids) == 1 else 's'}"
        return f"added to the bank: {messages} and {self.num_records} record{'' if self.num_records == 1 else 's'}, session {self.session_id}"


def tell_time() -> str:
    """Now, as banks hold times."""
    return datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="seconds")


def name_session(kind: str) -> str:
    """A session id that no other has. Example: "chat-2026-11-30T16-05-31-9f3c21"."""
    return f"{kind}-{tell_time().replace(':', '-')}-{uuid.uuid4().hex[:6]}"


async def remember(bank: MemoryBank, sayings: Sequence[Saying], *, session_id: str, num_before: int = 0) -> Remembered:
    """Append sayings to a bank as a session, or as more of one, and bring records, topics and profile up to date with the writer `rules`.

    Args:
        bank: as it is open; the directory is written.
        sayings: in order; those without text are left out.
        session_id: of `name_session`.
        num_before: sayings of this session that were remembered before.

    Raises:
        DataError: nothing to remember, or text that cannot be written.
        BankError: the bank is being written by another process, or is broken.
    """
    said = [saying for saying in sayings if saying.text.strip()]
    if not said:
        raise DataError.of("remembering", "there is nothing to remember", fix="Say something first.")
    names = find_speakers(bank)
    messages = [
        Message(
            message_id=f"msg:{session_id}-{number}",
            session_id=session_id,
            role=saying.role,
            speaker=names[saying.role],
            text=saying.text.encode("utf-8", "replace").decode(),
            time=saying.time,
        )
        for number, saying in enumerate(said, start=num_before + 1)
    ]
    report = await grow_bank(bank.path, bank.bank_id, messages)
    return Remembered(message_ids=tuple(message.message_id for message in messages), num_records=_count_records(report), session_id=session_id)


def find_speakers(bank: MemoryBank) -> dict[str, str]:
    """What user and assistant are called in the bank's newest messages; "User" and "Assistant" where it does not say."""
    counts: dict[str, Counter[str]] = {USER: Counter(), ASSISTANT: Counter()}
    for message in bank.messages[-_NAMES_FROM:]:
        counts[message.role][message.speaker] += 1
    return {role: (found.most_common(1)[0][0] if found else role.capitalize()) for role, found in counts.items()}


def _count_records(report: BuildReport) -> int:
    return sum(report.counts.get(cause, 0) for cause in (Cause.RECORDS_STORED, Cause.RECORDS_UPDATED, Cause.RECORDS_MERGED))
