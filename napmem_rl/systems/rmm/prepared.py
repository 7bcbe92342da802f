"""Online learning leaves a prepared directory: questions as they were, banks of topic memories. `launch/evaluate.py topics --on OUT` asks it."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from napmem_rl.atomic import write_file
from napmem_rl.data.splits import META, SPLITS, read_json
from napmem_rl.errors import DataError
from napmem_rl.memory.versions import list_versions


def write_prepared_directory(source: Path, out: Path, *, split: str, left_out: Collection[str] = ()) -> int:
    """Put questions and a list of banks beside the banks that were written.

    Args:
        source: the prepared directory that was lived through.
        out: holds `banks`; what an earlier call said of other splits' banks stays right.
        split: whose questions were asked.
        left_out: banks that are not finished. Their questions stay, and count as not asked.

    Returns:
        Banks that are listed.

    Raises:
        DataError: the source cannot be read, or `out` is the source itself.
    """
    if source.resolve() == out.resolve():
        raise DataError.of(f"output {out}", "is the directory that is lived through", fix="Give another online.out.")
    meta = read_json(source / META, f"data directory {source}")
    listed = {}
    for bank_id, facts in meta["banks"].items():
        path = out / "banks" / bank_id
        if path.is_dir() and bank_id not in left_out:
            listed[bank_id] = {**facts, "version": str(list_versions(path)[-1].version)}
    asked = [name for name in SPLITS if name == split or (out / f"{name}.parquet").is_file()]
    for name in asked:
        write_file(out / f"{name}.parquet", (source / f"{name}.parquet").read_bytes())
    kept = {name: value for name, value in meta.items() if name in ("format", "source", "benchmark", "generated", "inputs", "split_by", "split")}
    write_file(out / META, json.dumps({**kept, "writer": "rmm", "banks": listed}, indent=2, ensure_ascii=False) + "\n")
    return len(listed)
