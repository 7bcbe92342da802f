"""Verdicts that are kept: what tells keys apart, what is asked once, and entries that hold no verdict."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from napmem_rl.errors import JudgeError
from napmem_rl.llm.disk_cache import DiskCache
from napmem_rl.llm.scripted import ScriptedChat
from napmem_rl.rewards.judge import LLMJudge
from napmem_rl.rewards.judge_cache import VerdictCache
from napmem_rl.rewards.verdict import Verdict
from napmem_rl.schema import AnswerKey, AnswerKind, Task

RIGHT, WRONG = Verdict(is_correct=True, reason="same"), Verdict(is_correct=False, reason="another")
YES, NO = '{"verdict": "correct", "reason": "same"}', '{"verdict": "incorrect", "reason": "another"}'


class Asked:
    """Gives verdicts in order; `count` is how often it was asked."""

    def __init__(self, *verdicts: Verdict | Exception) -> None:
        self._verdicts, self.count = list(verdicts), 0

    async def __call__(self) -> Verdict:
        self.count += 1
        await asyncio.sleep(0)
        verdict = self._verdicts.pop(0)
        if isinstance(verdict, Exception):
            raise verdict
        return verdict


def fetch(cache: VerdictCache, key: dict[str, Any], ask: Asked) -> Verdict:
    return asyncio.run(cache.fetch(key, ask))


def test_a_verdict_is_asked_for_once_over_processes_and_loops(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path)
    assert fetch(cache, {"a": "x"}, Asked(RIGHT)) == fetch(cache, {"a": "x"}, Asked()) == fetch(VerdictCache(tmp_path), {"a": "x"}, Asked()) == RIGHT
    assert fetch(cache, {"a": "y"}, Asked(WRONG)) == WRONG


def test_a_verdict_in_memory_needs_no_disk_and_the_oldest_leave_first(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path, max_held=2)
    for name in "abac":
        fetch(cache, {"q": name}, Asked(RIGHT))
    for file in tmp_path.rglob("*.json"):
        file.unlink()
    again = Asked(WRONG)
    assert [fetch(cache, {"q": name}, again) for name in "acb"] == [RIGHT, RIGHT, WRONG], "b was used longest ago"
    assert again.count == 1


def test_many_who_ask_the_same_at_once_ask_once_and_a_failure_is_not_kept(tmp_path: Path) -> None:
    async def gather(ask: Asked) -> list[Any]:
        cache = VerdictCache(tmp_path)
        return await asyncio.gather(*(cache.fetch({"q": "x"}, ask) for _ in range(3)), return_exceptions=True)

    failing = Asked(JudgeError("down"), RIGHT)
    first, *others = asyncio.run(gather(failing))
    assert isinstance(first, JudgeError) and others == [RIGHT, RIGHT] and failing.count == 2


def test_a_slow_disk_is_read_in_threads_and_a_quick_one_on_the_spot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    plain_get = DiskCache.get

    def get(disk: DiskCache, key: dict[str, Any]) -> Any:
        threads.append(threading.get_ident())
        if key["q"].startswith("slow"):
            time.sleep(0.05)
        return plain_get(disk, key)

    monkeypatch.setattr(DiskCache, "get", get)
    cache = VerdictCache(tmp_path)
    names = ["quick", *(f"slow {index}" for index in range(6)), *(f"quick {index}" for index in range(40))]
    assert all(fetch(cache, {"q": name}, Asked(RIGHT)) == RIGHT for name in names)
    here = threading.get_ident()
    assert threads[:4] == [here] * 4 and threads[6] != here and threads[-1] == here, "and comes back once reads are quick again"


@pytest.mark.parametrize("value", [5, "correct", {"is_correct": 1, "reason": "x"}, {"is_correct": True}, {"is_correct": True, "reason": "x", "n": 1}, [True]])
def test_an_entry_that_holds_no_verdict_is_asked_about_and_written_anew(tmp_path: Path, value: Any) -> None:
    DiskCache(tmp_path).put({"q": "x"}, value)
    assert fetch(VerdictCache(tmp_path), {"q": "x"}, Asked(RIGHT)) == RIGHT
    assert DiskCache(tmp_path).get({"q": "x"}) == {"is_correct": True, "reason": "same"}


def test_what_decides_a_verdict_stands_in_its_key(tmp_path: Path) -> None:
    """Kind and category count where they choose another rule, and only there; the bank and the task's id never do."""

    def judge(reply: str | None, protocol: str, category: str, kind: AnswerKind, *, task_id: str = "t") -> bool:
        task = Task(task_id=task_id, bank_id=task_id, question="How long?", category=category, needs_memory=True)
        key = AnswerKey(task_id=task_id, references=("8 days",), kind=kind)
        one = LLMJudge(ScriptedChat([reply] if reply else []), protocol=protocol, cache_dir=str(tmp_path))
        return asyncio.run(one.judge(task, key, "9 days")).is_correct

    assert not judge(NO, "napmem", "temporal-reasoning", AnswerKind.ANSWER)
    assert judge(YES, "longmemeval", "temporal-reasoning", AnswerKind.ANSWER)
    assert not judge(NO, "longmemeval", "multi-session", AnswerKind.ANSWER)
    assert not judge(NO, "longmemeval", "temporal-reasoning", AnswerKind.UNANSWERABLE)
    assert judge(YES, "locomo", "temporal-reasoning", AnswerKind.ANSWER)
    assert judge(None, "longmemeval", "temporal-reasoning", AnswerKind.ANSWER, task_id="another")
    assert judge(None, "auto", "temporal-reasoning", AnswerKind.ANSWER)
    assert not judge(None, "longmemeval", "single-session-user", AnswerKind.ANSWER)
    stored = [json.loads(path.read_text(encoding="utf-8"))["key"] for path in tmp_path.rglob("*.json")]
    assert {(key["instruction"], key["prompt_version"]) for key in stored} == {
        ("napmem/answer", "napmem-judge-2"),
        ("longmemeval/temporal-reasoning", "longmemeval-judge-1"),
        ("longmemeval/answer", "longmemeval-judge-1"),
        ("longmemeval/unanswerable", "longmemeval-judge-1"),
        ("locomo/answer", "locomo-judge-1"),
    }
