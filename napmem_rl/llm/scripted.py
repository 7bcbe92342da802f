"""Language models that follow a script: for tests and demonstrations."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from napmem_rl.llm.base import AssistantTurn, ChatReply
from napmem_rl.tools.parse import parse_turn
from napmem_rl.tools.spec import ToolSpec


class _Script:
    """Steps handed out one by one; an exception among them is raised in its place."""

    def __init__(self, steps: Sequence[Any]) -> None:
        self._steps, self._position = list(steps), 0

    def take(self, owner: str) -> Any:
        if self._position >= len(self._steps):
            raise AssertionError(f"{owner}: asked for step {self._position + 1} of a script of {len(self._steps)}")
        step = self._steps[self._position]
        self._position += 1
        if isinstance(step, BaseException):
            raise step
        return step


class ScriptedGenerate:
    """A policy that says the given turns in order: texts are parsed, AssistantTurns passed on as they are, exceptions raised.

    `seen` keeps the messages of every request, as they were at that moment.
    """

    def __init__(self, steps: Sequence[str | AssistantTurn | BaseException], *, tool_format: str = "hermes") -> None:
        self._script, self._tool_format = _Script(steps), tool_format
        self.seen: list[list[dict[str, Any]]] = []

    async def __call__(self, messages: list[dict[str, Any]], tools: Sequence[ToolSpec]) -> AssistantTurn:
        self.seen.append(deepcopy(messages))
        step = self._script.take("ScriptedGenerate")
        if isinstance(step, AssistantTurn):
            return step
        return AssistantTurn(text=step, parsed=parse_turn(step, tool_format=self._tool_format, tools=tools))


class ScriptedChat:
    """A chat endpoint that gives the given replies in order: texts, ChatReplies, or exceptions to raise. `requests` keeps what was asked."""

    def __init__(self, replies: Sequence[str | ChatReply | BaseException], *, name: str = "scripted") -> None:
        self._script, self.name = _Script(replies), name
        self.requests: list[dict[str, Any]] = []

    async def chat(self, messages: Sequence[Mapping[str, Any]], *, schema: Mapping[str, Any] | None = None, max_tokens: int | None = None) -> str:
        return (await self.complete(messages, schema=schema, max_tokens=max_tokens)).text

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[ToolSpec] = (),
        schema: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
    ) -> ChatReply:
        self.requests.append(deepcopy({"messages": list(messages), "tools": list(tools), "schema": schema, "max_tokens": max_tokens}))
        await asyncio.sleep(0)  # a point where other tasks run, as with a real endpoint
        reply = self._script.take("ScriptedChat")
        return reply if isinstance(reply, ChatReply) else ChatReply(text=reply)
