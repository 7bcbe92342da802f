"""The command that prepares data: every source it names, what it says of repairs, banks without rows, and one line where something is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from napmem_rl.data.sources import SOURCES
from napmem_rl.data.splits import check_data_dir

ROOT = Path(__file__).resolve().parents[3]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "launch" / "prepare_data.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT), "PATH": ""})


def test_help_names_every_source() -> None:
    done = run("--help")
    assert done.returncode == 0
    for name in ("locomo", "longmemeval", "personamem", "gapchat", "msc", "chronicles", "jsonl", "synthetic", "gpqa", "bfcl"):
        assert name in SOURCES and name in done.stdout


def test_own_messages_without_questions_give_banks_and_the_report_says_that_there_are_no_rows(tmp_path: Path) -> None:
    lines = [
        {"user_id": "ana", "message_id": number, "session_id": "s1", "role": "user", "text": f"I own {number} boats.", "time": "2024-03-05T13:56:00+01:00"}
        for number in (1, 2)
    ]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = run("jsonl", "--input", str(tmp_path / "m.jsonl"), "--out", str(tmp_path / "out"), "--encoder", "none")
    assert done.returncode == 0, done.stderr
    assert "rows none: the source has no questions" in done.stdout and "time_converted" in done.stdout and "2 lines" in done.stdout
    meta = check_data_dir(tmp_path / "out")
    assert meta["rows"] == {} and list(meta["banks"]) == ["ana"] and not list((tmp_path / "out").glob("*train*"))


def test_synthetic_users_are_the_same_for_a_seed_and_split_by_user(tmp_path: Path) -> None:
    outs = [tmp_path / "a", tmp_path / "b"]
    for out in outs:
        done = run("synthetic", "--users", "5", "--seed", "7", "--questions-per-user", "6", "--out", str(out), "--encoder", "none")
        assert done.returncode == 0, done.stderr
    first, second = (check_data_dir(out) for out in outs)
    assert first == second and first["rows"] == {"train": 18, "dev": 6, "test": 6} and first["generated"] is True


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["longmemeval", "--input", "gone.json"], "gone.json: does not exist"),
        (["synthetic", "--users", "0"], "--users: is less than one"),
        (["gpqa", "--input", __file__, "--banks", "nowhere"], "nowhere: the file does not exist"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_nothing_is_written(tmp_path: Path, arguments: list[str], expected: str) -> None:
    encoder = [] if arguments[0] == "gpqa" else ["--encoder", "none"]
    done = run(*arguments, "--out", str(tmp_path / "out"), *encoder)
    assert done.returncode == 2 and expected in done.stderr and done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
