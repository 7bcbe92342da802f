"""The memory tools as the policy sees them: names, descriptions and JSON schemas (NapMem section 3.3, appendix table 7).

A call's arguments are cleaned (`clean_arguments`) and then checked (`check_arguments`) against the tool's schema, before anything runs.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match

MAX_IDS = 20  # ids that one get_* call may ask for
_MAX_SHOWN = 80  # characters of a policy's own text that a message repeats


@dataclass(frozen=True, kw_only=True)
class ToolSpec:
    """One tool. `parameters` is a JSON schema of type object.

    Example: ToolSpec(name="echo", description="Say it.", parameters={"type": "object", "properties": {"text": {"type": "string"}}})
    """

    name: str
    description: str
    parameters: Mapping[str, Any]

    def __hash__(self) -> int:
        return hash((self.name, self.description))

    def as_openai(self) -> dict[str, Any]:
        """The tool in the form that chat templates and OpenAI-compatible endpoints take; a fresh copy on every call."""
        parameters = copy.deepcopy(dict(self.parameters))
        return {"type": "function", "function": {"name": self.name, "description": self.description, "parameters": parameters}}


def _object_schema(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema of exactly one required argument."""
    return {"type": "object", "properties": {name: dict(schema)}, "required": [name], "additionalProperties": False}


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "description": description}


def _ids(description: str) -> dict[str, Any]:
    items = {"type": "string", "minLength": 1}
    return {"type": "array", "items": items, "minItems": 1, "maxItems": MAX_IDS, "description": description}


MEMORY_TOOLS: tuple[ToolSpec, ...] = (
    ToolSpec(
        name="search_records",
        description="Search short memory records (facts, events, instructions, preferences) about the user. Returns the best matches, oldest first; "
        "each line ends with the ids of the messages it was drawn from.",
        parameters=_object_schema("query", _text("what to look for")),
    ),
    ToolSpec(
        name="search_conversation",
        description="Search the raw messages of past conversations. Returns the best matches, oldest first.",
        parameters=_object_schema("query", _text("what to look for")),
    ),
    ToolSpec(
        name="get_records",
        description="Fetch memory records by their ids, oldest first.",
        parameters=_object_schema("record_ids", _ids('record ids, such as "rec:7"')),
    ),
    ToolSpec(
        name="get_conversation",
        description="Fetch raw messages by their ids, oldest first.",
        parameters=_object_schema("message_ids", _ids('message ids, such as "msg:12"')),
    ),
    ToolSpec(
        name="read_file",
        description="Read a high-level memory file: profile.md (the user as a whole) or the file of one topic.",
        parameters=_object_schema("file_name", _text('exact name of the file, such as "profile.md"')),
    ),
)


def find_tool(name: str, tools: Sequence[ToolSpec]) -> ToolSpec | None:
    """The tool of that exact name, or None."""
    return next((spec for spec in tools if spec.name == name), None)


def clean_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments with outer whitespace taken off their strings, also inside lists (a word-level policy decodes `" Mia job "`)."""
    return {key: [_strip(item) for item in value] if isinstance(value, list) else _strip(value) for key, value in arguments.items()}


def check_arguments(spec: ToolSpec, arguments: Mapping[str, Any]) -> str | None:
    """What is wrong with the arguments of a call, in words a model can act on; None where they fit the tool's schema.

    Strings that are not valid Unicode (a lone surrogate from a JSON escape) are refused as well: no tokenizer or encoder takes them.
    """
    error = best_match(_validator(spec).iter_errors(dict(arguments)))
    if error is not None:
        return f"{spec.name}: {_describe(error, spec)}"
    if not _is_unicode(list(arguments.values())):
        return f"{spec.name}: the arguments hold text that is not valid Unicode"
    return None


def shorten(text: str, limit: int = _MAX_SHOWN) -> str:
    """One line of at most `limit` characters, for messages that repeat what a policy wrote."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 3] + "..."


@lru_cache(maxsize=256)
def _validator(spec: ToolSpec) -> Draft202012Validator:
    """The compiled schema; compiled once per tool, since every call of every rollout is checked."""
    return Draft202012Validator(dict(spec.parameters))


def _describe(error: ValidationError, spec: ToolSpec) -> str:
    """A schema error in words."""
    known = ", ".join(spec.parameters.get("properties", {}))
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        return f"argument {', '.join(missing)} is missing; expected {known}"
    if error.validator == "additionalProperties":
        unknown = [shorten(str(name)) for name in error.instance if name not in spec.parameters.get("properties", {})]
        return f"unknown argument {', '.join(unknown)}; expected {known}"
    where = "".join(f"[{part}]" if isinstance(part, int) else f"{part}" for part in error.absolute_path) or "arguments"
    if error.validator == "type":
        return f"argument {where} must be of type {error.validator_value}, got {shorten(repr(error.instance))}"
    if error.validator in ("minLength", "minItems"):
        return f"argument {where} must not be empty"
    if error.validator == "maxItems":
        return f"argument {where} holds {len(error.instance)} items; at most {error.validator_value} are allowed"
    return f"argument {where}: {shorten(error.message)}"


def _strip(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


def _is_unicode(values: Sequence[Any]) -> bool:
    """Whether all strings in a list of values (one level of lists deep) can be encoded as UTF-8."""
    flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
    return not any(isinstance(item, str) and any("\ud800" <= char <= "\udfff" for char in item) for item in flat)
