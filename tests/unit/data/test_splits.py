"""Splits: fixed by hash, and never two that share a conversation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from napmem_rl.data.rows import save_rows
from napmem_rl.data.splits import assign_splits, check_data_dir, check_disjoint, hash_assignment, load_split_file, split_items
from napmem_rl.errors import DataError
from napmem_rl.schema import AnswerKey, Task

GROUPS = {"c1_ana": "c1", "c1_bo": "c1", "c2_cy": "c2", "c2_di": "c2"}


def pair(bank_id: str, number: int = 0) -> tuple[Task, AnswerKey]:
    task_id = f"{bank_id}:{number}"
    return Task(task_id=task_id, bank_id=bank_id, question="Who?", category="fact", needs_memory=True), AnswerKey(task_id=task_id, references=("x",))


def test_ten_groups_are_cut_six_two_two_in_the_order_of_their_hashes() -> None:
    assigned = assign_splits([f"conv-{number}" for number in range(10)])
    # the first two bytes of sha256sum: 1eef 2, 3652 1, 52c5 7, 53c4 9, 6819 5, 79ce 8, 8225 6, 95a4 3, d68c 0, f20d 4
    assert {int(group[5:]): split for group, split in assigned.items() if split != "train"} == {6: "dev", 3: "dev", 0: "test", 4: "test"}
    assert sorted(int(group[5:]) for group, split in assigned.items() if split == "train") == [1, 2, 5, 7, 8, 9]
    assert assigned == assign_splits([f"conv-{number}" for number in reversed(range(10))] + ["conv-3"])


def test_three_groups_fill_all_splits_and_two_groups_only_train() -> None:
    assert sorted(assign_splits(["a", "b", "c"]).values()) == ["dev", "test", "train"]
    assert assign_splits(["a", "b"]) == {"a": "train", "b": "train"}


def test_questions_follow_their_conversation() -> None:
    items = [pair("c1_ana"), pair("c2_cy"), pair("c1_bo")]
    divided = split_items(items, GROUPS, {"c1": "train", "c2": "dev"})
    assert divided == {"train": [items[0], items[2]], "dev": [items[1]]}


def test_two_speakers_of_one_conversation_in_two_splits_are_refused() -> None:
    check_disjoint({"train": [pair("c1_ana"), pair("c1_bo")], "dev": [pair("c2_cy")]}, GROUPS)
    with pytest.raises(DataError, match=r"c1 is in train \(bank c1_ana\) and in dev \(bank c1_bo\)"):
        check_disjoint({"train": [pair("c1_ana")], "dev": [pair("c1_bo")]}, GROUPS)
    with pytest.raises(DataError, match="unknown group.*'c3_eve'"):
        check_disjoint({"train": [pair("c3_eve")]}, GROUPS)


def test_a_split_file_may_cover_more_than_the_input(tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    path.write_text(json.dumps({"train": ["c1", "c9"], "dev": ["c2"]}))
    assert load_split_file(path, ["c1", "c2", "c2"]) == {"c1": "train", "c2": "dev"}
    path.write_text(json.dumps({"split": {"test": ["c1", "c2"]}, "banks": {}}))
    assert load_split_file(path, ["c1", "c2"]) == {"c1": "test", "c2": "test"}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "not JSON"),
        ('{"train": ["c1"], "valid": ["c2"]}', "not a split"),
        ('{"train": "c1"}', "not a split"),
        ('{"train": ["c1", "c2"], "dev": ["c1"]}', "c1 stands in train and in dev"),
        ('{"train": ["c1"]}', "c2 has no split"),
    ],
)
def test_a_bad_split_file_is_a_data_error(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "split.json"
    path.write_text(content)
    with pytest.raises(DataError, match=expected):
        load_split_file(path, ["c1", "c2"])


def test_a_prepared_directory_with_a_leak_is_refused(tmp_path: Path) -> None:
    rows = {"train": [pair("c1_ana")], "test": [pair("c2_cy")]}
    split = {"train": ["c1"], "test": ["c2"]}
    fixed = hash_assignment(split, GROUPS, {name: [task.task_id for task, _ in pairs] for name, pairs in rows.items()})
    meta = {"banks": {bank: {"group": group} for bank, group in GROUPS.items()}, "split": split, "assignment_sha256": fixed}
    (tmp_path / "data.json").write_text(json.dumps(meta))
    for name, pairs in rows.items():
        save_rows(tmp_path / f"{name}.parquet", pairs, data_source="handmade")
    assert check_data_dir(tmp_path) == meta
    save_rows(tmp_path / "test.parquet", [pair("c2_cy", 1)], data_source="handmade")
    with pytest.raises(DataError, match="not in the splits that data.json fixed"):
        check_data_dir(tmp_path)
    save_rows(tmp_path / "test.parquet", [pair("c1_bo")], data_source="handmade")
    with pytest.raises(DataError, match="which share text"):
        check_data_dir(tmp_path)
