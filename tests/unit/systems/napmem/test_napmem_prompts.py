"""What the policy reads, and what it must never see."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from napmem_rl.errors import DataError
from napmem_rl.schema import AnswerKey, Task
from napmem_rl.systems.napmem.prompts import build_messages, render_question
from napmem_rl.tools.spec import MEMORY_TOOLS

TASK = Task(
    task_id="task-id-7f", bank_id="bank-id-3c", question="Where does Ana live?", category="category-zebra", needs_memory=True, asked_at="2024-03-05T13:56:00"
)


def build(task: Task, **changes: object) -> list[dict]:
    settings = {"file_names": ("profile.md", "ana-job.md"), "max_tool_steps": 4, "max_calls_per_turn": 3, "has_system_prompt": True, **changes}
    return build_messages(task, **settings)


def test_the_system_prompt_names_levels_tools_files_budget_date_and_the_answer_tag() -> None:
    system, user = build(TASK)
    assert (system["role"], user) == ("system", {"role": "user", "content": "Where does Ana live?"})
    for tool in MEMORY_TOOLS:
        assert tool.name in system["content"]
    for words in ("profile.md, ana-job.md", "msg:12", "rec:7", "at most 4 turns", "at most 3 calls", "2024-03-05T13:56:00", "<answer>…</answer>"):
        assert words in system["content"]


def test_nothing_is_said_of_a_date_that_is_not_known_and_no_file_is_invented() -> None:
    task = Task(task_id="t", bank_id="b", question="Where?", category="c", needs_memory=True)
    system = build(task, file_names=())[0]["content"]
    assert "asked at" not in system and "None" not in system and "Files of this bank: none" in system


def test_options_are_lettered_in_order() -> None:
    task = Task(task_id="t", bank_id="b", question="Where?", category="c", needs_memory=True, options=("Oslo", "Rome"))
    assert render_question(task).split("\n")[:3] == ["Where?", "A. Oslo", "B. Rome"]
    assert "letter of one option only" in render_question(task)
    with pytest.raises(DataError, match="too many options"):
        render_question(Task(task_id="t", bank_id="b", question="Where?", category="c", needs_memory=True, options=("x",) * 27))


def test_without_a_system_prompt_the_question_stands_alone() -> None:
    assert build(TASK, has_system_prompt=False) == [{"role": "user", "content": "Where does Ana live?"}]


def test_ids_category_and_whether_memory_is_needed_never_reach_the_policy() -> None:
    text = json.dumps(build(TASK))
    assert not any(secret in text for secret in ("task-id-7f", "bank-id-3c", "category-zebra", "needs_memory"))
    control = Task(**{**{field.name: getattr(TASK, field.name) for field in fields(Task)}, "needs_memory": False, "category": "control"})
    assert build(control) == build(TASK)


def test_a_task_has_no_field_of_the_answer_key_but_the_id() -> None:
    assert {field.name for field in fields(Task)} & {field.name for field in fields(AnswerKey)} == {"task_id"}
