"""What a policy's turns cost in tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from napmem_rl.llm.base import AssistantTurn, Generate
from napmem_rl.tools.spec import ToolSpec


class MeteredGenerate:
    """A `Generate` that adds up tokens. Both sums are None as soon as one turn's count is not known: a sum of a part would lie."""

    def __init__(self, generate: Generate) -> None:
        self._generate = generate
        self.prompt_tokens: int | None = 0
        self.completion_tokens: int | None = 0

    async def __call__(self, messages: list[dict[str, Any]], tools: Sequence[ToolSpec]) -> AssistantTurn:
        """One turn, counted."""
        turn = await self._generate(messages, tools)
        has_ids = bool(turn.prompt_ids)
        self.prompt_tokens = _add(self.prompt_tokens, len(turn.prompt_ids) if has_ids else turn.prompt_tokens)
        self.completion_tokens = _add(self.completion_tokens, len(turn.response_ids) if has_ids else turn.completion_tokens)
        return turn


def _add(total: int | None, count: int | None) -> int | None:
    return None if total is None or count is None else total + count
