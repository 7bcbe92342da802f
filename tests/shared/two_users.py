"""Two users' banks side by side, each with words that stand in no other's."""

from __future__ import annotations

from pathlib import Path

from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.builder import build_bank
from napmem_rl.schema import Message

ANA_WORDS = ("Quillfeather", "Marzipone", "Ostrevent")
BEA_WORDS = ("Zubrowsky", "Kintsurabi", "Velodrovia", "Ploverdale")


def build_ana(directory: Path) -> MemoryBank:
    """Ana's bank in `directory`/ana."""
    texts = (f"My sister {ANA_WORDS[0]} moved to {ANA_WORDS[2]} in March.", f"I prefer {ANA_WORDS[1]} tea to coffee.", f"{ANA_WORDS[0]} works as a nurse.")
    return _build(directory, "ana", texts, "msg:a")


def build_bea(directory: Path) -> MemoryBank:
    """Bea's bank in `directory`/bea."""
    texts = (
        f"My brother {BEA_WORDS[0]} bought a boat in {BEA_WORDS[2]}.",
        f"I prefer {BEA_WORDS[1]} soup to salad.",
        f"{BEA_WORDS[0]} plays chess in {BEA_WORDS[3]}.",
    )
    return _build(directory, "bea", texts, "msg:b")


def _build(directory: Path, bank_id: str, texts: tuple[str, ...], prefix: str) -> MemoryBank:
    messages = [
        Message(
            message_id=f"{prefix}{number}",
            session_id=f"{bank_id}-{number}",
            role="user",
            speaker=bank_id.capitalize(),
            text=text,
            time=f"2024-03-0{number}T10:00:00",
        )
        for number, text in enumerate(texts, 1)
    ]
    build_bank(directory / bank_id, bank_id, messages)
    return MemoryBank.open(directory / bank_id)
