"""Control tasks out of files that a user gives: questions that no memory answers, asked with some user's memory at hand (NapMem section 4.3, Table 2).

A policy that reads memory for them does so for nothing. Two formats:

- GPQA-style multiple choice, a CSV file with the published columns ``Question``, ``Correct Answer``, ``Incorrect Answer 1`` to ``3`` (others are not read),
  or JSON objects ``{question, correct_answer, incorrect_answers}``. The order of the options follows from a seed and the task's id.
- BFCL-style function calling: JSON objects with ``id``, ``question`` (turns of messages), ``function`` (schemas) and ``ground_truth``, which may stand in a
  second file by id. Ground truth is either ``{name: {argument: [accepted values]}}``, where ``""`` among the values means that the argument may be left out,
  or, in the executable files, a call in Python's syntax, ``"name(argument=value)"``. Requests of several turns are left out and counted.

Each task goes to one bank of a prepared directory, drawn by seed and id, as the paper gives each a random user's pyramid.
"""

from __future__ import annotations

import ast
import hashlib
import json
import random
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from napmem_rl.atomic import write_file
from napmem_rl.data.published_file import iterate_objects, iterate_table, read_field
from napmem_rl.data.source import Repair
from napmem_rl.errors import DataError
from napmem_rl.schema import AnswerKey, Task
from napmem_rl.tools.spec import ToolSpec

GPQA, BFCL = "gpqa", "bfcl"
FUNCTIONS_FILE = "functions.jsonl"  # beside test.parquet: schemas and accepted calls by task id
_WRONG = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
_TYPES = {"dict": "object", "float": "number", "tuple": "array", "list": "array", "int": "integer", "str": "string", "bool": "boolean"}


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceptedCall:
    """One call of a right answer: for each argument the values that count, and which arguments may be left out.

    Example: AcceptedCall(name="area", arguments={"base": (10,), "unit": ("cm",)}, optional=("unit",))
    """

    name: str
    arguments: Mapping[str, tuple[Any, ...]]
    optional: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class FunctionTask:
    """A request with functions to call for it. Holds nothing of the answer."""

    task: Task
    functions: tuple[ToolSpec, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FunctionKey:
    """What a right answer calls, each exactly once; the order is free (BFCL's parallel calls)."""

    task_id: str
    calls: tuple[AcceptedCall, ...]


@dataclass(slots=True)
class ControlSet:
    """Control tasks of one file. `functions` is empty for multiple choice; otherwise it pairs with `items`."""

    name: str
    items: list[tuple[Task, AnswerKey]] = field(default_factory=list)
    functions: list[tuple[FunctionTask, FunctionKey]] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)


def load_gpqa(path: Path, bank_ids: Sequence[str], *, seed: int = 0) -> ControlSet:
    """Read multiple-choice questions.

    Args:
        path: CSV (by its name) or JSON.
        bank_ids: banks to draw from; at least one.
        seed: of the options' order and of the bank.

    Raises:
        DataError: another format; the message names row and column.
    """
    what, found = f"GPQA-style file {path}", ControlSet(name=GPQA)
    for number, (task_id, question, right, wrong) in enumerate(_iterate_choices(path, what), start=1):
        options, letter = shuffle_options(right, wrong, seed=seed, task_id=task_id, what=f"{what}, row {number}")
        bank_id = draw_bank(bank_ids, seed=seed, task_id=task_id)
        task = Task(task_id=task_id, bank_id=bank_id, question=question, category=GPQA, needs_memory=False, options=options)
        found.items.append((task, AnswerKey(task_id=task_id, references=(letter,))))
    return found


def load_bfcl(path: Path, bank_ids: Sequence[str], *, answers: Path | None = None, seed: int = 0) -> ControlSet:
    """Read requests with function schemas and the calls that answer them.

    Args:
        path: JSON objects, one a line or in a list.
        bank_ids: banks to draw from; at least one.
        answers: the file of ground truths, where they do not stand in `path`.
        seed: of the bank.

    Raises:
        DataError: another format, a schema that is none, a request without ground truth; the message names the id and the field.
    """
    what, found = f"BFCL-style file {path}", ControlSet(name=BFCL)
    truths = {str(raw.get("id")): raw.get("ground_truth") for raw in iterate_objects(answers, f"BFCL-style answers {answers}")} if answers else {}
    for raw in iterate_objects(path, what):
        given = str(read_field(raw, "id", str, what, set_name="BFCL"))
        where = f"{what}, id {given}"
        turns = read_field(raw, "question", list, where, set_name="BFCL")
        if len(turns) != 1 or not isinstance(turns[0], list):
            found.repairs.append(Repair(group_id=given, where="question", kind="dropped_several_turns", before=f"{len(turns)} turns", after=""))
            continue
        truth = raw.get("ground_truth", truths.get(given))
        if not isinstance(truth, list) or not truth:
            raise DataError.of(where, "has no ground truth", got=truth, fix="Give the file of possible answers with --answers.")
        question = "\n\n".join(read_field(message, "content", str, where, set_name="BFCL").strip() for message in turns[0])
        task = Task(
            task_id=f"{BFCL}:{given}",
            bank_id=draw_bank(bank_ids, seed=seed, task_id=given),
            question=question,
            category=given.rpartition("_")[0] or BFCL,
            needs_memory=False,
        )
        functions = tuple(_read_function(function, where) for function in _as_list(raw.get("function")))
        calls = tuple(call for entry in truth for call in _read_calls(entry, where))
        _check_calls(calls, functions, where)
        found.items.append((task, AnswerKey(task_id=task.task_id, references=("; ".join(describe_call(call) for call in calls),))))
        found.functions.append((FunctionTask(task=task, functions=functions), FunctionKey(task_id=task.task_id, calls=calls)))
    return found


def shuffle_options(right: str, wrong: Sequence[str], *, seed: int, task_id: str, what: str) -> tuple[tuple[str, ...], str]:
    """Options in an order that follows from seed and task id alone, and the right one's letter.

    Raises:
        DataError: fewer than two options, an empty one, or two that are the same.
    """
    options = [right.strip(), *(text.strip() for text in wrong)]
    if len(options) < 2 or not all(options) or len(set(options)) != len(options) or len(options) > len(string.ascii_uppercase):
        raise DataError.of(what, "its options are not 2 to 26 different texts", got=options)
    _random(seed, task_id, "options").shuffle(options)
    return tuple(options), string.ascii_uppercase[options.index(right.strip())]


def draw_bank(bank_ids: Sequence[str], *, seed: int, task_id: str) -> str:
    """The bank of a control task: uniform over the banks, the same for the same seed, id and banks in any order."""
    if not bank_ids:
        raise DataError.of("control tasks", "there is no bank to give them to", fix="Prepare a data set with banks first.")
    return _random(seed, task_id, "bank").choice(sorted(bank_ids))


def describe_call(call: AcceptedCall) -> str:
    """A call in one line, with the first accepted value of each argument, e.g. ``area(base=10, unit='cm')``."""
    return f"{call.name}({', '.join(f'{name}={values[0]!r}' for name, values in call.arguments.items())})"


def save_functions(path: Path, pairs: Sequence[tuple[FunctionTask, FunctionKey]]) -> None:
    """Write schemas and accepted calls, one JSON object a task; see `load_functions`."""
    lines = []
    for task, key in pairs:
        functions = [{"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)} for spec in task.functions]
        calls = [
            {"name": call.name, "arguments": {name: list(values) for name, values in call.arguments.items()}, "optional": list(call.optional)}
            for call in key.calls
        ]
        lines.append(json.dumps({"task_id": key.task_id, "functions": functions, "calls": calls}, ensure_ascii=False))
    write_file(path, "".join(f"{line}\n" for line in lines))


def load_functions(path: Path, tasks: Sequence[Task]) -> list[tuple[FunctionTask, FunctionKey]]:
    """The function tasks among `tasks` (rows of a prepared directory), in their order.

    Args:
        path: a prepared directory; without ``functions.jsonl`` it holds none.
        tasks: of its rows.

    Raises:
        DataError: the file cannot be read.
    """
    file = path / FUNCTIONS_FILE
    if not file.exists():
        return []
    what = f"functions {file}"
    known = {read_field(raw, "task_id", str, what, set_name="functions.jsonl"): raw for raw in iterate_objects(file, what)}
    found = []
    for task in tasks:
        raw = known.get(task.task_id)
        if raw is not None:
            functions = tuple(ToolSpec(**function) for function in raw["functions"])
            calls = tuple(
                AcceptedCall(
                    name=call["name"],
                    arguments={name: tuple(values) for name, values in call["arguments"].items()},
                    optional=tuple(call["optional"]),
                )
                for call in raw["calls"]
            )
            found.append((FunctionTask(task=task, functions=functions), FunctionKey(task_id=task.task_id, calls=calls)))
    return found


def _iterate_choices(path: Path, what: str) -> Iterator[tuple[str, str, str, list[str]]]:
    """(task id, question, right answer, wrong answers) of each row."""
    if ".csv" in path.suffixes:
        for number, row in iterate_table(path, what, ("Question", "Correct Answer", *_WRONG)):
            yield f"{GPQA}:{row.get('Record ID') or number}", row["Question"].strip(), row["Correct Answer"], [row[name] for name in _WRONG]
        return
    for number, raw in enumerate(iterate_objects(path, what), start=1):
        where = f"{what}, object {number}"
        wrong = read_field(raw, "incorrect_answers", list, where, set_name="GPQA")
        question = read_field(raw, "question", str, where, set_name="GPQA").strip()
        yield f"{GPQA}:{raw.get('id') or number}", question, read_field(raw, "correct_answer", str, where, set_name="GPQA"), [str(text) for text in wrong]


def _read_function(raw: Any, what: str) -> ToolSpec:
    """A schema in BFCL's own type names as a JSON schema."""
    name = read_field(raw, "name", str, what, set_name="BFCL")
    parameters = _convert_schema(read_field(raw, "parameters", dict, f"{what}, function {name}", set_name="BFCL"))
    return ToolSpec(name=name, description=str(raw.get("description") or ""), parameters=parameters)


def _convert_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Types under the names of JSON schema, at every depth; ``any`` is no constraint; a default or a format that is no part of a schema stays as it is."""
    converted = dict(schema)
    kind = converted.get("type")
    if kind == "any":
        del converted["type"]
    elif isinstance(kind, str):
        converted["type"] = _TYPES.get(kind.lower(), kind.lower())
    if isinstance(converted.get("properties"), Mapping):
        converted["properties"] = {name: _convert_schema(part) if isinstance(part, Mapping) else part for name, part in converted["properties"].items()}
    if isinstance(converted.get("items"), Mapping):
        converted["items"] = _convert_schema(converted["items"])
    return converted


def _read_calls(entry: Any, what: str) -> Iterator[AcceptedCall]:
    """The calls of one ground truth."""
    if isinstance(entry, str):
        yield _parse_call(entry, what)
        return
    if not isinstance(entry, Mapping) or not all(isinstance(arguments, Mapping) for arguments in entry.values()):
        raise DataError.of(f"{what}, ground_truth", "is no call", got=entry, expected="{name: {argument: [accepted values]}}, or a call as text")
    for name, arguments in entry.items():
        accepted = {key: tuple(value for value in _as_list(values) if value != "") for key, values in arguments.items()}
        optional = tuple(key for key, values in arguments.items() if "" in _as_list(values) and accepted[key])
        yield AcceptedCall(name=name, arguments={key: values or ("",) for key, values in accepted.items()}, optional=optional)


def _parse_call(text: str, what: str) -> AcceptedCall:
    """A call written in Python's syntax, with keyword arguments that are literals."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
        if not isinstance(node, ast.Call) or node.args or any(keyword.arg is None for keyword in node.keywords):
            raise ValueError("no call with keyword arguments alone")
        arguments = {str(keyword.arg): (ast.literal_eval(keyword.value),) for keyword in node.keywords}
        return AcceptedCall(name=ast.unparse(node.func), arguments=arguments)
    except (SyntaxError, ValueError) as error:
        raise DataError.of(f"{what}, ground_truth", f"is no call ({error})", got=text, expected="name(argument=value)") from error


def _check_calls(calls: Sequence[AcceptedCall], functions: Sequence[ToolSpec], what: str) -> None:
    unknown = [call.name for call in calls if call.name not in {spec.name for spec in functions}]
    if unknown:
        raise DataError.of(f"{what}, ground_truth", "calls a function that is not offered", got=unknown[0], expected="one of `function`")


def _as_list(value: Any) -> list[Any]:
    """A list as it is; one value as a list of it; None as an empty one."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _random(seed: int, task_id: str, purpose: str) -> random.Random:
    digest = hashlib.sha256(f"{purpose}\0{seed}\0{task_id}".encode()).digest()
    return random.Random(int.from_bytes(digest[:8], "big"))
