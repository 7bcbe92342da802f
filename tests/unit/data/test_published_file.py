"""Published files: JSON lists and lines, gzipped or not, read one object at a time, and what is wrong with a broken one."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path

import pytest

from napmem_rl.data import published_file
from napmem_rl.data.published_file import iterate_objects, iterate_table, read_field
from napmem_rl.errors import DataError

OBJECTS = [{"id": number, "text": 'schön, "quoted" [and] {braced}\n' * number} for number in range(5)]


@pytest.mark.parametrize("is_list", [True, False])
@pytest.mark.parametrize("is_zipped", [True, False])
def test_lists_and_lines_zipped_or_not_give_the_same_objects_whatever_the_size_of_a_piece(tmp_path, monkeypatch, is_list, is_zipped) -> None:
    text = json.dumps(OBJECTS, ensure_ascii=False, indent=1) if is_list else "\n\n".join(json.dumps(value) for value in OBJECTS) + "\n"
    path = tmp_path / "set.json"
    path.write_bytes(gzip.compress(text.encode()) if is_zipped else b"\xef\xbb\xbf" + text.encode())
    for piece in (1, 7, 1 << 20):
        monkeypatch.setattr(published_file, "_PIECE", piece)
        assert list(iterate_objects(path, "set")) == OBJECTS


def test_a_file_is_read_no_further_than_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_file, "_PIECE", 64)
    path = tmp_path / "set.json"
    path.write_text(json.dumps(OBJECTS)[:-20] + "broken")
    assert list(itertools.islice(iterate_objects(path, "set"), 3)) == OBJECTS[:3]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (json.dumps(OBJECTS).encode()[:-30], r"set, item 4 \(counting from 0\): is cut off or no JSON"),
        (json.dumps(OBJECTS).encode()[:-1], r"set, item 5 \(counting from 0\): is cut off"),
        (gzip.compress(json.dumps(OBJECTS * 50).encode())[:-30], "the gzip file is cut off or broken"),
        (b"[]", "holds nothing"),
        (json.dumps(OBJECTS).encode() * 2, "set: goes on after the end of its list"),
        (b'[{"a": 1}] tail', "set: goes on after the end of its list; got 'tail'"),
        (b'[{"a": 1} {"a": 2}]', r"set, item 1 \(counting from 0\): stands after no comma"),
        (b"", "holds nothing"),
        (b'[{"a": 1}, 7]', r"set, item 1 \(counting from 0\): is no JSON object; got 7"),
        (b'{"a": "\xff"}', "is not UTF-8"),
        (None, "does not exist"),
    ],
)
def test_a_broken_file_is_named_with_the_place(tmp_path: Path, content: bytes | None, expected: str) -> None:
    if content is not None:
        (tmp_path / "set.json").write_bytes(content)
    with pytest.raises(DataError, match=expected):
        list(iterate_objects(tmp_path / "set.json", "set"))


def test_a_table_is_read_by_its_header_and_a_row_that_is_cut_off_is_named(tmp_path: Path) -> None:
    path = tmp_path / "set.csv"
    path.write_text('b,a\n1,"x\ny"\n2,z\n')
    assert list(iterate_table(path, "set", ("a", "b"))) == [(1, {"b": "1", "a": "x\ny"}), (2, {"b": "2", "a": "z"})]
    path.write_text("b,a\n1\n")
    with pytest.raises(DataError, match="set, row 1: ends before column 'a'"):
        list(iterate_table(path, "set", ("a", "b")))
    with pytest.raises(DataError, match="set: has no column 'c'"):
        list(iterate_table(path, "set", ("c",)))


def test_a_field_must_be_there_and_of_its_type_and_a_boolean_is_no_number() -> None:
    assert read_field({"a": 3}, "a", (str, int), "row", set_name="X") == 3
    for raw, expected in (({}, "no field 'a'"), ({"a": True}, "wrong type; got True; expected a JSON str or a JSON int"), ([], "a JSON object")):
        with pytest.raises(DataError, match=expected):
            read_field(raw, "a", (str, int), "row", set_name="X")
