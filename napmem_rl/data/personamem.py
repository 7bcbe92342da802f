"""PersonaMem-v2 in its published schema: a CSV file of questions with links to chat histories; multiple choice, one bank a history.

Choices that the paper leaves open, or where the data are not what they seem:

- The options are the correct answer and the incorrect ones, in an order that follows from a seed and the row's number (NapMem appendix A shuffles them).
- A history opens with a system message that holds the persona in words. It is no part of a conversation and would answer the questions: it is left out
  (`system_message`), wherever it stands.
- A history has neither moments nor sessions. Its messages stand a minute apart from `START`, in one session; a question is asked a minute after the last.
- `user_query` and `incorrect_answers` are JSON in some rows and Python literals in others; a query that is neither is taken as it is (`query_plain`).
- Evidence are the messages of the history that the row's `related_conversation_snippet` quotes; where none is found, it is unknown (`evidence_unknown`).
- Of a message with parts (the multimodal histories) the texts are kept, the images left out (`image`).
- Users are groups: two histories of one persona never part in a split. The category is `pref_type`.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from napmem_rl.data.control_files import shuffle_options
from napmem_rl.data.published_file import iterate_table, read_field
from napmem_rl.data.source import Repair, SourceBank, SourcePart, StreamedSource
from napmem_rl.data.splits import read_json
from napmem_rl.errors import DataError
from napmem_rl.schema import AnswerKey, Message, Task

NAME = "personamem"
HISTORIES = ("32k", "128k")
START = datetime(2024, 1, 1, 9, 0)
_COLUMNS = ("persona_id", "user_query", "correct_answer", "incorrect_answers")
_SPEAKERS = {"user": "User", "assistant": "Assistant"}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """What is kept of one row of the CSV file."""

    number: int
    persona_id: str
    query: str
    right: str
    wrong: str
    category: str
    snippet: str


def load_personamem(path: Path | str, *, history: str = "32k", seed: int = 0) -> StreamedSource:
    """PersonaMem-v2 from a CSV file of its repository, read one history at a time.

    Args:
        path: e.g. ``benchmark/text/benchmark.csv``. Links to histories are relative to the repository: the directory of the file or one above it.
        history: which histories to take, 32k or 128k.
        seed: of the options' order.

    Raises:
        DataError: (while it is read) missing or another format; the message names row and column.
    """
    if history not in HISTORIES:
        raise DataError.of("--history", "is unknown", got=history, expected=" or ".join(HISTORIES))
    return StreamedSource(name=NAME, read=functools.partial(_read_parts, Path(path), f"chat_history_{history}_link", seed))


def _read_parts(path: Path, link_column: str, seed: int) -> Iterator[SourcePart]:
    what = f"PersonaMem-v2 file {path}"
    by_link: dict[str, list[_Row]] = {}
    for number, row in iterate_table(path, what, (*_COLUMNS, link_column)):
        link = row[link_column].strip()
        if not link:
            raise DataError.of(f"{what}, row {number}, column {link_column!r}", "is empty", expected="the path of a chat history")
        by_link.setdefault(link, []).append(
            _Row(
                number=number,
                persona_id=row["persona_id"].strip(),
                query=row["user_query"],
                right=row["correct_answer"],
                wrong=row["incorrect_answers"],
                category=(row.get("pref_type") or "preference").strip(),
                snippet=row.get("related_conversation_snippet") or "",
            )
        )
    for link, rows in by_link.items():
        personas = {row.persona_id for row in rows}
        if len(personas) > 1:
            raise DataError.of(f"{what}, row {rows[0].number}", f"history {link} belongs to several personas", got=sorted(personas))
        yield _convert(_find_history(path, link, f"{what}, row {rows[0].number}"), rows, seed, what)


def _find_history(path: Path, link: str, what: str) -> Path:
    """The linked file, in the directory of the CSV file or the nearest one above it."""
    for root in path.resolve().parents:
        if (root / link).is_file():
            return root / link
    raise DataError.of(what, "its chat history is missing", got=link, fix="Keep the repository's directories: the link is relative to its root.")


def _convert(file: Path, rows: Sequence[_Row], seed: int, what: str) -> SourcePart:
    """One history as a bank, with the questions to it."""
    group_id = f"persona-{rows[0].persona_id}"
    bank_id = re.sub(r"[^A-Za-z0-9_-]+", "-", f"{group_id}_{file.stem}")
    repairs: list[Repair] = []
    messages = _read_history(file, bank_id, group_id, repairs)
    if not messages:
        raise DataError.of(f"chat history {file}", "holds no messages of user or assistant")
    asked_at = (datetime.fromisoformat(messages[-1].time) + timedelta(minutes=1)).isoformat()
    items = [item for row in rows if (item := _build_item(row, messages, bank_id, group_id, asked_at, seed, what, repairs)) is not None]
    bank = SourceBank(bank_id=bank_id, group_id=group_id, messages=messages)
    return SourcePart(banks=(bank,), items=tuple(items), repairs=tuple(repairs))


def _read_history(file: Path, bank_id: str, group_id: str, repairs: list[Repair]) -> tuple[Message, ...]:
    what = f"chat history {file}"
    raw = read_json(file, what)
    turns = read_field(raw, "chat_history", list, what, set_name="PersonaMem-v2") if isinstance(raw, Mapping) else raw
    if not isinstance(turns, list):
        raise DataError.of(what, "not PersonaMem-v2's format", got=raw, expected="{chat_history: [messages]}")
    messages: list[Message] = []
    for position, turn in enumerate(turns):
        where = f"{what}, message {position}"
        role = read_field(turn, "role", str, where, set_name="PersonaMem-v2")
        if role not in (*_SPEAKERS, "system"):
            raise DataError.of(f"{where}, field 'role'", "is unknown", got=role, expected="user, assistant or system")
        text, num_images = _read_content(read_field(turn, "content", (str, list), where, set_name="PersonaMem-v2"))
        place = f"{bank_id}, message {position}"
        repairs += [Repair(group_id=group_id, where=place, kind="image", before="an image", after="")] * num_images
        if role == "system" or not text:
            repairs.append(Repair(group_id=group_id, where=place, kind="system_message" if role == "system" else "empty_turn", before=text[:60], after=""))
            continue
        time = (START + timedelta(minutes=position)).isoformat()
        messages.append(Message(message_id=f"msg:{position}", session_id="s1", role=role, speaker=_SPEAKERS[role], text=text, time=time))
    return tuple(messages)


def _read_content(content: str | list[Any]) -> tuple[str, int]:
    """The text of a message, and how many parts of it are something else."""
    if isinstance(content, str):
        return content.strip(), 0
    texts = [str(part.get("text", "")) for part in content if isinstance(part, Mapping) and part.get("type") == "text"]
    return "\n".join(texts).strip(), len(content) - len(texts)


def _build_item(
    row: _Row, messages: Sequence[Message], bank_id: str, group_id: str, asked_at: str, seed: int, what: str, repairs: list[Repair]
) -> tuple[Task, AnswerKey] | None:
    """One row as a question with its key; None where it is left out, which is reported."""
    task_id, where = f"{NAME}:{row.number}", f"row {row.number}"
    note = functools.partial(_note, repairs, group_id, where)
    query = _parse_literal(row.query)
    is_message = isinstance(query, Mapping) and isinstance(query.get("content"), str)
    if not is_message:
        note("query_plain", row.query, "taken as it is")
    question = (query["content"] if is_message else row.query).strip()
    listed = _parse_literal(row.wrong)
    wrong = [str(text).strip() for text in listed] if isinstance(listed, list) else []
    different = [text for text in dict.fromkeys(wrong) if text and text != row.right.strip()]
    if len(different) < len(wrong):
        note("option_repeated", f"{len(wrong)} wrong options", f"{len(different)} different ones")
    if not different or not row.right.strip() or not question:
        note("dropped_no_options" if question else "dropped_no_question", row.wrong, "")
        return None
    options, letter = shuffle_options(row.right, different, seed=seed, task_id=task_id, what=f"{what}, {where}")
    evidence = _find_quoted(_parse_literal(row.snippet), messages)
    if not evidence:
        note("evidence_unknown", row.snippet or "(empty)", "evidence unknown")
    task = Task(task_id=task_id, bank_id=bank_id, question=question, category=row.category, needs_memory=True, asked_at=asked_at, options=options)
    return task, AnswerKey(task_id=task_id, references=(letter,), evidence_ids=evidence)


def _note(repairs: list[Repair], group_id: str, where: str, kind: str, before: str, after: str) -> None:
    repairs.append(Repair(group_id=group_id, where=where, kind=kind, before=before[:60], after=after))


def _find_quoted(snippet: Any, messages: Sequence[Message]) -> tuple[str, ...]:
    """Ids of the messages whose text stands in a snippet of messages."""
    quoted = {str(part.get("content", "")).strip() for part in snippet if isinstance(part, Mapping)} if isinstance(snippet, list) else set()
    return tuple(message.message_id for message in messages if message.text in quoted)


def _parse_literal(text: str) -> Any:
    """A cell that holds JSON or a Python literal; None where it is neither."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
