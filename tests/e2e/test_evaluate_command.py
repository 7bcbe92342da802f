"""launch/evaluate.py as a user runs it: a real process, real banks, and an endpoint that answers by script."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from judge_endpoint import serve_judge
from prepared_maker import write_prepared

from napmem_rl.backend.scripted_endpoint import MODEL, serve_scripted
from napmem_rl.evals.answer_log import load_answers

ROOT = Path(__file__).resolve().parents[2]
EXTRACTIVE = ["passive_bm25", "policy.engine=extractive"]
TIMES = ("latency_s", "retrieval_s")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_prepared(tmp_path_factory.mktemp("data") / "things", users=3, questions=6)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with serve_scripted(latency_s=0.2) as url:
        yield url


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / "launch" / "evaluate.py"), *arguments]


def run(*arguments: str, expected: int = 0) -> str:
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout + done.stderr


def asks(url: str) -> list[str]:
    return ["passive_bm25", f"policy.model={MODEL}", f"policy.base_url={url}", "policy.api_key_env=''", "evaluation.max_concurrency=2"]


def read_rows(out: Path) -> dict[Any, Any]:
    """What was answered, without what the clock says."""
    rows = {}
    for identity, row in load_answers(out / "things-test" / "answers.jsonl").items():
        trajectory = {**row.trajectory, "turns": [{**turn, "calls": []} for turn in row.trajectory["turns"]]}
        plain = {name: getattr(row, name) for name in row.__slots__ if name not in TIMES}
        rows[identity] = plain | {"trajectory": trajectory}
    return rows


def test_one_command_answers_scores_and_reports(data: Path, tmp_path: Path) -> None:
    text = run(*EXTRACTIVE, "--on", str(data), "--out", str(tmp_path / "out"))
    assert "split test, 18 questions" in text and "18 of 18 attempts answered" in text
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    part = summary["benchmarks"]["things-test"]
    assert summary["is_complete"] and part["num_answers"] == 18 and part["scores"]["num_unanswerable"] == 3
    recall = part["scores"]["overall"]["evidence_recall"]["interval"]
    assert recall["num_values"] == 15 and recall["num_users"] == 3 and recall["low"] <= recall["mean"] <= recall["high"]
    assert "false accepts" in summary["judge"]["calibration_line"] and "Judge lexical: false accepts" in (tmp_path / "out" / "summary.md").read_text()
    page = (tmp_path / "out" / "report.html").read_text()
    assert "default-src 'none'" in page and "<script" not in page and "Where do I keep my" in page
    again = run(*EXTRACTIVE, "--on", f"{data}:test", "--out", str(tmp_path / "out"))
    assert "every attempt is answered" in again


def test_a_killed_run_goes_on_and_ends_as_one_that_was_not_killed(data: Path, endpoint: str, tmp_path: Path) -> None:
    arguments = [*asks(endpoint), "--on", str(data)]
    killed = tmp_path / "killed"
    process = subprocess.Popen(command(*arguments, "--out", str(killed)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    answers = killed / "things-test" / "answers.jsonl"
    deadline = time.monotonic() + 120
    while not (answers.exists() and answers.read_bytes().count(b"\n") >= 5) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = answers.read_bytes().count(b"\n")
    assert 5 <= done < 18
    assert "going on with the answers that are there" in run(*arguments, "--out", str(killed))
    run(*arguments, "--out", str(tmp_path / "whole"))
    assert read_rows(killed) == read_rows(tmp_path / "whole") and len(read_rows(killed)) == 18
    lines = answers.read_text().splitlines()
    assert len(lines) == 18, "what was answered before the kill was not asked again"


def test_a_terminated_run_says_how_to_go_on(data: Path, endpoint: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(command(*asks(endpoint), "--on", str(data), "--out", str(out)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    answers = out / "things-test" / "answers.jsonl"
    deadline = time.monotonic() + 120
    while not (answers.exists() and answers.read_bytes().count(b"\n") >= 3) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "stopped: signal SIGTERM" in text and "go on with: python" in text and "passive_bm25" in text
    assert not (out / "summary.json").exists() and 3 <= len(read_rows(out)) < 18


def test_other_settings_or_other_data_are_refused_by_name(data: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    run(*EXTRACTIVE, "--on", str(data), "--out", out)
    text = run(*EXTRACTIVE, "policy.top_k=3", "evaluation.seed=1", "--on", str(data), "--out", out, expected=2)
    assert "policy.top_k: 20 → 3" in text and "evaluation.seed: 0 → 1" in text and "another --out" in text
    assert "holds something else" in run(*EXTRACTIVE, "--on", str(data), "--out", str(data), expected=2)
    run(*EXTRACTIVE, "evaluation.metrics=[exact_match]", "evaluation.max_concurrency=3", "--on", str(data), "--out", out)  # decide no answer


def test_questions_without_their_bank_are_counted_and_the_others_are_asked(data: Path, tmp_path: Path) -> None:
    broken = tmp_path / "things"
    shutil.copytree(data, broken)
    shutil.rmtree(broken / "banks" / "user-1")
    meta = json.loads((broken / "data.json").read_text())
    meta["banks"]["user-2"]["version"] = "0" * 16
    (broken / "data.json").write_text(json.dumps(meta))
    text = run(*EXTRACTIVE, "--on", str(broken), "--out", str(tmp_path / "out"), expected=1)
    part = json.loads((tmp_path / "out" / "summary.json").read_text())["benchmarks"]["things-test"]
    assert (part["num_answers"], part["num_missing"], part["not_asked"]["count"]) == (6, 12, 12) and len(part["not_asked"]["by_reason"]) == 2
    assert "12 could not be asked" in text and "not complete" in text


def test_an_endpoint_that_limits_rates_is_asked_again_and_one_that_is_down_ends_the_run(data: Path, tmp_path: Path) -> None:
    with serve_scripted(limit_every=3) as url:
        run(*asks(url), "--on", str(data), "--out", str(tmp_path / "limited"))
    assert all(row["trajectory"]["status"] == "completed" for row in read_rows(tmp_path / "limited").values())
    with serve_scripted(down_after=4) as url:
        arguments = [*asks(url), "policy.max_retries=0", "evaluation.samples=3", "--on", str(data), "--out", str(tmp_path / "down")]
        text = run(*arguments, expected=1)
    assert "20 attempts in a row failed at the endpoint" in text and "go on with" in text
    assert sum(row["trajectory"]["status"] == "completed" for row in read_rows(tmp_path / "down").values()) == 4


def test_a_judge_that_does_not_reply_is_said_before_anything_is_asked(data: Path, tmp_path: Path) -> None:
    judge = ["judge.kind=openai", "judge.model=j", "judge.base_url=http://127.0.0.1:9/v1", "judge.api_key_env=''", "judge.max_retries=0"]
    text = run(*EXTRACTIVE, *judge, "--on", str(data), "--out", str(tmp_path / "out"), expected=2)
    assert "model j at http://127.0.0.1:9/v1: preflight failed" in text and text.splitlines()[-1].startswith("error: ")
    assert not (tmp_path / "out" / "things-test" / "answers.jsonl").read_bytes()


def test_a_run_that_is_interrupted_while_judged_says_how_to_go_on(data: Path, tmp_path: Path) -> None:
    out, asked = tmp_path / "out", []

    def think(messages: list[dict[str, Any]]) -> str:
        time.sleep(3)
        return json.dumps({"verdict": "incorrect", "reason": "scripted"})

    url, stop = serve_judge(think, requests=asked)
    judge = ["judge.kind=openai", "judge.model=judge", f"judge.base_url={url}", "judge.api_key_env=''", "judge.max_concurrency=1"]
    arguments = [*EXTRACTIVE, *judge, "--on", str(data), "--out", str(out)]
    listen = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs are started deaf to it
    process = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=listen)
    assert process.stdout is not None
    said = next(line for line in process.stdout if " failed, " in line)  # all is answered; 18 verdicts at 3 s begin
    before = len(asked)
    while len(asked) == before and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=60)
    stop()
    assert "18 attempts in" in said and process.returncode == 130 and "Traceback" not in text
    assert "stopped. What is answered is kept in" in text and "judge.cache_dir=DIR keeps them" in text and "go on with: python" in text
    assert len(read_rows(out)) == 18 and not (out / "summary.json").exists()


def test_what_cannot_be_used_is_said_in_one_line(data: Path, tmp_path: Path) -> None:
    assert "Did you mean passive_bm25" in run("passive_bm52", "--on", str(data), expected=2)
    assert "has no split dev" in run(*EXTRACTIVE, "--on", f"{data}:dev", expected=2)
    assert "is no prepared directory" in run(*EXTRACTIVE, "--on", str(tmp_path), expected=2)
    assert "holds an unknown metric" in run(*EXTRACTIVE, "evaluation.metrics=[exact_mach]", "--on", str(data), "--out", str(tmp_path / "out"), expected=2)
