"""From messages to a bank on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from napmem_rl.errors import ConfigError
from napmem_rl.memory.bank import save_bank
from napmem_rl.memory.writers import rules
from napmem_rl.schema import Message

WRITERS = {"rules": rules.build_pyramid}


def build_bank(path: Path, bank_id: str, messages: Sequence[Message], writer: str = "rules") -> str:
    """Build all levels of a user's memory and save them as one bank.

    Args:
        path: the bank's directory; a bank there is replaced.
        bank_id: whose memory it is.
        messages: the user's history, in any order; kept in time order.
        writer: a name in WRITERS.

    Returns:
        The bank's content version.

    Raises:
        ConfigError: unknown writer.
        BankError: messages with broken or repeated ids, or a `path` that holds something else.
    """
    if writer not in WRITERS:
        raise ConfigError.of(f"bank {bank_id}", "unknown memory writer", got=writer, expected=f"one of {', '.join(WRITERS)}")
    ordered = sorted(messages, key=lambda message: message.time)
    records, tracks, profile = WRITERS[writer](ordered)
    return save_bank(path, bank_id=bank_id, messages=ordered, records=records, tracks=tracks, profile=profile, writer=writer)
