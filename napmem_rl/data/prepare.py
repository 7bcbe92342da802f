"""From a data source to a directory that training and evaluation read: banks, rows per split and ``data.json``, all of it or nothing.

A source is taken piece by piece: a bank is written as soon as its messages are there, and only questions, repairs and fingerprints of messages are kept
until the end, so that the size of a source is bounded by the disk and not by memory. (A language model that writes banks gets all users at once, to ask
about many of them side by side: there the messages of the whole source are in memory.)
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from napmem_rl.atomic import swap_directories, write_file
from napmem_rl.data.control_files import FUNCTIONS_FILE
from napmem_rl.data.overlap import FINGERPRINTS
from napmem_rl.data.prepare_tally import Rows, Tally
from napmem_rl.data.rows import save_rows
from napmem_rl.data.source import DataSource, SourceBank, SourcePart
from napmem_rl.data.splits import META
from napmem_rl.errors import ConfigError, DataError, LLMError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.build_many import build_many
from napmem_rl.memory.builder import build_bank
from napmem_rl.memory.storage import find_bank_dir
from napmem_rl.memory.writer_settings import LLMSettings
from napmem_rl.memory.writers.llm_prompts import PROMPT_VERSION
from napmem_rl.retrieval.encoder import Encoder

FORMAT = 2
WRITTEN = {META, "banks", "train.parquet", "dev.parquet", "test.parquet", FINGERPRINTS, FUNCTIONS_FILE}
_TELL_EVERY_S = 10.0


def prepare(
    source: DataSource,
    out: Path,
    *,
    inputs: Sequence[Path],
    split_path: Path | None = None,
    encoder: Encoder | None = None,
    llm: LLMSettings | None = None,
    report: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Write ``<out>/banks/<bank id>/``, ``<out>/{train,dev,test}.parquet`` as far as they have questions, ``fingerprints.parquet`` and ``data.json``.

    Everything is built beside `out` and moved there at the end: an interrupted or failed run leaves an older `out` as it was, and nothing else. A source
    without questions gives banks alone, and the report says so.

    Args:
        source: what to write.
        out: new, empty, or an earlier result of this function, which is replaced.
        inputs: the files that `source` is read from; their hashes are recorded. Empty for what is generated.
        split_path: a split file; None assigns groups by hash, or all to test where the source is a benchmark.
        encoder: dense vectors are computed now, so that no job has to; None computes none.
        llm: the language model that writes records, topics and profiles, with a cache; None for the writer `rules`.
        report: takes progress and, at the end, what was repaired or left out, one line at a time.

    Returns:
        The content of data.json.

    Raises:
        DataError: `out` holds something else, a source that cannot be used, a bad split, rows or banks that cannot be written.
        ConfigError: a language model that cannot be used, or without a cache.
        LLMError: it failed, or its budget is spent, before all banks were complete. The same command goes on: what is in the cache is not asked for again.
    """
    started = time.perf_counter()
    out = out.resolve()  # beside a link's target, and with a name where "." was given
    check_out(out)
    if llm is not None and llm.cache_dir is None:
        raise ConfigError.of("--writer llm", "has no cache, so a run that is stopped would have been paid for in vain", fix="Give --cache-dir.")
    tally = Tally(source)
    out.parent.mkdir(parents=True, exist_ok=True)
    building = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        building.mkdir()
        _build_banks(tally, building / "banks", encoder, llm, report)
        assigned = tally.assign(split_path)
        rows = _save_rows(tally, assigned, building, source)
        meta = {
            "format": FORMAT,
            "source": source.name,
            "benchmark": source.is_benchmark,
            "generated": source.is_generated,
            "inputs": [{"file": path.name, "sha256": hash_file(path)} for path in inputs],
            "writer": "rules" if llm is None else f"llm:{llm.model}/{PROMPT_VERSION}",
            "encoder": encoder.name if encoder else None,
            "split_by": "file" if split_path else "benchmark" if source.is_benchmark else "hash",
            **tally.describe(assigned, rows),
        }
        write_file(building / META, json.dumps(meta, indent=2, ensure_ascii=False) + "\n")
        take_place(building, out)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    for line in (*tally.describe_repairs(), f"{out}: {len(tally.groups)} banks; rows {meta['rows'] or 'none: the source has no questions'}"):
        report(line)
    report(f"done in {time.perf_counter() - started:.1f} s")
    return meta


def _save_rows(tally: Tally, assigned: Mapping[str, str], building: Path, source: DataSource) -> Rows:
    """Write the rows of each split that has some, and the fingerprints where users are compared."""
    rows = tally.split_rows(assigned)
    for split, pairs in rows.items():
        save_rows(building / f"{split}.parquet", pairs, data_source=source.name)
    if not source.is_generated:
        tally.fingerprints.save(building / FINGERPRINTS)
    return rows


def hash_file(path: Path) -> str:
    """SHA-256 of a file, in hex; of a directory, of the names and contents of its files in order."""
    if path.is_dir():
        lines = "".join(f"{hash_file(file)} {file.relative_to(path)}\n" for file in sorted(path.rglob("*")) if file.is_file())
        return hashlib.sha256(lines.encode()).hexdigest()
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_out(out: Path) -> None:
    """Raise DataError where a directory holds something that was not prepared."""
    is_ours = (out / META).is_file()
    if out.exists() and not is_ours and (not out.is_dir() or any(out.iterdir())):
        raise DataError.of(f"output {out}", "holds something that this command did not write", fix="Choose a new or empty directory.")


def _build_banks(tally: Tally, banks: Path, encoder: Encoder | None, llm: LLMSettings | None, report: Callable[[str], None]) -> None:
    """Build every bank, as the source gives them."""
    if llm is not None:
        _ask_for_banks(tally, banks, encoder, llm, report)
        return
    tell = _Teller(report)
    for part in tally.take_all():
        for bank in part.banks:
            _build_bank(tally, bank, banks, encoder, tell)
    tell.finish()


def _build_bank(tally: Tally, bank: SourceBank, banks: Path, encoder: Encoder | None, tell: _Teller) -> None:
    version = build_bank(find_bank_dir(banks, bank.bank_id), bank.bank_id, bank.messages)
    opened = MemoryBank.open(find_bank_dir(banks, bank.bank_id), encoder=encoder, expected_version=version)
    if encoder is not None:
        opened.build_index()
    tally.versions[bank.bank_id] = version
    tell.add(bank.bank_id, f"{len(opened.messages)} messages, {len(opened.records)} records, {len(opened.tracks)} topics")


def _ask_for_banks(tally: Tally, banks: Path, encoder: Encoder | None, llm: LLMSettings, report: Callable[[str], None]) -> None:
    """Have a language model write every bank. Raises LLMError unless all of them are complete."""
    parts: list[SourcePart] = list(tally.take_all())
    messages = {bank.bank_id: bank.messages for part in parts for bank in part.banks}
    summaries = build_many(messages, banks, settings=llm, encoder=encoder, report=report)
    problems = [f"{summary.bank_id}: {summary.problem}" for summary in summaries if summary.problem]
    if problems:
        fix = "Nothing was written. The same command goes on: replies in the cache are not asked for again."
        raise LLMError.of(f"{len(problems)} of {len(summaries)} banks", f"are not complete ({'; '.join(problems[:3])})", fix=fix)
    tally.versions.update({summary.bank_id: str(MemoryBank.open(find_bank_dir(banks, summary.bank_id)).version) for summary in summaries})


class _Teller:
    """Progress: every bank of the first few, then one line in ten seconds."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._started = self._told = time.perf_counter()
        self._number = 0

    def add(self, bank_id: str, counts: str) -> None:
        """One more bank is there."""
        self._number += 1
        now = time.perf_counter()
        if self._number <= 20 or now - self._told >= _TELL_EVERY_S:
            self._report(f"bank {self._number} {bank_id}: {counts}, {now - self._started:.1f} s after the start")
            self._told = now

    def finish(self) -> None:
        """All are there."""
        self._report(f"{self._number} banks in {time.perf_counter() - self._started:.1f} s")


def take_place(building: Path, out: Path) -> None:
    """Put the new directory in the place of the old one, in one step where the system can. What else stands in the old one (a model, a run) is kept."""
    others = [entry.name for entry in out.iterdir() if entry.name not in WRITTEN] if out.exists() else []
    moved: list[str] = []
    try:
        for name in others:
            os.rename(out / name, building / name)
            moved.append(name)
        swap_directories(building, out)
    except BaseException:  # an interrupt too: what was moved is the user's, and `building` is removed on the way out
        for name in moved:
            if (building / name).exists():
                os.rename(building / name, out / name)
        raise
