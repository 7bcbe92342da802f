"""Control tasks: multiple choice and function calls out of files, on samples of our own, given to banks of a prepared directory."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from napmem_rl.data.control_files import AcceptedCall, load_bfcl, load_functions, load_gpqa
from napmem_rl.data.prepare import prepare
from napmem_rl.data.prepare_controls import prepare_controls
from napmem_rl.data.rows import load_rows
from napmem_rl.data.sources import build_synthetic
from napmem_rl.data.splits import check_data_dir
from napmem_rl.errors import DataError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.tools.spec import check_arguments

BANKS = [f"bank-{number}" for number in range(5)]
SCHEMA = {
    "name": "orchard.count",
    "description": "Count trees.",
    "parameters": {
        "type": "dict",
        "properties": {"rows": {"type": "integer"}, "gap": {"type": "float"}, "kind": {"type": "string"}, "tags": {"type": "array", "items": {"type": "any"}}},
        "required": ["rows"],
    },
}
REQUEST: dict[str, Any] = {
    "id": "exec_simple_0",
    "question": [[{"role": "user", "content": "Count the trees of three rows, half a metre apart."}]],
    "function": [SCHEMA],
    "ground_truth": ["orchard.count(rows=3, gap=0.5)"],
}


def write_lines(path: Path, *objects: Any) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in objects))
    return path


def test_gpqa_rows_become_shuffled_choices_without_need_of_memory_on_banks_drawn_by_seed(tmp_path: Path) -> None:
    path = tmp_path / "choices.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["Question", "Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3", "Explanation", "Record ID"])
        writer.writerows([[f"What is {n} + {n}?", f"{2 * n}\n", "0", "1", "-1", "Add them.", f"r{n}"] for n in range(1, 41)])
    found, again = load_gpqa(path, BANKS), load_gpqa(path, BANKS[::-1])
    assert found == again, "the order of banks makes no difference"
    for number, (task, key) in enumerate(found.items, start=1):
        assert task.options["ABCD".index(key.references[0])] == str(2 * number) and task.needs_memory is False
    assert {task.bank_id for task, _ in found.items} == set(BANKS) and found.items[0][0].task_id == "gpqa:r1"
    assert [key for _, key in load_gpqa(path, BANKS, seed=1).items] != [key for _, key in found.items]


def test_gpqa_style_json_is_read_too_and_options_that_repeat_are_refused(tmp_path: Path) -> None:
    row = {"question": "Which is a fruit?", "correct_answer": "fig", "incorrect_answers": ["brick", "spoon"]}
    ((task, key),) = load_gpqa(write_lines(tmp_path / "q.jsonl", row), BANKS).items
    assert sorted(task.options) == ["brick", "fig", "spoon"] and task.options["ABC".index(key.references[0])] == "fig"
    with pytest.raises(DataError, match="row 1: its options are not 2 to 26 different texts"):
        load_gpqa(write_lines(tmp_path / "q.jsonl", row | {"incorrect_answers": ["fig"]}), BANKS)


def test_bfcl_schemas_become_json_schemas_and_calls_in_python_syntax_accepted_values(tmp_path: Path) -> None:
    found = load_bfcl(write_lines(tmp_path / "exec.json", REQUEST), BANKS)
    ((task, key),) = found.functions
    assert key.calls == (AcceptedCall(name="orchard.count", arguments={"rows": (3,), "gap": (0.5,)}),)
    assert found.items[0][1].references == ("orchard.count(rows=3, gap=0.5)",) and task.task.category == "exec_simple"
    assert check_arguments(task.functions[0], {"rows": 3, "gap": 0.5, "tags": ["a", 1]}) is None
    assert "must be of type integer" in str(check_arguments(task.functions[0], {"rows": "three"}))


def test_bfcl_answers_may_stand_in_a_second_file_with_several_values_and_arguments_that_may_be_left_out(tmp_path: Path) -> None:
    request = {key: value for key, value in REQUEST.items() if key != "ground_truth"}
    answers = write_lines(tmp_path / "answers.json", {"id": "exec_simple_0", "ground_truth": [{"orchard.count": {"rows": [3], "kind": ["oak", "Oak", ""]}}]})
    path = write_lines(tmp_path / "q.json", request)
    ((_, key),) = load_bfcl(path, BANKS, answers=answers).functions
    assert key.calls == (AcceptedCall(name="orchard.count", arguments={"rows": (3,), "kind": ("oak", "Oak")}, optional=("kind",)),)
    with pytest.raises(DataError, match="id exec_simple_0: has no ground truth"):
        load_bfcl(path, BANKS)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ground_truth": ["orchard.count(3)"]}, "no call with keyword arguments alone"),
        ({"ground_truth": ["__import__('os').system('x')"]}, "is no call|is not offered"),
        ({"ground_truth": ["orchard.prune(rows=3)"]}, "calls a function that is not offered; got 'orchard.prune'"),
        ({"ground_truth": [7]}, "is no call; got 7"),
        ({"function": [{"name": "x"}]}, "not BFCL's format: no field 'parameters'"),
    ],
)
def test_a_bad_request_is_named_with_its_id(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(DataError, match=f"id exec_simple_0.*({expected})"):
        load_bfcl(write_lines(tmp_path / "q.json", REQUEST | changes), BANKS)


def test_requests_of_several_turns_are_left_out_and_counted(tmp_path: Path) -> None:
    found = load_bfcl(write_lines(tmp_path / "q.json", REQUEST, REQUEST | {"id": "multi_0", "question": REQUEST["question"] * 2}), BANKS)
    assert len(found.items) == 1 and [(repair.group_id, repair.kind) for repair in found.repairs] == [("multi_0", "dropped_several_turns")]


def test_prepared_controls_carry_their_banks_and_their_functions_and_spare_users_that_were_trained_on(tmp_path: Path) -> None:
    users = prepare(build_synthetic(5, seed=3, num_questions=6), tmp_path / "users", inputs=[], report=lambda line: None)
    path = write_lines(tmp_path / "q.json", *(REQUEST | {"id": f"exec_simple_{number}"} for number in range(12)))
    prepare_controls(lambda banks: load_bfcl(path, banks), tmp_path / "controls", banks=tmp_path / "users", inputs=[path], report=lambda line: None)
    meta = check_data_dir(tmp_path / "controls")
    held_out = {bank_id for bank_id, entry in users["banks"].items() if entry["split"] != "train"}
    assert set(meta["banks"]) <= held_out and meta["benchmark"] is True and meta["rows"] == {"test": 12}
    for bank_id, entry in meta["banks"].items():
        assert MemoryBank.open(tmp_path / "controls" / "banks" / bank_id).version == entry["version"] == users["banks"][bank_id]["version"]
    tasks = [task for task, _ in load_rows(tmp_path / "controls" / "test.parquet")]
    assert load_functions(tmp_path / "controls", tasks) == load_bfcl(path, sorted(held_out)).functions
    assert load_functions(tmp_path / "users", tasks) == []
