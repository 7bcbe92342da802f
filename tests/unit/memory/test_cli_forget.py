"""`napmem forget` and `napmem correct`, as a person meets them."""

from __future__ import annotations

import io
import json
import os
import signal

import pytest
from byte_search import find_traces
from kill_points import run_in_child
from scripted_memory import say

from napmem_rl.cli import main
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_check import verify_bank
from napmem_rl.memory.build_many import build_many
from napmem_rl.memory.builder import build_bank
from napmem_rl.memory.forget_places import Places
from napmem_rl.memory.writer_settings import LLMSettings

MESSAGES = [say(1, "I prefer tea to coffee."), say(2, "I bought a Zorbulon lamp in Oslo.", session="s2", time="2024-03-02T10:00:00")]


@pytest.fixture
def path(tmp_path):
    build_bank(tmp_path / "ana", "ana", MESSAGES)
    return tmp_path / "ana"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_dry_run_tells_what_goes_and_changes_nothing(path, capsys):
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    assert main(["forget", str(path), "msg:2", "--dry-run"]) == 0
    told = capsys.readouterr().out
    for part in ("1 message go, 1 stay", "Zorbulon", "records that go: rec:2", "is removed; search indexes", "nothing was changed (--dry-run)"):
        assert part in told
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def test_a_query_asks_and_goes_on_only_with_a_yes(path, capsys, monkeypatch):
    assert main(["forget", str(path), "--query", "lamp"]) == 1
    assert "nobody is there to answer" in capsys.readouterr().err and len(MemoryBank.open(path).messages) == 2
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    assert main(["forget", str(path), "--query", "lamp"]) == 1 and len(MemoryBank.open(path).messages) == 2
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert main(["forget", str(path), "--query", "lamp"]) == 0 and len(MemoryBank.open(path).messages) == 1
    assert main(["forget", str(path), "--query", "lamp"]) == 0
    assert "nothing to forget" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trk:1"], "forgets messages, and with them what rests on them; got 'trk:1'"),
        ([], "nothing is named"),
        (["msg:22"], "holds no message 'msg:22'. Did you mean msg:2"),
        (["msg:2", "--runs", "nowhere"], "--runs nowhere: is not there"),
    ],
)
def test_what_cannot_be_forgotten_is_one_line_that_says_why(path, capsys, arguments, message):
    assert main(["forget", str(path), *arguments]) == 1
    assert message in capsys.readouterr().err and len(MemoryBank.open(path).messages) == 2


def make_places(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "answers.jsonl").write_text(json.dumps({"answer": "You bought a Zorbulon lamp in Oslo."}) + "\n")
    (tmp_path / "cache" / "ab").mkdir(parents=True)
    (tmp_path / "cache" / "ab" / "cd.json").write_text(json.dumps({"key": {"content": "I bought a Zorbulon lamp in Oslo."}, "value": ""}))
    return ["--runs", str(tmp_path / "run"), "--caches", str(tmp_path / "cache")]


def test_runs_and_caches_are_cleaned_with_the_bank_and_listed_by_a_dry_run(path, tmp_path, capsys):
    places = make_places(tmp_path)
    assert main(["forget", str(path), "msg:2", "--dry-run", *places]) == 0
    told = capsys.readouterr().out
    assert "answers.jsonl: what quotes it gives way to a mark" in told and "1 entries quote it" in told
    assert len(find_traces("Zorbulon", tmp_path / "run", tmp_path / "cache")) == 2
    assert main(["forget", str(path), "msg:2", *places]) == 0
    assert find_traces("Zorbulon", tmp_path) == [] and verify_bank(path) == []


def test_a_kill_between_the_cleaning_of_other_places_and_the_bank_leaves_the_old_bank_and_a_second_run_finishes(path, tmp_path, monkeypatch):
    places = make_places(tmp_path)

    def die_after(self: Places):
        for file in (file for files in self.runs.values() for file in files):
            file.path.write_text("cleaned\n")
        os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(Places, "clean", die_after)
        assert os.WTERMSIG(run_in_child(lambda: main(["forget", str(path), "msg:2", *places]))) == signal.SIGKILL
    assert len(MemoryBank.open(path).messages) == 2 and verify_bank(path) == []
    assert main(["forget", str(path), "msg:2", *places]) == 0
    assert find_traces("Zorbulon", tmp_path) == [] and sorted(os.listdir(tmp_path)) == ["ana", "cache", "run"]


def test_a_file_that_must_be_looked_at_by_hand_makes_the_exit_code_1(path, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "data.sqlite").write_bytes(b"\0I bought a Zorbulon lamp in Oslo.\0")
    assert main(["forget", str(path), "msg:2", "--runs", str(tmp_path / "run")]) == 1
    assert "data.sqlite: of no kind that can be cleaned: look at it by hand" in capsys.readouterr().out and len(MemoryBank.open(path).messages) == 1


def test_other_users_banks_beside_it_stay_as_they_are(path, tmp_path):
    build_bank(tmp_path / "bo", "bo", MESSAGES)
    before = {file: file.read_bytes() for file in (tmp_path / "bo").rglob("*") if file.is_file()}
    assert main(["forget", str(path), "--session", "s2"]) == 0
    assert {file: file.read_bytes() for file in (tmp_path / "bo").rglob("*") if file.is_file()} == before


def test_a_link_to_a_bank_stays_a_link(path, tmp_path):
    (tmp_path / "link").symlink_to(path)
    assert main(["forget", str(tmp_path / "link"), "msg:2"]) == 0
    assert (tmp_path / "link").is_symlink() and len(MemoryBank.open(path).messages) == 1


def test_correct_says_what_the_record_says_now(path, capsys):
    assert main(["correct", str(path), "profile:1", "Ana prefers milk."]) == 0
    assert "says now: Ana prefers milk." in capsys.readouterr().out and "milk" in MemoryBank.open(path).profile.text
    assert main(["correct", str(path), "rec:1", "Ana prefers water.", "--forget-old", "--yes"]) == 0
    assert find_traces("coffee", path) == [] and find_traces("milk", path) == []


def test_a_language_models_bank_and_its_cache_are_clean_and_the_model_writes_again_what_is_left(tmp_path, capsys):
    from memory_endpoint import serve_memory_model

    messages = [
        say(1, "I prefer tea to coffee.", time="2024-03-01T10:00:00"),
        say(2, "Fine.", role="assistant", time="2024-03-01T10:00:10"),
        say(3, "My locker holds a Zorbulon lamp.", time="2024-03-01T10:01:00"),
        say(4, "I work as a nurse.", session="s2", time="2024-03-02T10:00:00"),
    ]
    path, cache = tmp_path / "ana", tmp_path / "cache"
    with serve_memory_model() as model:
        settings = LLMSettings(model="m", base_url=model.url, api_key_env="", cache_dir=str(cache))
        (summary,) = build_many({"ana": messages}, tmp_path, settings=settings, report=lambda line: None)
        assert summary.problem is None and find_traces("Zorbulon", path, cache)
        (tmp_path / "model.yaml").write_text(f'model: m\nbase_url: {model.url}\napi_key_env: ""\ncache_dir: {cache}\n')
        num_entries = len(list(cache.rglob("*.json")))
        assert main(["forget", str(path), "msg:3", "--writer", str(tmp_path / "model.yaml")]) == 0
        assert "left to write" not in capsys.readouterr().out
    assert find_traces("Zorbulon", path, cache) == [] and verify_bank(path) == []
    assert 0 < len(list(cache.rglob("*.json"))) < num_entries + 10
    bank = MemoryBank.open(path)
    assert bank.writer == "llm:m" and any("tea" in record.text for record in bank.records) and any("nurse" in record.text for record in bank.records)
