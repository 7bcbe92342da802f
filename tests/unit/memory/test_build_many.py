"""Many banks in one run: over a real local endpoint with the `llm` writer, resumable, accounted for; and the command itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from memory_endpoint import MemoryModel, serve_memory_model

from napmem_rl.errors import ConfigError, DataError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.bank_check import verify_bank
from napmem_rl.memory.bank_writer import BankWriter
from napmem_rl.memory.build_many import IDS_FILE, BankSummary, build_many, name_directories, name_directory
from napmem_rl.memory.writer_settings import LLMSettings
from napmem_rl.retrieval.encoder import load_encoder
from napmem_rl.schema import Message, as_json

ROOT = Path(__file__).resolve().parents[3]
FACTS = ("I moved to Oslo.", "My sister is Mia.", "I play the cello.", "I moved to Oslo.", "Mia is a nurse.", "I keep bees.")


def talk(user: str, *, num_sessions: int = 3, text: str | None = None) -> list[Message]:
    """Sessions of two turns each, a day apart."""
    messages = []
    for number in range(2 * num_sessions):
        session, said = number // 2, text or FACTS[number % len(FACTS)]
        time = f"2024-03-{1 + session:02d}T10:0{number % 2}:"
        said_by = (("user", user.title(), said, "00"), ("assistant", "Helper", "I see.", "30"))
        for offset, (role, speaker, words, second) in enumerate(said_by):
            name = f"msg:{2 * number + offset + 1}"
            messages.append(Message(message_id=name, session_id=f"s{session}", role=role, speaker=speaker, text=words, time=time + second))
    return messages


@pytest.fixture()
def model() -> Iterator[MemoryModel]:
    with serve_memory_model() as running:
        yield running


def settings_of(model: MemoryModel, **changes: Any) -> LLMSettings:
    return replace(LLMSettings(model="some-model", base_url=model.url, api_key_env="", concurrency=4), **changes)


def build(out: Path, model: MemoryModel, users: dict[str, list[Message]], **changes: Any) -> dict[str, BankSummary]:
    summaries = build_many(users, out, settings=settings_of(model, **changes), report=lambda line: None)
    return {summary.bank_id: summary for summary in summaries}


def test_the_llm_writer_builds_banks_that_hold_over_a_real_endpoint(tmp_path: Path, model: MemoryModel) -> None:
    built = build(tmp_path, model, {name: talk(name) for name in ("ana", "ben", "cleo")})
    for name, summary in built.items():
        bank = MemoryBank.open(tmp_path / name)
        assert summary.problem is None and verify_bank(tmp_path / name) == [] and bank.writer == "llm:some-model"
        assert (summary.num_messages, summary.num_records, summary.counts["records_skipped"]) == (12, 5, 1)  # "I moved to Oslo." twice
        assert [record.text.split(": ")[-1] for record in bank.records][:2] == list(FACTS[:2])
        assert all(bank.message(source) for record in bank.records for source in record.source_ids)
        assert summary.num_tracks == len(bank.tracks) > 0 and bank.profile.source_ids == (bank.tracks[0].track_id,)
    requests = sum(summary.usage.num_requests for summary in built.values())
    assert requests == model.asked.total() - 1 == model.asked["extract"] + model.asked["reconcile"] + model.asked["topics"] + model.asked["profile"]
    assert built["ana"].usage.prompt_tokens == 100 * built["ana"].usage.num_requests


def test_a_second_run_asks_nothing_and_changes_nothing_and_a_third_takes_in_what_is_new(tmp_path: Path, model: MemoryModel) -> None:
    build(tmp_path, model, {"ana": talk("ana")})
    version, asked = MemoryBank.open(tmp_path / "ana").version, model.asked["extract"]
    again = build(tmp_path, model, {"ana": talk("ana")})["ana"]
    assert again.problem is None and again.usage.num_requests == 0 and again.counts == {"messages_known": 12}
    assert MemoryBank.open(tmp_path / "ana").version == version and model.asked["extract"] == asked
    grown = build(tmp_path, model, {"ana": talk("ana", num_sessions=4)})["ana"]
    assert (grown.problem, grown.num_messages, grown.counts["messages_added"], grown.counts["messages_known"]) == (None, 16, 4, 12)


def test_a_rebuild_elsewhere_with_the_cache_sends_no_request_and_gives_the_same_bank(tmp_path: Path, model: MemoryModel) -> None:
    users = {name: talk(name) for name in ("ana", "ben")}
    first = build(tmp_path / "a", model, users, cache_dir=str(tmp_path / "cache"))
    asked = model.asked.total()
    second = build(tmp_path / "b", model, users, cache_dir=str(tmp_path / "cache"))
    assert model.asked.total() == asked
    assert [(s.usage.num_requests, s.usage.num_cached) for s in second.values()] == [(0, s.usage.num_requests) for s in first.values()]
    assert second["ana"].usage.cost == second["ana"].usage.prompt_tokens == 0
    for name in users:
        assert MemoryBank.open(tmp_path / "a" / name).version == MemoryBank.open(tmp_path / "b" / name).version


def test_a_budget_that_is_reached_stops_the_run_cleanly_and_a_larger_one_goes_on_to_the_same_bank(tmp_path: Path, model: MemoryModel) -> None:
    users = {"ana": talk("ana", num_sessions=6)}
    prices = {"price_in": 10.0, "price_out": 50.0, "max_reply_tokens": 200}  # a request costs 0.002, and 0.01 and its prompt before that is known
    whole = build(tmp_path / "whole", model, users, **prices)["ana"]
    assert whole.problem is None and whole.usage.cost == pytest.approx(0.002 * whole.usage.num_requests)
    stopped = build(tmp_path / "parts", model, users, max_cost=0.03, **prices)["ana"]
    assert stopped.problem is not None and "are spent, and the next request may cost up to" in stopped.problem
    assert "messages are not in the bank yet" in stopped.problem and 0 < stopped.usage.cost <= 0.03
    assert verify_bank(tmp_path / "parts" / "ana") == [] and 0 < stopped.num_messages < whole.num_messages
    runs = 1
    while (done := build(tmp_path / "parts", model, users, max_cost=0.03, **prices)["ana"]).problem is not None:
        runs += 1
        assert done.usage.num_requests > 0 and runs < 20
    assert runs > 1 and MemoryBank.open(tmp_path / "parts" / "ana").version == MemoryBank.open(tmp_path / "whole" / "ana").version


def test_replies_that_cannot_be_used_are_counted_by_step_and_the_bank_holds(tmp_path: Path, model: MemoryModel) -> None:
    model.spoilt = {"reconcile", "profile"}
    summary = build(tmp_path, model, {"ana": talk("ana")})["ana"]
    assert verify_bank(tmp_path / "ana") == [] and summary.num_records == 6  # every draft is stored where no decision can be read
    rejected = summary.rejections["reconcile: prose"]
    assert rejected == summary.repairs["reconcile: prose"] == summary.counts["decision_unreadable"] == model.asked["reconcile"] / 2
    assert summary.rejections["profile: prose"] == summary.counts["profile_refused"] and summary.problem is not None and "profile" in summary.problem
    model.spoilt = set()
    assert build(tmp_path, model, {"ana": talk("ana")})["ana"].problem is None and MemoryBank.open(tmp_path / "ana").profile.text


def test_one_user_whose_replies_cannot_be_read_keeps_the_raw_messages_and_does_not_hold_up_the_others(tmp_path: Path, model: MemoryModel) -> None:
    built = build(tmp_path, model, {"ana": talk("ana", text="Please garble this."), "ben": talk("ben")})
    assert built["ben"].problem is None and built["ben"].num_records == 5
    assert built["ana"].num_messages == 12 and built["ana"].num_records == 0
    assert built["ana"].rejections["extract: prose"] == built["ana"].counts["extraction_unreadable"] > 0


def test_an_endpoint_that_fails_leaves_the_messages_and_says_what_is_left(tmp_path: Path, model: MemoryModel) -> None:
    cache = tmp_path / "cache"
    (cache / "00").mkdir(parents=True)  # so that nothing is asked beforehand
    dead = settings_of(model, base_url="http://127.0.0.1:1/v1", cache_dir=str(cache), timeout_s=1.0, max_retries=0)
    (summary,) = build_many({"ana": talk("ana", num_sessions=1)}, tmp_path / "out", settings=dead, report=lambda line: None)
    assert summary.num_messages == 4 and summary.num_records == 0 and summary.problem is not None
    assert "steps are left: records of msg:" in summary.problem and "request failed" in summary.problem
    assert build(tmp_path / "out", model, {"ana": talk("ana", num_sessions=1)})["ana"].problem is None


def test_an_endpoint_that_cannot_be_used_is_told_before_anything_is_built(tmp_path: Path, model: MemoryModel) -> None:
    dead = replace(settings_of(model), base_url="http://127.0.0.1:1/v1", timeout_s=1.0, max_retries=0)
    with pytest.raises(ConfigError, match="preflight failed"):
        build_many({"ana": talk("ana")}, tmp_path, settings=dead, report=lambda line: None)
    assert list(tmp_path.iterdir()) == []


def test_a_bank_that_another_process_writes_is_told_and_left_alone(tmp_path: Path, model: MemoryModel) -> None:
    with BankWriter.open(tmp_path / "ana", bank_id="ana", writer="other"):
        built = build(tmp_path, model, {"ana": talk("ana"), "ben": talk("ben")})
    assert "is being written by process" in (built["ana"].problem or "") and built["ana"].usage.num_requests == 0
    assert built["ben"].problem is None


@pytest.mark.parametrize("bank_id", ["../../x", "..", ".", "", "/etc/passwd", "a/b", "a\\b", "x" * 500, "日本", ".hidden", "a\x00b", "con ", "ana.", "\ud800"])
def test_no_id_leads_out_of_the_directory(tmp_path: Path, bank_id: str) -> None:
    name = name_directory(bank_id)
    assert (tmp_path / name).resolve().parent == tmp_path.resolve() and name_directory(name) == name and not name.startswith(".")
    assert name_directory(bank_id) == name != bank_id and len(name) < 60


def test_plain_ids_keep_their_names_and_ids_that_collide_are_refused() -> None:
    assert name_directories(["ana", "conv-26_Ana.B"]) == {"ana": "ana", "conv-26_Ana.B": "conv-26_Ana.B"}
    with pytest.raises(DataError, match="two of them give one directory; got \\['Ana', 'ana'\\]"):
        name_directories(["Ana", "ben", "ana"])


def test_a_changed_id_is_kept_beside_the_banks_over_several_runs(tmp_path: Path) -> None:
    for bank_id in ("../a", "../b"):
        (summary,) = build_many({bank_id: talk("ana", num_sessions=1)}, tmp_path, report=lambda line: None)
        assert summary.problem is None and MemoryBank.open(tmp_path / summary.bank_id).bank_id == summary.bank_id
    assert json.loads((tmp_path / IDS_FILE).read_text()) == {name_directory("../a"): "../a", name_directory("../b"): "../b"}


def test_a_run_that_takes_long_tells_how_far_it_is(tmp_path: Path, model: MemoryModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("napmem_rl.memory.build_many._TELL_EVERY_S", 0.001)
    lines: list[str] = []
    build_many({"ana": talk("ana")}, tmp_path, settings=settings_of(model), report=lines.append)
    assert any("0 of 1 banks done, 1 under way;" in line and "from the cache" in line for line in lines)


def test_a_bank_that_is_damaged_is_told_and_the_others_are_built(tmp_path: Path) -> None:
    build_many({"ana": talk("ana")}, tmp_path, report=lambda line: None)
    (tmp_path / "ana" / "commits.jsonl").write_text("nonsense\n")
    ana, ben = build_many({"ana": talk("ana"), "ben": talk("ben")}, tmp_path, report=lambda line: None)
    assert ana.problem is not None and "commits.jsonl" in ana.problem and ben.problem is None


def test_with_an_encoder_the_vectors_are_left_for_the_first_search(tmp_path: Path) -> None:
    lines: list[str] = []
    build_many({"ana": talk("ana")}, tmp_path, encoder=load_encoder("hashing"), report=lines.append)
    assert lines[-1] == "index 1/1 ana" and list((tmp_path / "ana" / "index").rglob("vectors.npy"))


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(ROOT / "launch" / "build_memory.py"), *arguments], capture_output=True, text=True, timeout=120)


def write_messages(path: Path, *users: str) -> Path:
    lines = [json.dumps({"user_id": user} | as_json(message)) for user in users for message in talk(user)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_command_builds_tells_what_it_did_and_ends_by_what_is_complete(tmp_path: Path, model: MemoryModel) -> None:
    file = write_messages(tmp_path / "m.jsonl", "ana", "../ben")
    llm = ["--writer", "llm", "--model", "m", "--base-url", model.url, "--api-key-env", "", "--encoder", "none"]
    done = run_command(str(file), "--out", str(tmp_path / "out"), *llm, "--price-in", "1", "--price-out", "2")
    assert done.returncode == 0, done.stderr
    assert "24 messages of 2 users" in done.stdout and "bank ana: 12 messages, 5 records" in done.stdout
    assert "records: 1 skipped, 5 stored" in done.stdout and "all 2 banks are complete" in done.stdout and "cost 0.00" in done.stdout
    model.spoilt = {"profile"}
    short = run_command(str(file), "--out", str(tmp_path / "short"), *llm)
    assert short.returncode == 1 and "INCOMPLETE: 1 steps are left: profile" in short.stdout
    assert "2 of 2 banks are not complete: ana, ben-" in short.stdout and "The same command goes on" in short.stdout


def test_the_command_refuses_bad_input_and_settings_that_do_nothing_with_one_line(tmp_path: Path) -> None:
    file = write_messages(tmp_path / "m.jsonl", "ana")
    with file.open("a") as stream:
        stream.write('{"user_id": "ana"\n')
    out = ["--out", str(tmp_path / "out"), "--encoder", "none"]
    done = run_command(str(file), *out)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "m.jsonl, line 13: is not JSON" in done.stderr
    assert run_command(str(file), *out, "--on-bad-line", "skip").returncode == 0
    done = run_command(str(file), *out, "--rpm", "5")
    assert done.returncode == 2 and "--rpm: would do nothing" in done.stderr
    done = run_command(str(file), *out, "--writer", "llm")
    assert done.returncode == 2 and "no model is named" in done.stderr
    done = run_command(str(file), *out, "--writer", "llm", "--model", "m", "--api-key-env", "", "--max-cost", "1", "--on-bad-line", "skip")
    assert done.returncode == 2 and "no price is given" in done.stderr
