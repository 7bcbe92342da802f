"""Calls of a task's own functions as the final answer of an episode, and back. They are never run: the calls themselves are what is asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence

from napmem_rl.schema import ToolCall


def render_function_calls(calls: Sequence[ToolCall]) -> str:
    """The calls as one JSON text. Example: ``[{"name": "get_weather", "arguments": {"city": "Oslo"}}]``."""
    return json.dumps([{"name": call.name, "arguments": dict(call.arguments)} for call in calls], ensure_ascii=False)


def read_function_calls(text: str) -> tuple[ToolCall, ...] | None:
    """The calls of a final answer that `render_function_calls` wrote; None for an answer in words."""
    try:
        rows = json.loads(text)
        return tuple(ToolCall(name=str(row["name"]), arguments=dict(row["arguments"])) for row in rows) or None
    except (ValueError, TypeError, KeyError):
        return None
