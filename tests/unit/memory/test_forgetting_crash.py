"""A forgetting that is killed at any point leaves the old bank or the new one; the next look removes the rest, and the same command finishes the job."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from byte_search import find_traces
from kill_points import POINTS, REMOVALS, kill_at, run_in_child
from scripted_memory import say

from napmem_rl.errors import BankError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_check import verify_bank
from napmem_rl.memory.bank_writer import BankWriter
from napmem_rl.memory.builder import build_bank, load_writer
from napmem_rl.memory.erasing import ERASING_FILE, finish_erasing, note_leftovers
from napmem_rl.memory.forget_selection import Selectors
from napmem_rl.memory.forgetting import forget
from napmem_rl.memory.versions import list_versions

MESSAGES = [say(1, "I prefer tea to coffee."), say(2, "I bought a Zorbulon lamp.", session="s2", time="2024-03-02T10:00:00")]


def forget_second(path: Path):
    return forget(path, Selectors(message_ids=("msg:2",)), make_writer=lambda: load_writer("ana", "rules"))


@pytest.mark.parametrize(("moment", "step"), [("before", 1), ("half", 3)])
def test_a_forgetting_killed_at_any_point_leaves_the_old_bank_or_the_new_one_and_a_second_run_finishes_it(tmp_path, moment, step):
    old = build_bank(tmp_path / "old", "ana", MESSAGES)
    MemoryBank.open(tmp_path / "old").build_index()
    found, point = [], 1
    while True:
        path = tmp_path / f"{point}" / "ana"
        shutil.copytree(tmp_path / "old", path)
        status = run_in_child(lambda path=path, point=point: (kill_at(point, moment, (*POINTS, *REMOVALS)), forget_second(path)))
        version = MemoryBank.open(path).version  # and removes what was left, if the new bank is in place
        assert verify_bank(path) == []
        is_new = version != old
        found.append(is_new)
        if is_new:
            assert find_traces("Zorbulon", path.parent) == [] and os.listdir(path.parent) == ["ana"], f"killed {moment} change {point}"
        done = forget_second(path)
        assert (done is None) == is_new and find_traces("Zorbulon", path.parent) == [] and os.listdir(path.parent) == ["ana"]
        assert verify_bank(path) == [] and not (path / ERASING_FILE).exists()
        shutil.rmtree(path.parent)
        if not os.WIFSIGNALED(status):
            assert status == 0 and is_new
            break
        point += step
    assert len(found) > 60 // step and found == sorted(found), "first the old one, from some point on the new one"


def interrupt(path: Path) -> Path:
    """A bank as a kill right after the switch leaves it; returns what is to be removed."""
    leftover = path.parent / f".{path.name}.new-{'0' * 32}"
    leftover.mkdir()
    (leftover / "messages.jsonl").write_text("Zorbulon")
    note_leftovers(path, [leftover.name])
    return leftover


@pytest.mark.parametrize(
    "look",
    [
        MemoryBank.open,
        list_versions,
        lambda path: BankWriter.open(path, bank_id="ana", writer="rules").close(),
        lambda path: forget(path, Selectors(message_ids=("msg:1",))),
    ],
)
def test_whoever_opens_a_bank_next_removes_what_an_interrupted_forgetting_left(tmp_path, look):
    build_bank(tmp_path / "ana", "ana", MESSAGES[:1])
    leftover = interrupt(tmp_path / "ana")
    assert any("a forgetting was interrupted" in problem for problem in verify_bank(tmp_path / "ana")), "verify says so, and changes nothing"
    look(tmp_path / "ana")
    assert not leftover.exists() and not (tmp_path / "ana" / ERASING_FILE).exists() and verify_bank(tmp_path / "ana") == []


def test_nothing_but_directories_of_that_bank_is_removed_whatever_the_note_says(tmp_path):
    build_bank(tmp_path / "ana", "ana", MESSAGES[:1])
    build_bank(tmp_path / "bob", "bob", MESSAGES[:1])
    others = [tmp_path / f".bob.new-{'0' * 32}", tmp_path / "precious", tmp_path / ".ana.new-1"]
    for other in others:
        other.mkdir()
    note_leftovers(tmp_path / "ana", [*(other.name for other in others), "bob", "../precious", "ana", "", "."])
    assert finish_erasing(tmp_path / "ana") and all(other.exists() for other in others)
    assert verify_bank(tmp_path / "ana") == [] and verify_bank(tmp_path / "bob") == []


@pytest.mark.parametrize("content", ["", "[]", '{"leftovers": 3}', "\udcff"])
def test_a_damaged_note_is_an_error_that_says_what_to_remove(tmp_path, content):
    build_bank(tmp_path / "ana", "ana", MESSAGES[:1])
    (tmp_path / "ana" / ERASING_FILE).write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(BankError, match=r"erasing.json: cannot be read .*Remove the directories .ana.new-"):
        MemoryBank.open(tmp_path / "ana")


def test_the_note_holds_no_content(tmp_path):
    build_bank(tmp_path / "ana", "ana", MESSAGES)
    leftover = interrupt(tmp_path / "ana")
    assert json.loads((tmp_path / "ana" / ERASING_FILE).read_text()) == {"leftovers": [leftover.name]}
