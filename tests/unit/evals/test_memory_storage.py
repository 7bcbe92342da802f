"""What banks take on disk."""

from __future__ import annotations

from pathlib import Path

from bank_maker import make_levels

from napmem_rl.evals.memory_storage import summarise_storage
from napmem_rl.memory.bank import save_bank


def test_bytes_are_those_of_all_files_of_all_banks(tmp_path: Path) -> None:
    banks = [tmp_path / name for name in ("ana", "ben")]
    for bank in banks:
        save_bank(bank, bank_id=bank.name, writer="test", **make_levels())
    found = summarise_storage([*banks, tmp_path / "gone"])
    total = sum(file.stat().st_size for bank in banks for file in bank.rglob("*") if file.is_file())
    assert (found["n"], found["total_bytes"], found["mean_bytes"]) == (2, total, total / 2) and total > 0
    assert sum(found["by_kind"].values()) == total
    assert summarise_storage([tmp_path / "gone"]) == {}
