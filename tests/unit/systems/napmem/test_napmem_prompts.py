"""What the policy reads, and what it must never see."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields

import pytest

from napmem_rl.errors import DataError
from napmem_rl.schema import AnswerKey, Task
from napmem_rl.systems.napmem.prompts import build_messages, render_question
from napmem_rl.tools.spec import MEMORY_TOOLS, ToolSpec

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


def test_the_prompt_of_all_five_tools_is_what_policies_were_trained_with() -> None:
    """A change of one byte here is a change of `PROMPT_VERSION`, and policies trained before it read something else than they learnt."""
    content = build(TASK, file_names=("life.md", "profile.md"))[0]["content"]
    assert hashlib.sha256(content.encode()).hexdigest() == "25f4d8a988adbc8a9a422b8f379a03499e3a66c8d1b56c81a12542e4e51d88c9"


def test_a_prompt_over_fewer_tools_names_nothing_that_cannot_be_reached() -> None:
    records_only = build(TASK, tools=[tool for tool in MEMORY_TOOLS if tool.name.endswith("records")])[0]["content"]
    assert "search_records" in records_only and "rec:7" in records_only
    for absent in ("search_conversation", "get_conversation", "read_file", "profile.md", "topic files", "msg:12", "levels", "Files of"):
        assert absent not in records_only
    without_files = build(TASK, tools=MEMORY_TOOLS[:4])[0]["content"]
    assert "two levels" in without_files and "msg:12" in without_files and "search_conversation" in without_files
    for absent in ("read_file", "profile.md", "topic file", "Files of"):
        assert absent not in without_files


def test_functions_of_the_task_are_named_after_the_rules_and_change_nothing_else() -> None:
    function = ToolSpec(name="book_table", description="Book a table.", parameters={"type": "object", "properties": {}})
    plain, own = build(TASK)[0]["content"], build(TASK, functions=[function])[0]["content"]
    assert own.startswith(plain) and "book_table" in own[len(plain) :]
