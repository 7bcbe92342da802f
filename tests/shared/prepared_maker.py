"""A small benchmark as launch/prepare_data.py would leave it, written by hand: users who said where their things are, and questions for them."""

from __future__ import annotations

import json
from pathlib import Path

from napmem_rl.data.rows import save_rows
from napmem_rl.memory.builder import build_bank
from napmem_rl.schema import AnswerKey, AnswerKind, Message, Task

THINGS = ("lantern", "saddle", "compass", "kettle", "violin", "anchor", "ladder", "basket")
PLACES = ("attic", "stable", "harbour office", "kitchen", "music room", "boat", "shed", "cellar")


def write_prepared(path: Path, *, users: int = 2, questions: int = 4, split: str = "test") -> Path:
    """`questions` a user, at most eight; of each user's the last is unanswerable. Returns the directory."""
    banks, items = {}, []
    for user in range(users):
        bank_id = f"user-{user}"
        version = build_bank(path / "banks" / bank_id, bank_id, make_messages(user))
        banks[bank_id] = {"group": f"group-{user}", "split": split, "version": version}
        items += [make_item(user, number, is_last=number == questions - 1) for number in range(questions)]
    save_rows(path / f"{split}.parquet", items, data_source="handmade")
    (path / "data.json").write_text(json.dumps({"format": 2, "source": "handmade", "banks": banks}))
    return path


def make_messages(user: int) -> tuple[Message, ...]:
    """One message a thing, and some talk between."""
    said = [f"I keep my {thing} in the {PLACES[(number + user) % len(PLACES)]} these days." for number, thing in enumerate(THINGS)]
    texts = [text for pair in zip(said, [f"It rained again on day {number}." for number in range(len(said))], strict=True) for text in pair]
    return tuple(
        Message(
            message_id=f"msg:{number}", session_id=f"s{number // 4}", role="user", speaker=f"Ana {user}", text=text, time=f"2024-03-{number + 1:02d}T10:00:00"
        )
        for number, text in enumerate(texts)
    )


def make_item(user: int, number: int, *, is_last: bool) -> tuple[Task, AnswerKey]:
    """Where a thing is kept; the last question is about one that nobody mentioned."""
    task_id = f"q:{user}:{number}"
    question = "Where do I keep my telescope?" if is_last else f"Where do I keep my {THINGS[number]}?"
    task = Task(task_id=task_id, bank_id=f"user-{user}", question=question, category="none" if is_last else ("fact", "place")[number % 2], needs_memory=True)
    if is_last:
        return task, AnswerKey(task_id=task_id, references=("A telescope was never mentioned.",), kind=AnswerKind.UNANSWERABLE)
    return task, AnswerKey(task_id=task_id, references=(PLACES[(number + user) % len(PLACES)],), evidence_ids=(f"msg:{2 * number}",))
