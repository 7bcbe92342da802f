"""Read one assistant turn: thinking, tool calls, final answer. Strict and total: any string gives a `ParsedTurn`, never an exception.

Grammar, after the thinking block is cut off::

    turn   := text? (call text?)+ | text? <answer>TEXT</answer> text?
    hermes:      <tool_call> {"name": NAME, "arguments": {...}} </tool_call>
    qwen3_coder: <tool_call> <function=NAME> (<parameter=KEY>VALUE</parameter>)* </function> </tool_call>

Whatever does not fit is an error in words and nothing of the turn is acted on: a malformed call is never dropped silently. At most one thinking block,
at the start; where the chat template already opened it, the turn holds only its `</think>`. Calls and answers inside the thinking do not count.
`render_call` is the inverse, for demonstrations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from napmem_rl.errors import ConfigError, DataError, PolicyOutputError
from napmem_rl.schema import ToolCall
from napmem_rl.tools.spec import ToolSpec, check_arguments, clean_arguments, find_tool, shorten

_THINK_OPEN, _THINK_CLOSE = "<think>", "</think>"
_ANSWER_OPEN, _ANSWER_CLOSE = "<answer>", "</answer>"
_CALL_OPEN, _CALL_CLOSE = "<tool_call>", "</tool_call>"
_TAG_IN_JSON = re.compile(r"<(?=/?(?:tool_call|think|answer)>)")
_SPACE = re.compile(r"\s*")
_HERMES_MARKUP = re.compile(r"</?(?:tool_call|answer)>")
_CODER_MARKUP = re.compile(r"</?(?:tool_call|answer|function|parameter)>|<(?:function|parameter)=")
_CODER_FUNCTION = re.compile(r"\s*<function=([^<>\n]*)>\s*")
_CODER_PARAMETER = re.compile(r"<parameter=([^<>\n]*)>(.*?)</parameter>\s*", re.DOTALL)
_CODER_END = re.compile(r"</function>\s*</tool_call>")
_CODER_FORBIDDEN = re.compile(r"</?(?:parameter|function)\b[=>]|</?think>")


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedTurn:
    """What an assistant turn says. Exactly one of `calls`, `answer` and `error` is filled.

    Example: parse_turn("<answer> Oslo </answer>", ...) == ParsedTurn(thinking=None, content="", calls=(), answer="Oslo", error=None)
    """

    thinking: str | None
    content: str  # text outside thinking, calls and answer; on an error all that is not thinking
    calls: tuple[ToolCall, ...]
    answer: str | None
    error: str | None  # what does not parse, in words


def parse_turn(text: str, *, tool_format: str, tools: Sequence[ToolSpec]) -> ParsedTurn:
    """Parse the text of one assistant turn.

    Args:
        text: the decoded turn without its end-of-turn token; added tokens such as `<tool_call>` must not have been skipped in decoding.
        tool_format: "hermes" or "qwen3_coder".
        tools: the tools on offer; a call to any other is an error.
    Returns:
        the parsed turn; `error` says what is wrong with it, if anything.
    Raises:
        ConfigError: unknown `tool_format` (never because of `text`).
    """
    markup, read_call = _format(tool_format)
    thinking, rest = None, text
    try:
        thinking, rest = split_thinking(text)
        content, calls, answer = _scan(rest, markup, read_call, tools)
    except (PolicyOutputError, RecursionError) as error:
        problem = error.message if isinstance(error, PolicyOutputError) else "tool call is nested too deeply"
        return ParsedTurn(thinking=thinking, content=rest.strip(), calls=(), answer=None, error=problem)
    return ParsedTurn(thinking=thinking, content=content, calls=calls, answer=answer, error=None)


def render_call(call: ToolCall, tool_format: str) -> str:
    """Write a call so that `parse_turn` reads it back, equal but for outer whitespace of strings.

    In Hermes every value can be written: tags of the grammar inside a JSON string get their `<` escaped. Qwen3-Coder strings are raw text.
    Raises:
        ConfigError: unknown `tool_format`.
        DataError: a Qwen3-Coder string holds a tag that would end or reopen it, which that format cannot express.
    """
    _format(tool_format)
    if tool_format == "hermes":
        return f"{_CALL_OPEN}\n{_dump_json({'name': call.name, 'arguments': dict(call.arguments)})}\n{_CALL_CLOSE}"
    parameters = "".join(f"<parameter={key}>\n{_coder_value(value)}\n</parameter>\n" for key, value in call.arguments.items())
    return f"{_CALL_OPEN}\n<function={call.name}>\n{parameters}</function>\n{_CALL_CLOSE}"


CallReader = Callable[[str, int, Sequence[ToolSpec]], tuple[ToolCall, int]]  # (text, position after <tool_call>, tools) -> (call, position after </tool_call>)


def _format(tool_format: str) -> tuple[re.Pattern[str], CallReader]:
    formats: dict[str, tuple[re.Pattern[str], CallReader]] = {
        "hermes": (_HERMES_MARKUP, _read_hermes),
        "qwen3_coder": (_CODER_MARKUP, _read_coder),
    }
    if tool_format not in formats:
        raise ConfigError.of("agent.tool_format", "is not a known tool format", got=tool_format, expected=" or ".join(formats))
    return formats[tool_format]


def split_thinking(text: str) -> tuple[str | None, str]:
    """(thinking, rest). The thinking ends at the first `</think>`; a template may have opened it before the turn.

    Raises:
        PolicyOutputError: a thinking block that is not closed, does not stand first, or is one of several.
    """
    opened, closed = text.find(_THINK_OPEN), text.find(_THINK_CLOSE)
    if opened < 0 and closed < 0:
        return None, text
    if closed < 0 or 0 <= opened < closed and text[:opened].strip():
        raise _problem("thinking block is not closed" if closed < 0 else "text before the thinking block")
    start = opened + len(_THINK_OPEN) if 0 <= opened < closed else 0
    thinking, rest = text[start:closed].strip(), text[closed + len(_THINK_CLOSE) :]
    if _THINK_OPEN in rest or _THINK_CLOSE in rest:
        raise _problem("more than one thinking block")
    return thinking, rest


def _scan(text: str, markup: re.Pattern[str], read_call: CallReader, tools: Sequence[ToolSpec]) -> tuple[str, tuple[ToolCall, ...], str | None]:
    """Walk from tag to tag. Returns (content, calls, answer)."""
    content: list[str] = []
    calls: list[ToolCall] = []
    answer: str | None = None
    position = 0
    while (tag := markup.search(text, position)) is not None:
        content.append(text[position : tag.start()])
        if answer is not None:
            raise _problem(f"{tag.group()} after the final answer")
        if tag.group() == _CALL_OPEN:
            call, position = read_call(text, tag.end(), tools)
            calls.append(call)
        elif tag.group() == _ANSWER_OPEN:
            answer, position = _read_answer(text, tag.end(), markup)
        else:
            raise _problem(f"stray {tag.group()}")
    content.append(text[position:])
    if calls and answer is not None:
        raise _problem("tool call and final answer in one turn")
    if not calls and answer is None:
        raise _problem("neither a tool call nor an <answer>")
    return " ".join(part.strip() for part in content if part.strip()), tuple(calls), answer


def _read_answer(text: str, start: int, markup: re.Pattern[str]) -> tuple[str, int]:
    end = markup.search(text, start)
    if end is None:
        raise _problem("<answer> is not closed")
    if end.group() != _ANSWER_CLOSE:
        raise _problem(f"{end.group()} inside <answer>")
    answer = text[start : end.start()].strip()
    if not answer:
        raise _problem("<answer> is empty")
    return answer, end.end()


def _read_hermes(text: str, start: int, tools: Sequence[ToolSpec]) -> tuple[ToolCall, int]:
    """One JSON object {"name", "arguments"}, then `</tool_call>`; a closing tag inside a JSON string is part of the string."""
    value, end = _load_json(text, start)
    end = _SPACE.match(text, end).end()  # type: ignore[union-attr]
    if not text.startswith(_CALL_CLOSE, end):
        raise _problem("tool call is not closed by </tool_call> after its JSON object")
    if not isinstance(value, dict) or set(value) != {"name", "arguments"}:
        raise _problem('tool call must be one JSON object with exactly the keys "name" and "arguments"')
    if not isinstance(value["name"], str) or not isinstance(value["arguments"], dict):
        raise _problem('in a tool call "name" must be a string and "arguments" an object')
    return _checked_call(value["name"], value["arguments"], tools), end + len(_CALL_CLOSE)


def _read_coder(text: str, start: int, tools: Sequence[ToolSpec]) -> tuple[ToolCall, int]:
    """`<function=NAME>` with its parameters; strings are raw text, everything else JSON (by the tool's schema)."""
    head = _CODER_FUNCTION.match(text, start)
    if head is None:
        raise _problem("tool call does not start with <function=NAME>")
    properties = _known_tool(head.group(1), tools).parameters.get("properties", {})
    arguments: dict[str, Any] = {}
    position = head.end()
    while (parameter := _CODER_PARAMETER.match(text, position)) is not None:
        key, raw = parameter.group(1), parameter.group(2)
        if key in arguments:
            raise _problem(f"parameter {shorten(key)} is given twice")
        if _CODER_FORBIDDEN.search(raw):
            raise _problem(f"parameter {shorten(key)} is not closed by </parameter>")
        arguments[key] = _coder_argument(raw, properties.get(key, {}))
        position = parameter.end()
    end = _CODER_END.match(text, position)
    if end is None:
        raise _problem("tool call is not closed by </function></tool_call> after its parameters")
    return _checked_call(head.group(1), arguments, tools), end.end()


def _coder_argument(raw: str, schema: dict[str, Any]) -> Any:
    text = raw.removeprefix("\n").removesuffix("\n")
    if schema.get("type", "string") == "string":
        return text
    value, end = _load_json(text, 0)
    if text[end:].strip():
        raise _problem("text after the JSON value of a parameter")
    return value


def _coder_value(value: Any) -> str:
    if not isinstance(value, str):
        return re.sub(r"<(?=/?[a-z])", r"\\u003c", _dump_json(value))
    tag = _CODER_FORBIDDEN.search(value)
    if tag is not None:
        raise DataError.of("render_call", f"qwen3_coder cannot express {tag.group()!r} inside a string", got=value, fix="Use hermes or drop the call.")
    return value


def _known_tool(name: str, tools: Sequence[ToolSpec]) -> ToolSpec:
    spec = find_tool(name, tools)
    if spec is None:
        raise _problem(f"unknown tool {shorten(name)!r}; known: {', '.join(tool.name for tool in tools)}")
    return spec


def _checked_call(name: str, arguments: dict[str, Any], tools: Sequence[ToolSpec]) -> ToolCall:
    spec = _known_tool(name, tools)
    cleaned = clean_arguments(arguments)
    problem = check_arguments(spec, cleaned)
    if problem is not None:
        raise _problem(problem)
    return ToolCall(name=name, arguments=cleaned)


def _load_json(text: str, start: int) -> tuple[Any, int]:
    """Decode one JSON value that starts at `start` (after whitespace). Returns (value, position after it)."""
    try:
        return _DECODER.raw_decode(text, _SPACE.match(text, start).end())  # type: ignore[union-attr]
    except (ValueError, RecursionError) as error:
        raise _problem(f"tool call holds no valid JSON ({shorten(str(error))})") from error


def _dump_json(value: Any) -> str:
    """JSON in the spacing of chat templates, with the `<` of our own tags escaped (it can only stand inside a string)."""
    return _TAG_IN_JSON.sub(r"\\u003c", json.dumps(value, ensure_ascii=False))


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key is given twice")
    return result


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_pairs, parse_constant=_refuse_constant)


def _problem(words: str) -> PolicyOutputError:
    return PolicyOutputError(words)
