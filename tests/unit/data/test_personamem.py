"""PersonaMem-v2 in its published schema, on samples of our own."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from napmem_rl.data.personamem import load_personamem
from napmem_rl.data.source import SourceSet, collect
from napmem_rl.errors import DataError

HISTORY = [
    {"role": "system", "content": "You help a user who likes quiet gardens."},
    {"role": "user", "content": "My garden has no fountain, I like it quiet."},
    {"role": "assistant", "content": "Quiet it is."},
    {"role": "user", "content": [{"type": "text", "text": "Look at this."}, {"type": "image_url", "image_url": {"url": "x"}}]},
]
ROW = {
    "persona_id": "4",
    "chat_history_32k_link": "data/chat_history_32k/h_persona4.json",
    "chat_history_128k_link": "data/chat_history_128k/h_persona4.json",
    "user_query": str({"role": "user", "content": "What should I put in my garden?"}),
    "correct_answer": "A bench under the tree.",
    "incorrect_answers": json.dumps(["A fountain.", "A wind chime.", "A radio."]),
    "pref_type": "therapy_background",
    "related_conversation_snippet": json.dumps(HISTORY[1:3]),
}


def write(tmp_path: Path, *rows: dict[str, str], history: Any = None) -> Path:
    for size in ("32k", "128k"):
        file = tmp_path / "data" / f"chat_history_{size}" / "h_persona4.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"metadata": {"persona_id": 4}, "chat_history": HISTORY if history is None else history}))
    path = tmp_path / "benchmark" / "text" / "benchmark.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROW))
        writer.writeheader()
        writer.writerows(rows or [ROW])
    return path


def load(*arguments: Any, seed: int = 0, **more: Any) -> SourceSet:
    return collect(load_personamem(write(*arguments, **more), seed=seed))


def test_a_row_is_a_multiple_choice_to_the_linked_history_without_its_system_message(tmp_path: Path) -> None:
    source = load(tmp_path)
    (bank,), ((task, key),) = source.banks, source.items
    assert [message.text for message in bank.messages] == ["My garden has no fountain, I like it quiet.", "Quiet it is.", "Look at this."]
    assert (bank.group_id, task.bank_id, task.category) == ("persona-4", bank.bank_id, "therapy_background")
    assert task.question == "What should I put in my garden?" and task.asked_at == "2024-01-01T09:04:00"
    assert sorted(task.options) == ["A bench under the tree.", "A fountain.", "A radio.", "A wind chime."]
    assert task.options["ABCD".index(key.references[0])] == "A bench under the tree."
    assert key.evidence_ids == ("msg:1", "msg:2")
    assert source.summary()["repairs_by_kind"] == {"image": 1, "system_message": 1}


def test_the_order_of_options_follows_from_seed_and_row_and_the_right_one_has_no_place_of_its_own(tmp_path: Path) -> None:
    rows = [ROW] * 60
    first, again, other = (load(tmp_path, *rows, seed=seed) for seed in (0, 0, 1))
    assert first == again
    letters = [key.references[0] for _, key in first.items]
    assert letters != [key.references[0] for _, key in other.items]
    assert min(letters.count(letter) for letter in "ABCD") >= 6, "of 60, 15 are expected"


def test_what_is_odd_in_a_row_is_put_right_or_left_out_and_reported(tmp_path: Path) -> None:
    source = load(
        tmp_path,
        ROW | {"user_query": "plain words", "related_conversation_snippet": ""},
        ROW | {"incorrect_answers": "[]"},
        ROW | {"incorrect_answers": str(["A fountain.", "A fountain.", "A bench under the tree."])},
    )
    assert [task.question for task, _ in source.items] == ["plain words", "What should I put in my garden?"]
    assert len(source.items[1][0].options) == 2 and source.items[0][1].evidence_ids == ()
    kinds = source.summary()["repairs_by_kind"]
    assert {kind: kinds[kind] for kind in ("query_plain", "evidence_unknown", "dropped_no_options", "option_repeated")} == {
        "query_plain": 1,
        "evidence_unknown": 1,
        "dropped_no_options": 1,
        "option_repeated": 1,
    }


def test_broken_files_are_named_with_row_and_field(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="row 1: its chat history is missing; got 'data/gone.json'"):
        load(tmp_path, ROW | {"chat_history_32k_link": "data/gone.json"})
    with pytest.raises(DataError, match="message 0: not PersonaMem-v2's format: no field 'content'"):
        load(tmp_path, history=[{"role": "user"}])
    with pytest.raises(DataError, match="belongs to several personas"):
        load(tmp_path, ROW, ROW | {"persona_id": "5"})
    path = write(tmp_path)
    path.write_text("persona_id,question\n4,x\n")
    with pytest.raises(DataError, match="has no column 'user_query'"):
        collect(load_personamem(path))
    with pytest.raises(DataError, match="--history: is unknown"):
        load_personamem(path, history="1m")
