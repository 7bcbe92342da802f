"""Files and directories that are all there or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from napmem_rl import atomic


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "new" / "table.json"
    atomic.write_file(path, "å")
    atomic.write_file(path, b"\x00\x01")
    assert path.read_bytes() == b"\x00\x01" and os.listdir(path.parent) == ["table.json"]


def test_a_failure_while_writing_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    atomic.write_file(path, "old")
    with pytest.raises(ZeroDivisionError), atomic.open_replacement(path) as file:
        file.write(b"ne")
        raise ZeroDivisionError
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["table.json"]


@pytest.mark.parametrize("has_exchange", [True, False])
def test_two_directories_change_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_exchange: bool) -> None:
    if not has_exchange:
        monkeypatch.setattr(atomic, "_exchange", lambda first, second: False)
    for name in ("fresh", "place"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "who").write_text(name)
    atomic.swap_directories(tmp_path / "fresh", tmp_path / "place")
    assert [(tmp_path / name / "who").read_text() for name in ("fresh", "place")] == ["place", "fresh"]
    assert sorted(os.listdir(tmp_path)) == ["fresh", "place"]


def test_a_directory_takes_a_place_that_is_free(tmp_path: Path) -> None:
    (tmp_path / "fresh").mkdir()
    atomic.swap_directories(tmp_path / "fresh", tmp_path / "place")
    assert os.listdir(tmp_path) == ["place"]
