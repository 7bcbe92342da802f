"""Prepared directories: complete or absent, and one clear message for input that cannot be used."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from memory_endpoint import serve_memory_model

from napmem_rl.data.prepare import prepare
from napmem_rl.data.rows import load_rows
from napmem_rl.data.source import SourceBank, SourceSet
from napmem_rl.data.splits import check_data_dir
from napmem_rl.errors import BankError, ConfigError, DataError, LLMError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.writer_settings import LLMSettings
from napmem_rl.retrieval.encoder import HashingEncoder
from napmem_rl.schema import AnswerKey, Message, Task

ROOT = Path(__file__).resolve().parents[3]


def build_source(groups: tuple[str, ...] = ("a", "b", "c"), *, repeats_a_message: bool = False) -> SourceSet:
    banks, items = [], []
    for group in groups:
        ids = ("msg:1", "msg:1" if repeats_a_message else "msg:2")
        messages = tuple(
            Message(message_id=message_id, session_id="s1", role="user", speaker="Ana", text=f"I keep {day} goats in {group}.", time=f"2024-01-0{day}T10:00:00")
            for day, message_id in enumerate(ids, start=1)
        )
        banks.append(SourceBank(bank_id=f"{group}_ana", group_id=group, messages=messages))
        task = Task(task_id=f"q:{group}", bank_id=f"{group}_ana", question="How many goats?", category="fact", needs_memory=True)
        items.append((task, AnswerKey(task_id=task.task_id, references=("2",), evidence_ids=("msg:2",))))
    return SourceSet(name="handmade", banks=tuple(banks), items=tuple(items))


def write_split(path: Path) -> Path:
    path.write_text(json.dumps({"train": ["a", "b"], "dev": ["c"]}))
    return path


def run(tmp_path: Path, source: SourceSet, out: Path, **more: object) -> list[str]:
    original = tmp_path / "input.json"
    original.write_text("the input")
    lines: list[str] = []
    prepare(source, out, inputs=[original], split_path=write_split(tmp_path / "split.json"), report=lines.append, **more)
    return lines


def test_a_prepared_directory_holds_banks_rows_and_an_account_of_itself(tmp_path: Path) -> None:
    lines = run(tmp_path, build_source(), tmp_path / "out", encoder=HashingEncoder())
    meta = check_data_dir(tmp_path / "out")
    assert meta["rows"] == {"train": 2, "dev": 1} and meta["split"] == {"train": ["a", "b"], "dev": ["c"], "test": []}
    assert meta["inputs"] == [{"file": "input.json", "sha256": hashlib.sha256(b"the input").hexdigest()}]
    assert [task.bank_id for task, _ in load_rows(tmp_path / "out" / "dev.parquet")] == ["c_ana"]
    assert MemoryBank.open(tmp_path / "out" / "banks" / "c_ana").version == meta["banks"]["c_ana"]["version"]
    assert list((tmp_path / "out" / "banks" / "c_ana" / "index").iterdir()), "vectors are left for the training to find"
    assert not (tmp_path / "out" / "test.parquet").exists() and len(lines) == 7


def test_the_same_input_gives_the_same_versions_and_keeps_a_model_that_stands_there(tmp_path: Path) -> None:
    run(tmp_path, build_source(), tmp_path / "out")
    first = check_data_dir(tmp_path / "out")
    (tmp_path / "out" / "model").mkdir()
    run(tmp_path, build_source(), tmp_path / "out")
    assert check_data_dir(tmp_path / "out") == first and (tmp_path / "out" / "model").is_dir()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["input.json", "out", "split.json"]


def test_a_failure_leaves_the_old_directory_and_nothing_else(tmp_path: Path) -> None:
    run(tmp_path, build_source(), tmp_path / "out")
    with pytest.raises(BankError):
        run(tmp_path, build_source(repeats_a_message=True), tmp_path / "out")
    assert check_data_dir(tmp_path / "out")["rows"] == {"train": 2, "dev": 1}
    with pytest.raises(BankError):
        run(tmp_path, build_source(repeats_a_message=True), tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["input.json", "out", "split.json"]


def test_an_interrupt_at_the_last_moment_loses_nothing_that_stood_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, build_source(), tmp_path / "out")
    (tmp_path / "out" / "model").mkdir()
    (tmp_path / "out" / "model" / "weights").write_text("mine")

    def interrupt(fresh: Path, path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("napmem_rl.data.prepare.swap_directories", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, build_source(("a", "b", "c")), tmp_path / "out")
    assert (tmp_path / "out" / "model" / "weights").read_text() == "mine" and check_data_dir(tmp_path / "out")["rows"] == {"train": 2, "dev": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["input.json", "out", "split.json"]


def test_the_directory_may_be_the_current_one_or_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "disk" / "out").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "out")
    run(tmp_path, build_source(), tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and [path.name for path in (tmp_path / "disk").iterdir()] == ["out"]
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    run(tmp_path, build_source(), Path("."))
    assert check_data_dir(tmp_path / "here") == check_data_dir(tmp_path / "link")


def test_a_question_that_cannot_be_asked_is_named_before_its_bank_is_built(tmp_path: Path) -> None:
    source = build_source()
    blank = replace(source, items=tuple((replace(task, question=" "), key) for task, key in source.items))
    with pytest.raises(DataError, match=r"rows of handmade, row 0 \(counting from 0\), task q:a: question is empty"):
        run(tmp_path, blank, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_directory_of_somebody_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    with pytest.raises(DataError, match="did not write"):
        run(tmp_path, build_source(), tmp_path / "out")
    assert (tmp_path / "out" / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("content", "expected"), [(None, "does not exist"), ("oops", "no JSON"), ("[]", "holds nothing"), ('[{"a": 1}]', "no field 'sample_id'")]
)
def test_the_command_says_in_one_line_what_is_wrong_and_writes_nothing(tmp_path: Path, content: str | None, expected: str) -> None:
    if content is not None:
        (tmp_path / "in.json").write_text(content)
    script, source, out = str(ROOT / "launch" / "prepare_data.py"), str(tmp_path / "in.json"), str(tmp_path / "out")
    command = [sys.executable, script, "locomo", "--input", source, "--out", out, "--encoder", "none"]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT), "PATH": ""})
    assert done.returncode == 2 and expected in done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1 and done.stdout == ""
    assert not (tmp_path / "out").exists()


def test_a_language_model_writes_the_banks_and_a_stop_costs_nothing_twice(tmp_path: Path) -> None:
    with serve_memory_model() as model:
        llm = LLMSettings(model="some-model", base_url=model.url, api_key_env="", cache_dir=str(tmp_path / "cache"), max_reply_tokens=100)
        with pytest.raises(LLMError, match=r"of 3 banks: are not complete .*tokens are used.* Nothing was written\. The same command goes on"):
            run(tmp_path, build_source(), tmp_path / "out", llm=replace(llm, max_total_tokens=1500))
        assert not (tmp_path / "out").exists() and model.asked["extract"] > 0
        lines = run(tmp_path, build_source(), tmp_path / "out", llm=llm)
        assert any("from the cache" in line and "complete" in line for line in lines)
        asked = model.asked.total()
        first = check_data_dir(tmp_path / "out")
        run(tmp_path, build_source(), tmp_path / "out", llm=llm)
        assert model.asked.total() == asked and check_data_dir(tmp_path / "out") == first
    assert first["writer"].startswith("llm:some-model/pyramid-")
    bank = MemoryBank.open(tmp_path / "out" / "banks" / "a_ana", expected_version=first["banks"]["a_ana"]["version"])
    assert bank.writer == "llm:some-model" and len(bank.records) == 2


def test_a_language_model_without_a_cache_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no cache, so a run that is stopped would have been paid for in vain"):
        run(tmp_path, build_source(), tmp_path / "out", llm=LLMSettings(model="some-model", api_key_env=""))
