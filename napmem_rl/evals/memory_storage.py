"""Bytes on disk of banks with vectors of a large encoder's size: what a bank takes, by kind of file.

The vectors are random unit rows of the given width, the same for the same text: their values do not matter for the bytes, and no model is needed.
"""

from __future__ import annotations

import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from napmem_rl.data.source import SourceBank
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.builder import build_bank

DIM = 1024  # as Qwen3-Embedding-0.6B's
VECTORS, WORDS, COLUMNS, LOGS, FILES = "vectors", "word indexes", "columns", "logs", "tracks and profile, all versions"


class RandomEncoder:
    """Random unit rows, each seeded by its text."""

    def __init__(self, dim: int = DIM) -> None:
        self.dim = dim
        self.name = f"random-{dim}"

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """See `retrieval.encoder.Encoder`."""
        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            row[:] = np.random.default_rng(zlib.crc32(text.encode())).standard_normal(self.dim, dtype=np.float32)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows / np.where(norms > 0, norms, 1.0)


def measure_storage(banks: Sequence[SourceBank], *, dim: int = DIM, report: Callable[[str], None]) -> dict[str, Any]:
    """Build every bank with the `rules` writer and both search indexes, and count bytes.

    Returns:
        Numbers of banks, messages and records, megabytes in all and by kind of file, bytes a message.
    """
    encoder = RandomEncoder(dim)
    sizes: Counter[str] = Counter()
    num_records = 0
    for bank in banks:
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "bank"
            build_bank(path, bank.bank_id, bank.messages)
            opened = MemoryBank.open(path, encoder=encoder)
            opened.build_index()
            num_records += len(opened.records)
            sizes.update(count_bytes(path))
        report(f"storage: {bank.bank_id}")
    num_messages = sum(len(bank.messages) for bank in banks)
    total = sizes.total()
    return {
        "banks": len(banks),
        "messages": num_messages,
        "records": num_records,
        "dim": dim,
        "total_mb": total / 1e6,
        "bytes_per_message": total / max(1, num_messages),
        **{f"{kind}_mb": sizes[kind] / 1e6 for kind in (LOGS, FILES, VECTORS, WORDS, COLUMNS)},
    }


def summarise_storage(paths: Sequence[Path]) -> dict[str, Any]:
    """What banks take on disk as they are, all their versions and indexes included; directories that are not there are left out. Empty where none is.

    Returns:
        ``{n, mean_bytes, total_bytes, by_kind}``, with bytes by kind of file.
    """
    sizes = [count_bytes(path) for path in paths if path.is_dir()]
    if not sizes:
        return {}
    by_kind = sum(sizes, Counter())
    return {"n": len(sizes), "mean_bytes": by_kind.total() / len(sizes), "total_bytes": by_kind.total(), "by_kind": dict(sorted(by_kind.items()))}


def count_bytes(path: Path) -> Counter[str]:
    """Bytes of a bank's files by kind."""
    sizes: Counter[str] = Counter()
    for file in path.rglob("*"):
        if file.is_file():
            sizes[_name_kind(file.relative_to(path))] += file.stat().st_size
    return sizes


def _name_kind(file: Path) -> str:
    if file.parts[0] == "files":
        return FILES
    if file.parts[0] != "index":
        return LOGS
    folder = file.parts[1]
    if folder.endswith("-words"):
        return WORDS
    return COLUMNS if len(file.parts) == 2 and file.stem in ("columns", "messages", "records", ".columns") else VECTORS
