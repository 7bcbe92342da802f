"""The page of a memory bank: one HTML file that fetches nothing, in which every statement unfolds down to the messages that it rests on.

What people said is hostile data; how the page keeps it from becoming markup is told in `report.page`.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from napmem_rl.atomic import write_file
from napmem_rl.errors import DataError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.versions import list_versions
from napmem_rl.report.bank_data import MAX_MESSAGES, BankSelection, build_bank_data
from napmem_rl.report.page import embed_json, hash_source, read_asset

_SCRIPTS = ("dom.js", "bank_store.js", "bank_items.js", "bank_timeline.js", "bank_search.js", "bank_main.js")
_STYLES = ("report.css", "bank.css")


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenBankPage:
    """What was written: where, how many bytes, and what of the bank is in it."""

    path: Path
    num_bytes: int
    selection: BankSelection

    def describe(self) -> str:
        """One line for people."""
        chosen = self.selection
        shown = f"{len(chosen.records):,} of {chosen.num_records:,} records, {len(chosen.messages):,} of {chosen.num_messages:,} messages"
        return f"page: {self.path} ({self.num_bytes / 1e6:.1f} MB, {shown})"


def write_bank_page(directory: Path, *, out: Path | None = None, version: str | None = None, max_messages: int = MAX_MESSAGES) -> WrittenBankPage:
    """Read a bank and write its page.

    Args:
        directory: of the bank.
        out: the file; <name of the directory>.html in the current directory unless given.
        version: one of the bank's versions; the newest unless given.
        max_messages: at most so many are embedded; the page says which.

    Raises:
        BankError: missing or broken, or no such version.
        DataError: the page would lie inside of the bank.
    """
    bank = MemoryBank.open(directory, version=version)
    path = out or Path(f"{Path(directory).resolve().name}.html")
    if path.resolve().is_relative_to(Path(directory).resolve()):
        raise DataError.of(f"page {path}", "would lie inside of the bank, which holds nothing but itself", fix="Give another --out.")
    commit = next(commit for commit in reversed(list_versions(directory)) if commit.version == bank.version)
    data, selection = build_bank_data(bank, commit, max_messages=max_messages)
    content = render_bank_page(bank.bank_id, data).encode()
    write_file(path, content)
    return WrittenBankPage(path=path, num_bytes=len(content), selection=selection)


def render_bank_page(name: str, data: dict[str, Any]) -> str:
    """The HTML of a page. `name` may be anything; `data` is what the script reads."""
    script = '"use strict";\n' + "\n".join(read_asset(file) for file in _SCRIPTS)
    style = "\n".join(read_asset(file) for file in _STYLES)
    return Template(read_asset("bank.html")).substitute(
        title=html.escape(f"{name} · memory bank"),
        heading=html.escape(name),
        style=style,
        script=script,
        style_hash=f"'{hash_source(style)}'",
        script_hash=f"'{hash_source(script)}'",
        data=embed_json(data),
    )
