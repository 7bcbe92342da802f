"""Rows on disk: what is written comes back, and a row that teaches nothing is refused by number."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from napmem_rl.data.rows import AGENT_NAME, COLUMNS, load_rows, row_to_key, row_to_task, save_rows
from napmem_rl.errors import DataError
from napmem_rl.schema import AnswerKey, Task

TASK = Task(task_id="t1", bank_id="ana", question="Where does Ana live?", category="fact", needs_memory=True, asked_at="2024-05-01T09:00:00")
KEY = AnswerKey(task_id="t1", references=("Oslo", "in Oslo"), evidence_ids=("msg:12",))
CHOICE = Task(task_id="t2", bank_id="ana", question="Which city?", category="fact", needs_memory=False, options=("Rome", "Oslo"))
CHOICE_KEY = AnswerKey(task_id="t2", references=("B",))


def write_raw(path: Path, rows: list[dict]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def raw_row(task: Task = TASK, key: AnswerKey = KEY) -> dict:
    return {"task": json.dumps(dataclasses.asdict(task)), "answer_key": json.dumps(dataclasses.asdict(key))}


def test_saved_pairs_come_back_equal_and_in_order(tmp_path: Path) -> None:
    save_rows(tmp_path / "train.parquet", [(CHOICE, CHOICE_KEY), (TASK, KEY)], data_source="handmade")
    assert load_rows(tmp_path / "train.parquet") == [(CHOICE, CHOICE_KEY), (TASK, KEY)]
    assert [path.name for path in tmp_path.iterdir()] == ["train.parquet"]


def test_columns_are_the_ones_verl_reads(tmp_path: Path) -> None:
    save_rows(tmp_path / "train.parquet", [(TASK, KEY)], data_source="handmade")
    table = pq.read_table(tmp_path / "train.parquet")
    assert tuple(table.column_names) == COLUMNS
    row = table.to_pylist()[0]
    assert row["prompt"] == [{"role": "user", "content": "Where does Ana live?"}]
    assert row["extra_info"] == {"index": 0} and row["agent_name"] == AGENT_NAME and row["data_source"] == "handmade"
    assert row_to_task(row) == TASK and row_to_key(row) == KEY


def test_the_task_column_holds_nothing_of_the_answer(tmp_path: Path) -> None:
    save_rows(tmp_path / "train.parquet", [(TASK, KEY)], data_source="handmade")
    row = pq.read_table(tmp_path / "train.parquet").to_pylist()[0]
    shown = json.dumps({name: value for name, value in row.items() if name != "answer_key"})
    assert "Oslo" not in shown and "msg:12" not in shown


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"answer_key": json.dumps({"task_id": "t9", "references": []})}, "has no answer"),
        ({"answer_key": json.dumps({"task_id": "t9", "references": ["  "]})}, "has no answer"),
        ({"answer_key": json.dumps({"task_id": "t9", "references": [7]})}, "a list of strings"),
        ({"answer_key": json.dumps({"task_id": "other", "references": ["x"]})}, "belongs to another task"),
        ({"answer_key": "{not json"}, "not JSON text"),
        ({"task": "[]"}, "not a JSON object"),
        ({"task": None}, "not JSON text"),
        ({"task": json.dumps({"task_id": "t9"})}, "missing key 'bank_id'"),
        ({"task": json.dumps({**dataclasses.asdict(TASK), "task_id": "t9", "answer": "Oslo"})}, "unknown key 'answer'"),
        ({"task": json.dumps({**dataclasses.asdict(TASK), "task_id": "t9", "question": " "})}, "question is empty"),
        ({"task": json.dumps({**dataclasses.asdict(TASK), "task_id": "t9", "needs_memory": "yes"})}, "true or false"),
        ({"task": json.dumps({**dataclasses.asdict(TASK), "task_id": "t9", "asked_at": "8 May 2023"})}, "asked_at is not a moment; got '8 May 2023'"),
        ({"task": json.dumps({**dataclasses.asdict(TASK), "task_id": "t9", "asked_at": "2024-05-01T09:00:00Z"})}, "ISO 8601 without a zone"),
        ({"task": json.dumps({**dataclasses.asdict(TASK), "task_id": "t9", "options": ["a", "b"]})}, "one letter of AB"),
    ],
)
def test_a_bad_row_is_refused_with_its_number(tmp_path: Path, change: dict, expected: str) -> None:
    good = raw_row(dataclasses.replace(TASK, task_id="t9"), dataclasses.replace(KEY, task_id="t9"))
    path = write_raw(tmp_path / "bad.parquet", [raw_row(), {**good, **change}])
    with pytest.raises(DataError, match=r"row 1 \(counting from 0\)") as caught:
        load_rows(path)
    assert expected in str(caught.value)


def test_a_repeated_task_id_names_both_rows(tmp_path: Path) -> None:
    path = write_raw(tmp_path / "twice.parquet", [raw_row(), raw_row(CHOICE, CHOICE_KEY), raw_row()])
    with pytest.raises(DataError, match=r"row 2 .*stands in row 0 too"):
        load_rows(path)


def test_a_missing_column_names_the_columns(tmp_path: Path) -> None:
    path = write_raw(tmp_path / "short.parquet", [{"task": raw_row()["task"]}])
    with pytest.raises(DataError, match="missing column 'answer_key'.*expected the columns data_source"):
        load_rows(path)


def test_missing_broken_and_empty_files_are_data_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load_rows(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("not parquet")
    with pytest.raises(DataError, match="not a readable parquet file"):
        load_rows(tmp_path / "text.parquet")
    with pytest.raises(DataError, match="no rows"):
        save_rows(tmp_path / "empty.parquet", [], data_source="handmade")


def test_a_refused_save_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    save_rows(path, [(TASK, KEY)], data_source="handmade")
    with pytest.raises(DataError, match="has no answer"):
        save_rows(path, [(TASK, AnswerKey(task_id="t1", references=()))], data_source="handmade")
    assert load_rows(path) == [(TASK, KEY)]
    assert [entry.name for entry in tmp_path.iterdir()] == ["train.parquet"]
