"""From a data source to a directory that training reads: banks, rows per split and ``data.json``, all of it or nothing."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from napmem_rl.atomic import swap_directories, write_file
from napmem_rl.data.rows import save_rows
from napmem_rl.data.source import SourceSet
from napmem_rl.data.splits import META, SPLITS, assign_splits, check_disjoint, load_split_file, split_items
from napmem_rl.errors import ConfigError, DataError, LLMError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.build_many import build_many
from napmem_rl.memory.builder import build_bank
from napmem_rl.memory.storage import find_bank_dir
from napmem_rl.memory.writer_settings import LLMSettings
from napmem_rl.memory.writers.llm_prompts import PROMPT_VERSION
from napmem_rl.retrieval.encoder import Encoder

FORMAT = 1
_WRITTEN = {META, "banks", "train.parquet", "dev.parquet", "test.parquet"}


def prepare(
    source: SourceSet,
    out: Path,
    *,
    input_path: Path,
    split_path: Path | None = None,
    encoder: Encoder | None = None,
    llm: LLMSettings | None = None,
    report: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Write ``<out>/banks/<bank id>/``, ``<out>/{train,dev,test}.parquet`` as far as they have questions, and ``<out>/data.json``.

    Everything is built beside `out` and moved there at the end: an interrupted or failed run leaves an older `out` as it was, and nothing else.

    Args:
        source: what to write.
        out: new, empty, or an earlier result of this function, which is replaced.
        input_path: the file that `source` was read from; its hash is recorded.
        split_path: a split file; None assigns groups by hash.
        encoder: dense vectors are computed now, so that no job has to; None computes none.
        llm: the language model that writes records, topics and profiles, with a cache; None for the writer `rules`.
        report: takes progress, one line at a time.

    Returns:
        The content of data.json.

    Raises:
        DataError: `out` holds something else, a bad split, rows or banks that cannot be written.
        ConfigError: a language model that cannot be used, or without a cache.
        LLMError: it failed, or its budget is spent, before all banks were complete. The same command goes on: what is in the cache is not asked for again.
    """
    started = time.perf_counter()
    out = out.resolve()  # beside a link's target, and with a name where "." was given
    _check_out(out)
    if llm is not None and llm.cache_dir is None:
        raise ConfigError.of("--writer llm", "has no cache, so a run that is stopped would have been paid for in vain", fix="Give --cache-dir.")
    assigned = load_split_file(split_path, source.groups.values()) if split_path else assign_splits(source.groups.values())
    splits = split_items(source.items, source.groups, assigned)
    check_disjoint(splits, source.groups)
    out.parent.mkdir(parents=True, exist_ok=True)
    building = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        building.mkdir()
        versions = _build_banks(source, building / "banks", encoder, llm, report)
        for split, pairs in splits.items():
            save_rows(building / f"{split}.parquet", pairs, data_source=source.name)
        meta = {
            "format": FORMAT,
            "source": source.name,
            "input": {"file": input_path.name, "sha256": hash_file(input_path)},
            "writer": "rules" if llm is None else f"llm:{llm.model}/{PROMPT_VERSION}",
            "encoder": encoder.name if encoder else None,
            "split_by": "file" if split_path else "hash",
            "rows": {split: len(pairs) for split, pairs in splits.items()},
            **_describe(source, assigned, versions),
        }
        write_file(building / META, json.dumps(meta, indent=2, ensure_ascii=False) + "\n")
        _take_place(building, out)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    report(f"{out}: {len(source.banks)} banks; rows {meta['rows']}; {len(source.repairs)} repairs {meta['summary']['repairs_by_kind']}")
    report(f"done in {time.perf_counter() - started:.1f} s")
    return meta


def hash_file(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_out(out: Path) -> None:
    is_ours = (out / META).is_file()
    if out.exists() and not is_ours and (not out.is_dir() or any(out.iterdir())):
        raise DataError.of(f"output {out}", "holds something that this command did not write", fix="Choose a new or empty directory.")


def _build_banks(source: SourceSet, banks: Path, encoder: Encoder | None, llm: LLMSettings | None, report: Callable[[str], None]) -> dict[str, str]:
    """Build every bank; returns bank id -> version."""
    if llm is not None:
        return _ask_for_banks(source, banks, encoder, llm, report)
    versions = {}
    for number, bank in enumerate(source.banks, start=1):
        started = time.perf_counter()
        versions[bank.bank_id] = build_bank(find_bank_dir(banks, bank.bank_id), bank.bank_id, bank.messages)
        opened = MemoryBank.open(find_bank_dir(banks, bank.bank_id), encoder=encoder, expected_version=versions[bank.bank_id])
        if encoder is not None:
            opened.build_index()
        counts = f"{len(opened.messages)} messages, {len(opened.records)} records, {len(opened.tracks)} topics"
        report(f"bank {number}/{len(source.banks)} {bank.bank_id}: {counts}, {time.perf_counter() - started:.1f} s")
    return versions


def _ask_for_banks(source: SourceSet, banks: Path, encoder: Encoder | None, llm: LLMSettings, report: Callable[[str], None]) -> dict[str, str]:
    """Have a language model write every bank; returns bank id -> version. Raises LLMError unless all of them are complete."""
    summaries = build_many({bank.bank_id: bank.messages for bank in source.banks}, banks, settings=llm, encoder=encoder, report=report)
    problems = [f"{summary.bank_id}: {summary.problem}" for summary in summaries if summary.problem]
    if problems:
        fix = "Nothing was written. The same command goes on: replies in the cache are not asked for again."
        raise LLMError.of(f"{len(problems)} of {len(summaries)} banks", f"are not complete ({'; '.join(problems[:3])})", fix=fix)
    return {summary.bank_id: str(MemoryBank.open(find_bank_dir(banks, summary.bank_id)).version) for summary in summaries}


def _describe(source: SourceSet, assigned: Mapping[str, str], versions: Mapping[str, str]) -> dict[str, Any]:
    """What data.json says of the source: groups of each split, banks with group, split and version, counts and repairs."""
    return {
        "split": {split: sorted(group for group, name in assigned.items() if name == split) for split in SPLITS},
        "banks": {bank.bank_id: {"group": bank.group_id, "split": assigned[bank.group_id], "version": versions[bank.bank_id]} for bank in source.banks},
        "summary": source.summary(),
        "repairs": [dataclasses.asdict(repair) for repair in source.repairs],
    }


def _take_place(building: Path, out: Path) -> None:
    """Put the new directory in the place of the old one, in one step where the system can. What else stands in the old one (a model, a run) is kept."""
    others = [entry.name for entry in out.iterdir() if entry.name not in _WRITTEN] if out.exists() else []
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
