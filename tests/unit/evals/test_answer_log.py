"""Answers on disk: whole lines whatever happens, read back as written, the last of a kind counts."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from napmem_rl.errors import DataError
from napmem_rl.evals.answer_log import AnswerLog, is_error, iterate_answers, load_answers, read_answer, render_answer
from napmem_rl.evals.result_rows import AnswerRow


def make_row(task_id: str = "q:1", *, sample: int = 0, status: str = "completed", answer: str | None = "the attic") -> AnswerRow:
    trajectory = {"status": status, "final_answer": answer, "detail": "", "category": "fact", "question": "Where?", "options": [], "turns": []}
    return AnswerRow(
        benchmark="b",
        task_id=task_id,
        sample=sample,
        seed=7,
        group_id="g",
        trajectory=trajectory,
        context_ids=("msg:1", "msg:2"),
        context_ranked=True,
        prompt_tokens=10,
        completion_tokens=None,
        latency_s=0.25,
        retrieval_s=0.0,
    )


def write(path: Path, *rows: AnswerRow) -> None:
    log = AnswerLog(path)
    for row in rows:
        log.append(row)
    log.close()


@given(st.text(), st.text(min_size=1))
def test_a_row_is_read_back_as_it_was_and_is_one_line(answer: str, task_id: str) -> None:
    row = make_row(task_id, answer=answer)
    line = render_answer(row)
    assert line.endswith(b"\n") and line.count(b"\n") == 1 and b"\r" not in line
    assert read_answer(line, what="line") == row


def test_an_answer_with_a_lone_surrogate_is_kept() -> None:
    row = make_row(answer="bad \ud800 half")
    assert read_answer(render_answer(row), what="line") == row


def test_rows_of_several_runs_stand_in_one_file_and_the_later_one_counts(tmp_path: Path) -> None:
    path = tmp_path / "b" / "answers.jsonl"
    write(path, make_row("q:1", status="error_llm", answer=None), make_row("q:2"))
    write(path, make_row("q:1"), make_row("q:1", sample=1))
    rows = load_answers(path)
    assert list(rows) == [("q:1", 0), ("q:2", 0), ("q:1", 1)] and not any(map(is_error, rows.values()))
    assert len(list(iterate_answers(path))) == 4


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_a_torn_last_line_is_cut_and_told_and_nothing_else_is_lost(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "answers.jsonl"
    write(path, make_row("q:1"), make_row("q:2"))
    path.write_bytes(path.read_bytes()[:-cut])
    assert list(load_answers(path)) == [("q:1", 0)]  # a reader passes over it
    log = AnswerLog(path)
    assert len(log.repairs) == 1 and "torn" in log.repairs[0]
    log.append(make_row("q:3"))
    log.close()
    assert list(load_answers(path)) == [("q:1", 0), ("q:3", 0)]


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    write(path, make_row("q:1"))
    path.write_bytes(b'{"task_id": 3}\n' + path.read_bytes())
    with pytest.raises(DataError, match=r"answers.jsonl, line 1: is no answer"):
        load_answers(path)


def test_failures_of_ours_are_errors_and_a_wrong_end_of_the_policy_is_not() -> None:
    assert is_error(make_row(status="error_llm", answer=None)) and is_error(make_row(status="error_tool", answer=None))
    assert not is_error(make_row(status="error_parse", answer=None)) and not is_error(make_row())


def test_every_field_of_a_row_is_written(tmp_path: Path) -> None:
    line = render_answer(make_row()).decode()
    assert all(f'"{field.name}":' in line for field in dataclasses.fields(AnswerRow))


def test_a_full_disk_leaves_no_part_of_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "answers.jsonl"
    log = AnswerLog(path)
    log.append(make_row("q:1"))
    real = __import__("os").write
    monkeypatch.setattr("napmem_rl.evals.answer_log.os.write", lambda descriptor, data: real(descriptor, data[:10]))
    with pytest.raises(OSError, match="only 10 of"):
        log.append(make_row("q:2"))
    monkeypatch.undo()
    log.append(make_row("q:3"))
    log.close()
    assert list(load_answers(path)) == [("q:1", 0), ("q:3", 0)]
