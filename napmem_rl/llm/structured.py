"""Replies that must be one JSON object: read strictly, asked for once more where they are not, then given up and counted.

Nothing is guessed. A thinking block is cut off first; the rest is one JSON object, alone or in one code fence, that fits the schema and then the caller's own
rules (`read`). Whatever else comes back is a `Fault` with a cause to count and a sentence that the model can act on.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NoReturn, TypeVar

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, relevance

from napmem_rl.errors import PolicyOutputError
from napmem_rl.llm.base import ChatClient, ChatReply
from napmem_rl.tools.parse import split_thinking
from napmem_rl.tools.spec import shorten

T = TypeVar("T")
_FENCE = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", re.DOTALL)
_LABEL = re.compile(r"[a-z]\d+")  # what stands for an id in a prompt, such as m1
_MAX_ECHO = 2000  # characters of an unusable reply that are shown to the model again


class FaultCause(StrEnum):
    """Why a reply could not be used."""

    EMPTY = "empty"
    TRUNCATED = "truncated"  # cut at the length limit
    THINKING = "thinking"  # a thinking block that is not closed, or several
    PROSE = "prose"  # text where a JSON object was asked for
    INVALID_JSON = "invalid_json"  # broken, or a field given twice
    SCHEMA = "schema"  # a field missing, unknown, of the wrong type or with an unknown choice
    UNKNOWN_ID = "unknown_id"  # an id that was not shown
    CONTENT = "content"  # a text that is empty, too long, not valid Unicode, or breaks another rule of the caller


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a reply: a cause to count, and words that name the problem to the model."""

    cause: FaultCause
    problem: str


@dataclass(slots=True)
class FaultCounts:
    """What was asked and what went wrong, by step ("extract", …) and cause: `repairs` were asked for once more, `rejections` were given up.

    Keys of the two look like "extract: invalid_json".
    """

    asked: Counter[str] = field(default_factory=Counter)  # questions by step; a repair is a part of its question
    repairs: Counter[str] = field(default_factory=Counter)
    rejections: Counter[str] = field(default_factory=Counter)


async def ask_object(
    client: ChatClient,
    messages: Sequence[Mapping[str, Any]],
    *,
    step: str,
    schema: Mapping[str, Any],
    read: Callable[[dict[str, Any]], T | Fault],
    counts: FaultCounts,
    max_tokens: int,
) -> T | Fault:
    """Ask for one JSON object; where the reply cannot be used, name the problem and ask once more.

    Args:
        client: the model.
        messages: the conversation so far; not changed.
        step: name of the step, for `counts`.
        schema: JSON schema of the object; the endpoint is asked to keep to it, and the reply is checked all the same.
        read: takes an object that fits the schema; says what it means, or what is wrong with it.
        counts: counted up here.
        max_tokens: of one reply.

    Returns:
        What `read` made of the reply, or the fault of the second reply.

    Raises:
        LLMError: the endpoint failed.
    """
    counts.asked[step] += 1
    reply = await client.complete(messages, schema=schema, max_tokens=max_tokens)
    result = read_reply(reply, schema, read)
    if not isinstance(result, Fault):
        return result
    counts.repairs[f"{step}: {result.cause}"] += 1
    again = [*messages, {"role": "assistant", "content": _echo(reply)}, {"role": "user", "content": _name_problem(result)}]
    result = read_reply(await client.complete(again, schema=schema, max_tokens=max_tokens), schema, read)
    if isinstance(result, Fault):
        counts.rejections[f"{step}: {result.cause}"] += 1
    return result


def read_reply(reply: ChatReply, schema: Mapping[str, Any], read: Callable[[dict[str, Any]], T | Fault]) -> T | Fault:
    """What a reply means, or what is wrong with it. Never raises because of the reply."""
    try:
        text = split_thinking(reply.text)[1].strip()
    except PolicyOutputError as error:
        return Fault(FaultCause.TRUNCATED if reply.is_truncated else FaultCause.THINKING, error.message)
    if reply.is_truncated:
        return Fault(FaultCause.TRUNCATED, "the reply was cut at the length limit; write less")
    if not text:
        return Fault(FaultCause.EMPTY, "the reply is empty")
    value = parse_object(text)
    if isinstance(value, Fault):
        return value
    fault = check_schema(schema, value)
    return fault if fault is not None else read(value)


def check_schema(schema: Mapping[str, Any], value: Any) -> Fault | None:
    """Where a value does not fit a schema, in words; None where it fits.

    Among alternatives that each name themselves in a field of one choice (``{"action": "store"}``), the error is that of the named one.
    """
    error = max(Draft202012Validator(schema).iter_errors(value), key=relevance, default=None)
    if error is None:
        return None
    while error.validator == "anyOf" and (named := _pick_branch(error)) is not None:
        error = named
    where = "".join(f"[{part!r}]" for part in error.absolute_path)
    choices = error.validator_value if error.validator == "enum" else []
    cause = FaultCause.UNKNOWN_ID if choices and all(_LABEL.fullmatch(str(choice)) for choice in choices) else FaultCause.SCHEMA
    problem = shorten(error.message, 300)
    if error.validator in ("maxLength", "maxItems"):
        cause, unit = FaultCause.CONTENT, "characters" if error.validator == "maxLength" else "items"
        problem = f"{len(error.instance)} {unit}, at most {error.validator_value} are allowed"
    return Fault(cause, f"the object does not fit the form described{f', at {where}' if where else ''}: {problem}")


def parse_object(text: str) -> dict[str, Any] | Fault:
    """One JSON object, alone or in one code fence."""
    fenced = _FENCE.fullmatch(text)
    inner = fenced[1] if fenced else text
    if not inner.lstrip().startswith("{"):
        return Fault(FaultCause.PROSE, "there is text where one JSON object was expected, and nothing else")
    try:
        value = json.loads(inner, object_pairs_hook=refuse_repeats, parse_constant=refuse_constant)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return Fault(FaultCause.CONTENT, "a text is not valid Unicode (half of a surrogate pair)")
    except (ValueError, RecursionError) as error:
        is_followed = isinstance(error, json.JSONDecodeError) and error.msg == "Extra data"
        cause = FaultCause.PROSE if is_followed else FaultCause.INVALID_JSON
        return Fault(cause, f"the reply is not one JSON object: {shorten(str(error), 200)}")
    return value


def _pick_branch(error: ValidationError) -> ValidationError | None:
    """The chief error within the one alternative that the value names; None where it names none, or several fit equally."""
    branches: dict[Any, list[ValidationError]] = {}
    for inner in error.context or ():
        branches.setdefault(inner.relative_schema_path[0], []).append(inner)
    named = [inners for inners in branches.values() if not any(_is_other_name(inner) for inner in inners)]
    return max(named[0], key=relevance) if len(named) == 1 else None


def _is_other_name(error: ValidationError) -> bool:
    """Whether an alternative's error says that the value is another alternative, or names none."""
    tags = {name for name, part in error.schema.get("properties", {}).items() if len(part.get("enum", ())) == 1}
    is_nameless = error.validator == "type" or (error.validator == "required" and any(name not in error.instance for name in tags))
    return is_nameless and not error.relative_path or (error.validator == "enum" and len(error.relative_path) == 1 and len(error.validator_value) == 1)


def refuse_repeats(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """For `object_pairs_hook`: a field given twice has two readings."""
    names = [name for name, _ in pairs]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise ValueError(f"the field {shorten(repeated)!r} is given twice")
    return dict(pairs)


def refuse_constant(name: str) -> NoReturn:
    """For `parse_constant`: NaN and Infinity are Python's, not JSON's."""
    raise ValueError(f"{name} is no JSON value")


def _echo(reply: ChatReply) -> str:
    """An unusable reply as the model is shown it again; some chat templates refuse an empty turn."""
    text = reply.text.encode("utf-8", "replace").decode()
    return (text if len(text) <= _MAX_ECHO else text[:_MAX_ECHO] + " …") or "(nothing)"


def _name_problem(fault: Fault) -> str:
    return f"That reply cannot be used: {fault.problem}. Reply again with exactly one JSON object of the form described above, and nothing else."
