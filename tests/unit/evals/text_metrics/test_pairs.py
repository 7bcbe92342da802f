"""Files of pairs: three forms, read strictly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from napmem_rl.errors import DataError
from napmem_rl.evals.text_metrics.pairs import load_pairs

ROWS = [
    {"id": 7, "category": 4, "gold": "Oslo", "prediction": "In Oslo", "note": "kept out"},
    {"category": "temporal", "gold": 2022, "prediction": "in 2022"},
    {"gold": ["tea", 3.5], "prediction": ""},
]


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(ROWS),
        json.dumps({"metric": "x", "pairs": ROWS}, indent=1),
        "\n".join(json.dumps(row) for row in ROWS) + "\n",
        "\ufeff\r\n" + "\r\n".join(json.dumps(row) for row in ROWS),
    ],
    ids=["a list", "an object with pairs", "JSON lines", "JSON lines of another system"],
)
def test_all_forms_give_the_same_pairs_with_numbers_as_texts(tmp_path: Path, text: str) -> None:
    loaded = load_pairs(write(tmp_path / "pairs.json", text))
    assert [(pair.id, pair.category, pair.gold, pair.prediction) for pair, _ in loaded] == [
        ("7", "4", ("Oslo",), "In Oslo"),
        ("1", "temporal", ("2022",), "in 2022"),
        ("2", "", ("tea", "3.5"), ""),
    ]
    assert [kept for _, kept in loaded] == [{"id": 7, "category": 4}, {"id": 1, "category": "temporal"}, {"id": 2}], "as they stand in the file"


def test_one_line_of_json_lines_is_one_pair(tmp_path: Path) -> None:
    assert [pair.prediction for pair, _ in load_pairs(write(tmp_path / "p.jsonl", json.dumps(ROWS[0])))] == ["In Oslo"]


def test_a_text_may_hold_line_separators_of_unicode(tmp_path: Path) -> None:
    row = {"gold": "a\u2028b", "prediction": "a\x85b"}
    loaded = load_pairs(write(tmp_path / "p.jsonl", "\n".join(json.dumps(row, ensure_ascii=False) for _ in range(2))))
    assert [pair.prediction for pair, _ in loaded] == ["a\x85b"] * 2


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"gold": "x"}, "row 1 (counting from 0), field 'prediction': is missing"),
        ({"prediction": "x"}, "field 'gold': is missing"),
        ({"gold": "x", "prediction": 3}, "field 'prediction': is no text; got 3"),
        ({"gold": "x", "prediction": None}, "field 'prediction': is no text"),
        ({"gold": True, "prediction": "x"}, "field 'gold': is of another type; got True"),
        ({"gold": {"a": 1}, "prediction": "x"}, "field 'gold': is of another type"),
        ({"gold": ["a", " "], "prediction": "x"}, "field 'gold': holds a blank text"),
        ({"gold": "x", "prediction": "x", "category": 1.5}, "field 'category': is of another type; got 1.5"),
        ({"gold": "x", "prediction": "x", "id": ["a"]}, "field 'id': is of another type"),
        ("text", "row 1 (counting from 0): is no JSON object"),
    ],
)
def test_an_error_names_row_and_field(tmp_path: Path, row: object, words: str) -> None:
    path = write(tmp_path / "p.json", json.dumps([ROWS[0], row]))
    with pytest.raises(DataError) as caught:
        load_pairs(path)
    assert words in caught.value.message and str(path) in caught.value.message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[]", "holds no row"),
        (b"", "p.json: is empty"),
        (b" \n", "p.json: is empty"),
        (b'{"rows": []}', "holds no list of rows"),
        (b'{"pairs": 3}', "holds no list of rows; got 3"),
        (b"3", "holds no list of rows; got 3"),
        (b'[{"gold": "a", "prediction": "b"}', "is not JSON"),
        (b'[\n{"gold": "a", "prediction": "b"}\n', "is not JSON"),
        (b'{"gold": "a", "prediction": "b"}\n{"gold": "a", \n', "line 2: is not JSON"),
        (b'[{"gold": NaN, "prediction": "b"}]', "NaN is no JSON number"),
        (b'[{"gold": "\\ud800", "prediction": "b"}]', "row 0 (counting from 0), field 'gold': holds half of a surrogate pair"),
        ('[{"gold": "é", "prediction": "b"}]'.encode("latin-1"), "is not UTF-8 (byte 0xe9 at position 11)"),
        (b"[" * 100_000, "is not JSON"),
    ],
)
def test_a_file_that_is_none_of_the_forms_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(DataError) as caught:
        load_pairs(write(tmp_path / "p.json", content))
    assert words in caught.value.message


def test_a_missing_file_and_a_directory_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        load_pairs(tmp_path / "none.json")
    with pytest.raises(DataError, match="is not a file"):
        load_pairs(tmp_path)
