"""Splits by group: banks that share text never part, so that nothing of a test conversation is seen in training.

Without a split file, groups are put in the order of the SHA-256 of their id and cut by shares (60 / 20 / 20, NapMem section 4.1). The order depends on the
ids alone, the cuts on how many there are: keep the assignment that ``data.json`` records, and hand it back as a split file, when a source grows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from napmem_rl.data.rows import load_rows
from napmem_rl.errors import DataError
from napmem_rl.schema import AnswerKey, Task

SPLITS = ("train", "dev", "test")
META = "data.json"  # what a prepared directory says of itself
Pairs = Sequence[tuple[Task, AnswerKey]]


def assign_splits(group_ids: Iterable[str], shares: Sequence[float] = (0.6, 0.2, 0.2)) -> dict[str, str]:
    """Give each group its split by hash, the same on every machine.

    Args:
        group_ids: ids, in any order; repeats count once.
        shares: of train, dev and test; they sum to 1.

    Returns:
        Group id -> "train", "dev" or "test". With at least three groups no split is empty.
    """
    assert len(shares) == len(SPLITS) and abs(sum(shares) - 1) < 1e-9, f"shares {shares} must be three numbers that sum to 1"
    ordered = sorted(set(group_ids), key=lambda group: hashlib.sha256(group.encode()).hexdigest())
    held_out = [max(1, round(share * len(ordered))) if len(ordered) >= len(SPLITS) else 0 for share in shares[1:]]
    num_train = len(ordered) - sum(held_out)
    names = ["train"] * num_train + ["dev"] * held_out[0] + ["test"] * held_out[1]
    return dict(zip(ordered, names, strict=True))


def load_split_file(path: Path | str, group_ids: Iterable[str]) -> dict[str, str]:
    """Read an assignment ``{"train": [group ids], "dev": […], "test": […]}``, or the ``split`` of a ``data.json``.

    Ids that the source does not hold are passed over: a split file may cover more than one file of a set.

    Raises:
        DataError: missing or no JSON, unknown split name, a group in two splits, a group of the source in none.
    """
    what = f"split file {path}"
    raw = read_json(path, what)
    raw = raw.get("split", raw) if isinstance(raw, dict) else raw
    is_lists = isinstance(raw, dict) and all(isinstance(ids, list) and all(isinstance(group, str) for group in ids) for ids in raw.values())
    if not is_lists or set(raw) - set(SPLITS):
        raise DataError.of(what, "not a split", got=raw, expected='{"train": [ids], "dev": [ids], "test": [ids]}')
    assigned: dict[str, str] = {}
    for split, ids in raw.items():
        for group in ids:
            if assigned.get(group, split) != split:
                raise DataError.of(what, f"{group} stands in {assigned[group]} and in {split}", expected="each group in one split")
            assigned[group] = split
    groups = sorted(set(group_ids))
    missing = [group for group in groups if group not in assigned]
    if missing:
        raise DataError.of(what, f"{missing[0]} has no split", got=sorted(assigned), expected="every group of the input", fix="Add it to the file.")
    return {group: assigned[group] for group in groups}


def split_items(items: Pairs, groups: Mapping[str, str], assigned: Mapping[str, str]) -> dict[str, list[tuple[Task, AnswerKey]]]:
    """Divide questions by the split of their bank's group; splits without questions are left out, train, dev, test in this order."""
    divided = {split: [(task, key) for task, key in items if assigned[groups[task.bank_id]] == split] for split in SPLITS}
    return {split: pairs for split, pairs in divided.items() if pairs}


def check_disjoint(splits: Mapping[str, Pairs], groups: Mapping[str, str]) -> None:
    """Refuse splits that share a group.

    Args:
        splits: split name -> its questions.
        groups: bank id -> group id.

    Raises:
        DataError: a question to a bank of unknown group, or a group in two splits.
    """
    owner: dict[str, tuple[str, str]] = {}
    for split, pairs in splits.items():
        for bank_id in dict.fromkeys(task.bank_id for task, _ in pairs):
            if bank_id not in groups:
                raise DataError.of(f"split {split}", "a question belongs to a bank of unknown group", got=bank_id, expected=f"one of {len(groups)} known banks")
            group = groups[bank_id]
            other, other_bank = owner.setdefault(group, (split, bank_id))
            if other != split:
                problem = f"{group} is in {other} (bank {other_bank}) and in {split} (bank {bank_id}), which share text"
                raise DataError.of("splits", problem, expected="each group in one split", fix="Split by group, not by bank.")


def hash_assignment(split: Mapping[str, Sequence[str]], groups: Mapping[str, str], task_ids: Mapping[str, Iterable[str]]) -> str:
    """One hash of who is where: SHA-256, in hex, of groups by split, bank by group, and task ids by split, each in sorted order.

    Args:
        split: split name -> its groups.
        groups: bank id -> group id.
        task_ids: split name -> ids of its rows; splits without rows may be left out.
    """
    parts = {
        "split": {name: sorted(ids) for name, ids in split.items()},
        "groups": dict(groups),
        "tasks": {name: sorted(ids) for name, ids in task_ids.items()},
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()


def check_data_dir(data_dir: Path | str) -> dict[str, Any]:
    """Read and check a prepared directory: rows load, splits share no group, every question's bank is listed, and all stands where it was put.

    Returns:
        The content of its ``data.json``.

    Raises:
        DataError: any of that fails.
    """
    data_dir = Path(data_dir)
    meta = _load_meta(data_dir)
    rows = {split: load_rows(data_dir / f"{split}.parquet") for split in SPLITS if (data_dir / f"{split}.parquet").exists()}
    groups = _read_groups(meta)
    check_disjoint(rows, groups)
    found = hash_assignment(meta.get("split", {}), groups, {split: [task.task_id for task, _ in pairs] for split, pairs in rows.items()})
    if meta.get("assignment_sha256") != found:
        problem = f"banks, groups or rows are not in the splits that {META} fixed"
        fix = "Prepare the directory again with launch/prepare_data.py."
        raise DataError.of(f"data directory {data_dir}", problem, got=found[:16], expected=str(meta.get("assignment_sha256"))[:16], fix=fix)
    return meta


def check_job_splits(data_dir: Path, splits: Mapping[str, Pairs]) -> None:
    """Refuse rows of a job that share a group, as far as the directory's ``data.json`` names groups; a bank that it does not list is a group of its own.

    A directory without ``data.json`` (written by hand) says nothing of groups and passes.

    Raises:
        DataError: a group in two splits, or a ``data.json`` that cannot be read.
    """
    if (data_dir / META).is_file():
        own = {task.bank_id: task.bank_id for pairs in splits.values() for task, _ in pairs}
        check_disjoint(splits, own | _read_groups(_load_meta(data_dir)))


def _load_meta(data_dir: Path) -> dict[str, Any]:
    meta = read_json(data_dir / META, f"data directory {data_dir}")
    banks = meta.get("banks") if isinstance(meta, dict) else None
    if not isinstance(banks, dict) or not all(isinstance(entry, dict) and isinstance(entry.get("group"), str) for entry in banks.values()):
        fix = "Prepare the directory again with launch/prepare_data.py."
        raise DataError.of(f"data directory {data_dir}", f"{META} lists no banks with their groups", fix=fix)
    return meta


def _read_groups(meta: Mapping[str, Any]) -> dict[str, str]:
    """Bank id -> group id."""
    return {bank_id: entry["group"] for bank_id, entry in meta["banks"].items()}


def read_json(path: Path | str, what: str) -> Any:
    """Parse a JSON file.

    Raises:
        DataError: missing, unreadable or not JSON.
    """
    path = Path(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError.of(what, "the file does not exist", got=str(path)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError.of(what, f"cannot be read as text ({error})") from error
    except ValueError as error:
        raise DataError.of(what, f"not JSON ({error})", fix="Give the file as it was published.") from error
