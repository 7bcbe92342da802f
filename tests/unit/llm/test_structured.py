"""Replies that must be one JSON object: every kind of bad one is named, asked for once more, and then counted."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from napmem_rl.errors import LLMError
from napmem_rl.llm.base import ChatReply
from napmem_rl.llm.scripted import ScriptedChat
from napmem_rl.llm.structured import Fault, FaultCause, FaultCounts, ask_object, check_schema, read_reply

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kind": {"type": "string", "enum": ["a", "b"]},
        "source": {"type": "string", "enum": ["m1", "m2"]},
        "text": {"type": "string", "maxLength": 9},
    },
    "required": ["kind", "source", "text"],
    "additionalProperties": False,
}
GOOD = '{"kind": "a", "source": "m1", "text": "hello"}'
ASK = [{"role": "system", "content": "Reply with JSON."}, {"role": "user", "content": "{}"}]


def read(value: dict[str, Any]) -> str | Fault:
    return Fault(FaultCause.CONTENT, "the text is blank") if not value["text"].strip() else value["text"]


def ask(*replies: Any) -> tuple[str | Fault, FaultCounts, ScriptedChat]:
    chat, counts = ScriptedChat(replies), FaultCounts()
    result = asyncio.run(ask_object(chat, ASK, step="step", schema=SCHEMA, read=read, counts=counts, max_tokens=50))
    return result, counts, chat


BAD = [
    ("", FaultCause.EMPTY),
    ("  \n", FaultCause.EMPTY),
    ("<think>done</think>", FaultCause.EMPTY),
    (ChatReply(text=GOOD[:-5], is_truncated=True), FaultCause.TRUNCATED),
    (ChatReply(text="<think>and then", is_truncated=True), FaultCause.TRUNCATED),
    ("<think>and then", FaultCause.THINKING),
    ("<think>a</think><think>b</think>" + GOOD, FaultCause.THINKING),
    ("Sure! " + GOOD, FaultCause.PROSE),
    (GOOD + " I hope this helps.", FaultCause.PROSE),
    (f"Here it is:\n```json\n{GOOD}\n```", FaultCause.PROSE),
    ("I cannot help with that.", FaultCause.PROSE),
    (f"[{GOOD}]", FaultCause.PROSE),
    ('{"kind": "a", "source": ', FaultCause.INVALID_JSON),
    ('{"kind": "a", "kind": "b", "source": "m1", "text": "x"}', FaultCause.INVALID_JSON),
    ('{"kind": "a", "source": "m1", "text": NaN}', FaultCause.INVALID_JSON),
    ('{"a":' * 10_000, FaultCause.INVALID_JSON),
    ('{"kind": "a", "source": "m1"}', FaultCause.SCHEMA),
    ('{"kind": "c", "source": "m1", "text": "x"}', FaultCause.SCHEMA),
    ('{"kind": "a", "source": "m1", "text": 5}', FaultCause.SCHEMA),
    ('{"kind": "a", "source": "m1", "text": "x", "more": 1}', FaultCause.SCHEMA),
    ('{"kind": "a", "source": "m9", "text": "x"}', FaultCause.UNKNOWN_ID),
    ('{"kind": "a", "source": "m1", "text": "much too long"}', FaultCause.CONTENT),
    ('{"kind": "a", "source": "m1", "text": "\\ud83d"}', FaultCause.CONTENT),
    ('{"kind": "a", "source": "m1", "text": " "}', FaultCause.CONTENT),
]


@pytest.mark.parametrize("reply", [GOOD, f"<think>hm { '{' }</think>\n{GOOD}", f"still thinking</think>{GOOD}", f"```json\n{GOOD}\n```", f"```\n{GOOD}\n```\n"])
def test_one_object_alone_after_thinking_or_in_a_fence_is_taken(reply: str) -> None:
    result, counts, chat = ask(reply)
    assert result == "hello" and len(chat.requests) == 1
    assert counts.asked == {"step": 1} and not counts.repairs and not counts.rejections
    assert chat.requests[0]["schema"] == SCHEMA and chat.requests[0]["max_tokens"] == 50


@pytest.mark.parametrize(("reply", "cause"), BAD)
def test_a_bad_reply_is_named_to_the_model_once_and_its_repair_is_taken(reply: str | ChatReply, cause: FaultCause) -> None:
    result, counts, chat = ask(reply, GOOD)
    assert result == "hello"
    assert counts.repairs == {f"step: {cause}": 1} and not counts.rejections and counts.asked == {"step": 1}
    first, shown, told = chat.requests[1]["messages"][:2], *chat.requests[1]["messages"][2:]
    assert first == ASK and shown["role"] == "assistant" and shown["content"] and told["role"] == "user"
    assert told["content"].startswith("That reply cannot be used: ")


@pytest.mark.parametrize(("reply", "cause"), BAD)
def test_two_bad_replies_are_counted_and_given_up_without_an_exception(reply: str | ChatReply, cause: FaultCause) -> None:
    result, counts, chat = ask("nonsense", reply)
    assert isinstance(result, Fault) and result.cause is cause and result.problem
    assert counts.repairs == {"step: prose": 1} and counts.rejections == {f"step: {cause}": 1} and len(chat.requests) == 2


def test_an_endpoint_that_fails_is_no_bad_reply() -> None:
    with pytest.raises(LLMError, match="down"):
        ask("nonsense", LLMError("down"))


def test_a_very_long_bad_reply_is_shown_to_the_model_in_part() -> None:
    _, _, chat = ask("x" * 100_000, GOOD)
    assert len(chat.requests[1]["messages"][2]["content"]) < 2100


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"do": "say"}, "'text' is a required property"),
        ({"do": "say", "text": 5}, "5 is not of type 'string'"),
        ({"do": "stop", "text": "x"}, "Additional properties are not allowed"),
        ({"do": "fly"}, "is not valid under any"),
        ({}, "is not valid under any"),
        ("say", "is not valid under any"),
    ],
)
def test_among_alternatives_the_error_is_that_of_the_one_that_the_reply_names(value: Any, words: str) -> None:
    def choice(name: str, **fields: Any) -> dict[str, Any]:
        properties = {"do": {"type": "string", "enum": [name]}, **fields}
        return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}

    fault = check_schema({"anyOf": [choice("say", text={"type": "string"}), choice("stop")]}, value)
    assert fault is not None and words in fault.problem


VALUES = st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda part: st.lists(part) | st.dictionaries(st.text(), part))


@given(st.text() | VALUES.map(json.dumps))
def test_no_reply_whatever_raises(text: str) -> None:
    result = read_reply(ChatReply(text=text), SCHEMA, read)
    assert isinstance(result, Fault | str)
