"""A small run directory, written by the project's own trajectory log, banks and settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from napmem_rl.memory.bank import save_bank
from napmem_rl.schema import Message, Profile, Record, RecordType, Track

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>"
MOMENT = "2024-03-01T10:00:00"


def write_bank(directory: Path, bank_id: str = "ana", *, text: str = f"I live in Oslo. {HOSTILE}") -> str:
    """A bank of two messages, two records, a track and a profile; returns its version."""
    messages = [
        Message(message_id="msg:1", session_id="s1", role="user", speaker="Ana", text=text, time=MOMENT),
        Message(message_id="msg:2", session_id="s1", role="user", speaker="Ana", text="I like tea.", time=MOMENT, caption="a red cup"),
    ]
    records = [
        Record(record_id="rec:1", type=RecordType.FACT, text=f"Ana lives in Oslo. {HOSTILE}", time=MOMENT, source_ids=("msg:1",), session_id="s1"),
        Record(record_id="rec:2", type=RecordType.PREFERENCE, text="Ana likes tea.", time=MOMENT, source_ids=("msg:2",), session_id="s1"),
    ]
    track = Track(track_id="trk:home", file_name="home.md", title="Home", summary="Oslo", narrative="Oslo.", time=MOMENT, record_ids=("rec:1",))
    profile = Profile(text="Ana lives in Oslo. [rec:1]", time=MOMENT, source_ids=("rec:1", "trk:home"))
    return save_bank(directory / bank_id, bank_id=bank_id, messages=messages, records=records, tracks=[track], profile=profile, writer="test")


def make_call(*, ok: bool = True, items: Sequence[str] = ("rec:1",), **fields: Any) -> dict[str, Any]:
    """One call of a turn, as the trajectory log writes it."""
    call = {"name": "search_records", "arguments": {"query": "home"}, "text": f"rec:1 Ana lives in Oslo. {HOSTILE}", "is_success": ok, "failure": None}
    call |= {"level": "record", "item_ids": list(items) if ok else [], "message_ids": ["msg:1"], "latency_s": 0.01, "is_truncated": False}
    return call | ({} if ok else {"failure": "nothing_found", "text": "Nothing found."}) | fields


def make_line(*, step: int = 1, sample: int = 0, task: str = "t1", reward: float | None = 1.0, status: str = "completed", **fields: Any) -> dict[str, Any]:
    """One line of a trajectory file: a search, then an answer."""
    answered = status == "completed"
    turns = [
        {"text": "<tool_call>\n{}\n</tool_call>", "error": None, "num_prompt_tokens": 9, "num_response_tokens": 4, "calls": [make_call()]},
        {"text": f"<answer>Oslo {HOSTILE}</answer>", "error": None, "num_prompt_tokens": 40, "num_response_tokens": 5, "calls": []},
    ]
    line = {"run": "r1", "step": step, "sample": sample, "data_source": "test", "task_id": task, "bank_id": "ana", "category": "fact", "needs_memory": True}
    line |= {"question": f"Where does Ana live? {HOSTILE}", "options": [], "asked_at": "2024-04-01T00:00:00", "status": status, "detail": ""}
    line |= {"final_answer": f"Oslo {HOSTILE}" if answered else None, "reward": reward, "abstained": None if reward is not None else "judge: no verdict"}
    line |= {"terms": {"format": 1.0, "correct": 1.0}, "judge": "lexical", "policy_version": step - 1, "turns": turns}
    return line | fields


def write_trajectories(run_dir: Path, lines: Sequence[dict[str, Any]], *, kind: str = "step") -> None:
    """Append lines to the files of their steps."""
    directory = run_dir / "trajectories"
    directory.mkdir(parents=True, exist_ok=True)
    for line in lines:
        with (directory / f"{kind}_{line['step']:06d}.worker_0.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")


def write_metrics(run_dir: Path, steps: Sequence[int], name: str = "metrics.jsonl", **values: float) -> None:
    """A metrics file with these values at every step, and the step as reward."""
    run_dir.mkdir(parents=True, exist_ok=True)
    values = {"timing_s/step": 2.0, "timing_s/gen": 1.5, **values}
    rows = [{"step": step, "data": {"training/global_step": step, "napmem/reward": step / 10, **values}} for step in steps]
    (run_dir / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_settings(run_dir: Path, banks: Path, *, versions: dict[str, str]) -> None:
    """resolved.yaml and provenance.json."""
    run_dir.mkdir(parents=True, exist_ok=True)
    settings = {"napmem": {"platform": "cpu", "memory": {"banks": str(banks)}, "report": {"dir": None}}, "verl": {"trainer": {"total_training_steps": 4}}}
    (run_dir / "resolved.yaml").write_text(yaml.safe_dump(settings))
    (run_dir / "provenance.json").write_text(json.dumps({"revision": "abc", "versions": {"verl": "0.9.1"}, "banks": versions}))


def write_run(directory: Path, *, num_steps: int = 4, group: int = 4) -> Path:
    """A whole run: `num_steps` steps of two groups, one parse error, one abstention, a validation."""
    run_dir, banks = directory / "run", directory / "banks"
    write_settings(run_dir, banks, versions={"ana": write_bank(banks)})
    write_metrics(run_dir, range(1, num_steps + 1), **{"napmem/abstained": 0.0, "napmem/logprob_gap_max": 1e-6, "napmem/calls_per_question/record": 1.0})
    lines = []
    for step in range(1, num_steps + 1):
        for task in ("t1", "t2"):
            lines += [make_line(step=step, sample=sample, task=task, reward=1.0 if sample % 2 else -0.5) for sample in range(group)]
    lines[1] |= {"status": "error_parse", "final_answer": None, "reward": -1.0, "detail": "stray </answer> (char 7)", "category": "two_hop"}
    lines[2] |= {"reward": None, "abstained": "judge: no verdict"}
    write_trajectories(run_dir, lines)
    write_trajectories(run_dir, [make_line(step=0, task="v1")], kind="val")
    return run_dir
