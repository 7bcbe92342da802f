"""Control tasks as a prepared directory of their own: the tasks, and copies of the banks that they were given to."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from napmem_rl.atomic import write_file
from napmem_rl.data.control_files import FUNCTIONS_FILE, ControlSet, save_functions
from napmem_rl.data.overlap import FINGERPRINTS, Fingerprints
from napmem_rl.data.prepare import FORMAT, check_out, hash_file, take_place
from napmem_rl.data.rows import save_rows
from napmem_rl.data.splits import META, SPLITS, check_data_dir, hash_assignment
from napmem_rl.errors import DataError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.storage import find_bank_dir


def prepare_controls(
    load: Callable[[Sequence[str]], ControlSet], out: Path, *, banks: Path, inputs: Sequence[Path], report: Callable[[str], None] = print
) -> dict[str, Any]:
    """Write control tasks with the banks that they ask, as ``<out>/test.parquet``, ``<out>/banks/``, ``data.json`` and, for calls, ``functions.jsonl``.

    Args:
        load: makes the tasks for the ids of banks that it is given.
        out: new, empty, or an earlier result, which is replaced.
        banks: a prepared directory. Its banks of dev and test are drawn from, so that no control asks the memory of a user that was trained on; where there
            are none, all.
        inputs: the files that the tasks are read from; their hashes are recorded.
        report: takes a few lines at the end.

    Returns:
        The content of data.json.

    Raises:
        DataError: files or a directory that cannot be used.
    """
    out, banks = out.resolve(), banks.resolve()
    check_out(out)
    meta = check_data_dir(banks)
    held_out = [bank_id for bank_id, entry in meta["banks"].items() if entry["split"] != "train"]
    controls = load(held_out or list(meta["banks"]))
    if not controls.items:
        raise DataError.of(f"control tasks {', '.join(map(str, inputs))}", "there are none that can be used")
    used = sorted({task.bank_id for task, _ in controls.items})
    out.parent.mkdir(parents=True, exist_ok=True)
    building = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        building.mkdir()
        fingerprints = Fingerprints()
        for bank_id in used:
            shutil.copytree(find_bank_dir(banks / "banks", bank_id), find_bank_dir(building / "banks", bank_id))
            bank = MemoryBank.open(find_bank_dir(building / "banks", bank_id), expected_version=meta["banks"][bank_id]["version"])
            fingerprints.add(bank_id, meta["banks"][bank_id]["group"], bank.messages)
        fingerprints.save(building / FINGERPRINTS)
        save_rows(building / "test.parquet", controls.items, data_source=controls.name)
        if controls.functions:
            save_functions(building / FUNCTIONS_FILE, controls.functions)
        described = _describe(controls, meta, used, inputs)
        write_file(building / META, json.dumps(described, indent=2, ensure_ascii=False) + "\n")
        take_place(building, out)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    kinds = described["summary"]["repairs_by_kind"]
    report(f"{out}: {len(controls.items)} control tasks on {len(used)} banks of {banks}; left out: {kinds or 'none'}")
    return described


def _describe(controls: ControlSet, source: Mapping[str, Any], used: Sequence[str], inputs: Sequence[Path]) -> dict[str, Any]:
    """What data.json says."""
    banks = {bank_id: source["banks"][bank_id] | {"split": "test"} for bank_id in used}
    groups = {bank_id: entry["group"] for bank_id, entry in banks.items()}
    split: dict[str, list[str]] = {name: [] for name in SPLITS} | {"test": sorted(set(groups.values()))}
    kinds = [repair.kind for repair in controls.repairs]
    return {
        "format": FORMAT,
        "source": controls.name,
        "benchmark": True,
        "generated": source["generated"],
        "inputs": [{"file": path.name, "sha256": hash_file(path)} for path in inputs],
        "banks_of": source["source"],
        "writer": source["writer"],
        "encoder": source["encoder"],
        "split_by": "benchmark",
        "rows": {"test": len(controls.items)},
        "split": split,
        "assignment_sha256": hash_assignment(split, groups, {"test": [task.task_id for task, _ in controls.items]}),
        "banks": banks,
        "summary": {"banks": len(used), "questions": len(controls.items), "repairs_by_kind": {kind: kinds.count(kind) for kind in sorted(set(kinds))}},
        "repairs": [dataclasses.asdict(repair) for repair in controls.repairs],
    }
