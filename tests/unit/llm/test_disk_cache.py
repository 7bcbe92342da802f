"""The cache of replies and verdicts."""

from __future__ import annotations

import json
from multiprocessing import get_context
from pathlib import Path

import pytest

from napmem_rl.llm.disk_cache import DiskCache


def put_many(directory: str, writer: int) -> None:
    cache = DiskCache(directory)
    for index in range(40):
        cache.put({"question": index % 4}, {"text": "x" * 20_000, "writer": writer})


def test_a_value_comes_back_whatever_the_order_of_the_keys_fields(tmp_path: Path) -> None:
    DiskCache(tmp_path).put({"a": 1, "b": "é"}, {"text": "yes"})
    assert DiskCache(tmp_path).get({"b": "é", "a": 1}) == {"text": "yes"}
    assert DiskCache(tmp_path).get({"a": 1, "b": "e"}) is None


def test_half_a_character_that_an_endpoint_sent_is_kept_as_it_is(tmp_path: Path) -> None:
    reply = json.loads(r'"cut \ud83d off é"')
    DiskCache(tmp_path).put({"a": 1}, {"text": reply})
    assert DiskCache(tmp_path).get({"a": 1}) == {"text": reply}


def test_an_unreadable_entry_is_logged_and_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = DiskCache(tmp_path)
    cache.put({"a": 1}, "first")
    next(tmp_path.glob("*/*.json")).write_text('{"key": {"a"')
    assert cache.get({"a": 1}) is None
    assert "is not readable" in caplog.text
    cache.put({"a": 1}, "second")
    assert cache.get({"a": 1}) == "second"


def test_processes_that_write_the_same_keys_leave_whole_entries_and_no_temporary_files(tmp_path: Path) -> None:
    context = get_context("fork")
    writers = [context.Process(target=put_many, args=(str(tmp_path), writer)) for writer in range(3)]
    for process in writers:
        process.start()
    cache = DiskCache(tmp_path)
    seen = [cache.get({"question": index % 4}) for index in range(200)]
    for process in writers:
        process.join(60)
        assert process.exitcode == 0
    assert all(value is None or len(value["text"]) == 20_000 for value in seen)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 4 and all(json.loads(path.read_text())["value"]["text"] == "x" * 20_000 for path in files)


def test_a_value_that_is_not_json_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        DiskCache(tmp_path).put({"a": 1}, object())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
