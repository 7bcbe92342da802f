"""The options of a multiple choice as a model reads them."""

from __future__ import annotations

import string

from napmem_rl.errors import DataError
from napmem_rl.schema import Task


def letter_options(task: Task) -> list[tuple[str, str]]:
    """(letter, option) in order; empty for an open question.

    Raises:
        DataError: more options than letters.
    """
    if len(task.options) > len(string.ascii_uppercase):
        raise DataError.of(f"task {task.task_id}", "has too many options", got=len(task.options), expected="at most 26")
    return list(zip(string.ascii_uppercase, task.options, strict=False))


def render_choice(task: Task, instruction: str) -> str:
    """The question, and for a multiple choice its lettered options, one a line, and `instruction`. Raises DataError, see `letter_options`."""
    options = letter_options(task)
    return "\n".join([task.question, *(f"{letter}. {option}" for letter, option in options), instruction]) if options else task.question
