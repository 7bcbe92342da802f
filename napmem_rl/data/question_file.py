"""A user's own questions in plain files: one JSON object a line (JSONL, UTF-8), beside the messages of `messages_file`.

::

    {"bank_id": "ana", "question": "Where does Ana live?", "answer": "Oslo", "evidence_ids": ["msg:1"], "category": "fact", "asked_at": "2024-06-01T00:00:00"}

- `question` and an answer are required: `answer` (one text or number) or `references` (a list of accepted ones).
- `bank_id` or `user_id` says whose memory is asked; without either it is that of the file's name.
- `options` makes it a multiple choice; the answer is then the right option's text or its letter.
- `kind` is answer (the default), rubric (the answer says in words what a good one does) or unanswerable (the answer says why memory does not hold it).
- `task_id` is made of file and line without its own; `category` is "question", `needs_memory` true, and without `asked_at` all messages are in sight.

What is not so is a bad line, told with file and line number; a question to a bank without messages is one. Evidence ids that no message has are left out and
counted, as are the things that `messages_file` puts right.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from napmem_rl.data.json_lines import ON_BAD_LINE, iterate_lines, parse_object, read_id, read_text, read_time, refuse_bad_lines
from napmem_rl.data.messages_file import MessagesFile, RepairKind, load_messages
from napmem_rl.data.source import Repair, SourceBank, SourceSet
from napmem_rl.errors import DataError
from napmem_rl.memory.build_many import name_directories
from napmem_rl.schema import AnswerKey, AnswerKind, Task
from napmem_rl.tools.spec import shorten

NAME = "jsonl"
FIELDS = (
    "task_id",
    "bank_id",
    "user_id",
    "question",
    "answer",
    "references",
    "options",
    "evidence_ids",
    "category",
    "asked_at",
    "kind",
    "needs_memory",
)


@dataclass(slots=True)
class QuestionFile:
    """What was read: questions with keys, repairs, and the lines that were left out, in words."""

    items: list[tuple[Task, AnswerKey]] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)
    bad_lines: list[str] = field(default_factory=list)


def load_own_data(messages: Path, questions: Path | None = None, *, name: str = NAME, on_bad_line: str = "error") -> SourceSet:
    """Users' messages and questions to them as a source; each user is a group.

    Args:
        messages: a file, or a directory of files ``*.jsonl``; see `load_messages`.
        questions: a file of questions; None gives banks alone.
        name: the `data_source` of the rows.
        on_bad_line: "error" or "skip", for both.

    Raises:
        DataError: files that cannot be used, or bad lines.
    """
    loaded = load_messages(messages, on_bad_line=on_bad_line)
    names = name_directories(loaded.banks)
    banks = tuple(SourceBank(bank_id=names[bank], group_id=names[bank], messages=tuple(found)) for bank, found in loaded.banks.items())
    repairs = _describe_messages(messages, loaded)
    repairs += [Repair(group_id=names[bank], where="bank_id", kind="bank_renamed", before=bank, after=names[bank]) for bank in names if names[bank] != bank]
    if questions is None:
        return SourceSet(name=name, banks=banks, items=(), repairs=tuple(repairs))
    known = {bank: {message.message_id for message in found} for bank, found in loaded.banks.items()}
    found = load_questions(questions, known, names, on_bad_line=on_bad_line)
    return SourceSet(name=name, banks=banks, items=tuple(found.items), repairs=(*repairs, *found.repairs))


def load_questions(path: Path, messages: Mapping[str, Collection[str]], names: Mapping[str, str], *, on_bad_line: str = "error") -> QuestionFile:
    """Read a file of questions.

    Args:
        path: the file.
        messages: bank id as users write it -> ids of its messages.
        names: bank id as users write it -> the bank's id.
        on_bad_line: "error": any bad line is an error; "skip": it is left out and reported.

    Raises:
        DataError: missing, without questions, or bad lines; the first ones are told with file and line.
    """
    if on_bad_line not in ON_BAD_LINE:
        raise DataError.of("on_bad_line", "is unknown", got=on_bad_line, expected=" or ".join(ON_BAD_LINE))
    if not path.is_file():
        raise DataError.of(f"questions {path}", "no such file")
    found = QuestionFile()
    seen: set[str] = set()
    for where, line, _ in iterate_lines(path, f"questions {path}"):
        try:
            task, key = _read_line(line, path.stem, where.rpartition(" ")[2], messages, names, found.repairs)
            if task.task_id in seen:
                raise DataError(f"task_id {shorten(task.task_id)} stands earlier")
        except DataError as error:
            found.bad_lines.append(f"{where}: {error.message}")
            continue
        seen.add(task.task_id)
        found.items.append((task, key))
    refuse_bad_lines(f"questions {path}", found.bad_lines, on_bad_line)
    found.repairs += _describe_bad_lines(path, found.bad_lines)
    if not found.items:
        raise DataError.of(f"questions {path}", "hold no questions that can be used", expected="one JSON object a line")
    return found


def _read_line(
    line: bytes, stem: str, number: str, messages: Mapping[str, Collection[str]], names: Mapping[str, str], repairs: list[Repair]
) -> tuple[Task, AnswerKey]:
    """Raises DataError, whose message is for the end of a sentence that names the line."""
    value = parse_object(line)
    unknown = sorted(set(value) - set(FIELDS))
    if unknown:
        raise DataError(f"{shorten(repr(unknown[0]))} is no field of a question; they are {', '.join(FIELDS)}")
    given = {read_id(value, name) for name in ("bank_id", "user_id") if value.get(name) is not None} or {stem}
    if len(given) > 1:
        raise DataError("bank_id and user_id differ")
    bank = given.pop()
    if bank not in messages:
        raise DataError(f"no messages of bank {shorten(repr(bank))}; there are {len(messages)} banks")
    question = read_text(value, "question").strip()
    if not question:
        raise DataError("question is blank")
    task_id = read_id(value, "task_id") if value.get("task_id") is not None else f"{stem}:{number}"
    kind, options = _read_kind(value), _read_options(value)
    references = _read_references(value, options)
    evidence = _read_evidence(value, messages[bank], names[bank], task_id, repairs)
    needs_memory = value.get("needs_memory", True)
    if not isinstance(needs_memory, bool):
        raise DataError(f"needs_memory is {shorten(repr(needs_memory))}, expected true or false")
    category = read_text(value, "category") if value.get("category") is not None else "question"
    asked_at = None
    if value.get("asked_at") is not None:
        asked_at, is_converted = read_time(read_text(value, "asked_at"))
        if is_converted:
            repairs.append(Repair(group_id=names[bank], where=task_id, kind="time_converted", before=value["asked_at"], after=asked_at))
    task = Task(task_id=task_id, bank_id=names[bank], question=question, category=category, needs_memory=needs_memory, asked_at=asked_at, options=options)
    return task, AnswerKey(task_id=task_id, references=references, evidence_ids=evidence, kind=kind)


def _read_kind(value: Mapping[str, Any]) -> AnswerKind:
    given = value.get("kind", AnswerKind.ANSWER)
    if given not in tuple(AnswerKind):
        raise DataError(f"kind is {shorten(repr(given))}, expected {', '.join(AnswerKind)}")
    return AnswerKind(given)


def _read_options(value: Mapping[str, Any]) -> tuple[str, ...]:
    options = value.get("options") or []
    if not isinstance(options, list) or not all(isinstance(option, str) and option.strip() for option in options) or len(options) == 1:
        raise DataError(f"options are {shorten(repr(options))}, expected a list of two texts or more")
    if len(options) > len(string.ascii_uppercase) or len(set(options)) != len(options):
        raise DataError(f"options: {len(options)} with repeats or more than {len(string.ascii_uppercase)}")
    return tuple(option.strip() for option in options)


def _read_references(value: Mapping[str, Any], options: tuple[str, ...]) -> tuple[str, ...]:
    """The accepted answers; for a multiple choice the one letter."""
    if ("answer" in value) == ("references" in value):
        raise DataError("needs either answer or references")
    listed = value["references"] if "references" in value else [value["answer"]]
    if not isinstance(listed, list) or not listed or not all(isinstance(entry, str | int | float) and not isinstance(entry, bool) for entry in listed):
        raise DataError(f"references are {shorten(repr(listed))}, expected a list of texts or numbers")
    texts = tuple(str(entry).strip() for entry in listed)
    if not all(texts):
        raise DataError("an answer is blank")
    if not options:
        return texts
    letters = string.ascii_uppercase[: len(options)]
    chosen = {letters[options.index(text)] if text in options else text for text in texts}
    if len(chosen) != 1 or not chosen <= set(letters):
        raise DataError(f"the answer {shorten(repr(texts))} is neither one of the options nor a letter of {letters}")
    return tuple(chosen)


def _read_evidence(value: Mapping[str, Any], known: Collection[str], bank_id: str, task_id: str, repairs: list[Repair]) -> tuple[str, ...]:
    listed = value.get("evidence_ids") or []
    if not isinstance(listed, list):
        raise DataError(f"evidence_ids are {shorten(repr(listed))}, expected a list")
    given = [str(entry) if str(entry).startswith("msg:") else f"msg:{entry}" for entry in listed]
    for message_id in given:
        if message_id not in known:
            repairs.append(Repair(group_id=bank_id, where=task_id, kind="evidence_without_message", before=message_id, after=""))
    return tuple(dict.fromkeys(message_id for message_id in given if message_id in known))


def _describe_messages(path: Path, loaded: MessagesFile) -> list[Repair]:
    """Counted repairs of the messages as entries of the report: one a kind, and one a line that was left out."""
    counts = Counter(loaded.repairs)
    counts.pop("bad_line", None)
    repairs = [
        Repair(group_id=path.name, where="messages", kind=str(kind), before=f"{number} lines", after=RepairKind(kind).outcome)
        for kind, number in counts.items()
    ]
    return repairs + _describe_bad_lines(path, loaded.bad_lines)


def _describe_bad_lines(path: Path, bad_lines: list[str]) -> list[Repair]:
    """Lines that were left out, `<path>, line <n>: <why>` each, as entries of the report."""
    parts = [line.removeprefix(f"{path}, ").partition(": ") for line in bad_lines]
    return [Repair(group_id=path.name, where=where, kind="bad_line", before=why, after="") for where, _, why in parts]
