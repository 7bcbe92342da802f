"""The two seams to language models: `Generate`, the policy of an episode, and `ChatClient`, an endpoint that judges or writes.

The trainer passes a `Generate` that talks in token ids, evaluation one that talks in text, tests a scripted one; the episode is the same code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from napmem_rl.tools.parse import ParsedTurn
from napmem_rl.tools.spec import ToolSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class AssistantTurn:
    """What the policy said in one turn. Token fields are empty where the engine gives text only.

    `is_truncated` says that the engine cut the turn at a length limit; with an empty `text` there was no room to sample anything.
    `message` is the turn as the endpoint wants it back in the history; None stands for ``{"role": "assistant", "content": text}``.
    `tool_call_ids` are the endpoint's ids of the parsed calls, one each, or empty where it gives none.

    Example: AssistantTurn(text="<answer>Oslo</answer>", parsed=parse_turn(...), prompt_ids=(1, 2), response_ids=(3,), logprobs=(-0.1,))
    """

    text: str
    parsed: ParsedTurn
    prompt_ids: tuple[int, ...] = ()  # [P] everything before the turn
    response_ids: tuple[int, ...] = ()  # [R] exactly as sampled
    logprobs: tuple[float, ...] = ()  # [R] of the sampled tokens, or empty
    policy_version: int | None = None
    is_truncated: bool = False
    message: Mapping[str, Any] | None = None
    tool_call_ids: tuple[str, ...] = ()
    prompt_tokens: int | None = None  # as the endpoint counted; None where it does not say, or where the ids are here to count
    completion_tokens: int | None = None


class Generate(Protocol):
    """A policy.

    Raises:
        LLMError: the endpoint failed after all retries.
        BackendError: the rollout engine failed.
    """

    async def __call__(self, messages: list[dict[str, Any]], tools: Sequence[ToolSpec]) -> AssistantTurn:
        """One assistant turn after `messages` (OpenAI roles system, user, assistant, tool). Must not change `messages`."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class RawToolCall:
    """A tool call as an endpoint returned it; `arguments` is JSON text that nobody has checked yet."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatReply:
    """One completion of a chat endpoint. `text` is the content, or the refusal where the endpoint marks one; "" where there is neither."""

    text: str
    tool_calls: tuple[RawToolCall, ...] = ()
    is_truncated: bool = False  # stopped at the length limit
    prompt_tokens: int | None = field(default=None, compare=False)  # as the endpoint counted when it was asked; None where it does not say
    completion_tokens: int | None = field(default=None, compare=False)


@dataclass(slots=True)
class Usage:
    """What a client has spent so far. Cached replies cost no tokens. Of a reply without token counts the guess is taken, and `num_unmetered` counts it."""

    num_requests: int = 0
    num_cached: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0  # money, at the prices of the client's budget; 0 where it has none
    num_unmetered: int = 0


class ChatClient(Protocol):
    """A chat endpoint. Both methods raise LLMError after all retries."""

    name: str  # of the model, for reports and cache keys

    async def chat(self, messages: Sequence[Mapping[str, Any]], *, schema: Mapping[str, Any] | None = None, max_tokens: int | None = None) -> str:
        """The text of one completion; `schema` is a JSON schema that the endpoint is asked to keep to (the caller still checks)."""
        ...

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[ToolSpec] = (),
        schema: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
    ) -> ChatReply:
        """One completion with native tool calls."""
        ...
