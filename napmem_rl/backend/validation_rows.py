"""Validation rows that bring their own temperature: verl has one set of validation sampling values, and greedy should stand beside sampled."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from napmem_rl.atomic import open_replacement
from napmem_rl.data.rows import load_rows
from napmem_rl.errors import DataError


def write_sampled_rows(source: Path, target: Path, *, temperature: float, suffix: str) -> None:
    """Copy a file of rows, atomically, so that a validation samples them at `temperature` and reports them under their own name.

    List both files in `data.val_files`; verl then reports ``val-core/<data source><suffix>/…`` for each.

    Args:
        source: rows as `save_rows` wrote them.
        target: the copy.
        temperature: 0 is greedy.
        suffix: appended to `data_source`, e.g. ``"/greedy"``.

    Raises:
        DataError: the source cannot be used, or the temperature is negative.
    """
    if temperature < 0:
        raise DataError.of(f"rows {target}", "negative temperature", got=temperature, expected="0 for greedy, or above")
    load_rows(source)
    rows = pq.read_table(source).to_pylist()
    for row in rows:
        row["data_source"] += suffix
        row["extra_info"] = {**row["extra_info"], "temperature": float(temperature)}
    with open_replacement(target) as file:
        pq.write_table(pa.Table.from_pylist(rows), file)
