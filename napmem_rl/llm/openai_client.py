"""A client of OpenAI-compatible chat endpoints, and a policy on top of one.

Retries with backoff (429, 5xx, timeouts, lost connections; `Retry-After` is honoured) are the openai package's own.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import json
import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from napmem_rl.errors import BudgetError, ConfigError, LLMError
from napmem_rl.llm.base import AssistantTurn, ChatClient, ChatReply, RawToolCall, Usage
from napmem_rl.llm.connections import Connections
from napmem_rl.llm.disk_cache import DiskCache
from napmem_rl.llm.limits import BYTES_OF_TOKEN, Budget, RequestLimits, Spending, guess_prompt_tokens
from napmem_rl.masking import mask_secrets
from napmem_rl.tools.parse import parse_turn
from napmem_rl.tools.spec import ToolSpec

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletion

SCHEMA_MODES = ("json_schema", "json_schema_full", "json_object", "off")
_NO_KEY = "none"  # sent to servers that take no key; the package refuses an empty one


class OpenAIChat:
    """One model behind one endpoint (a `ChatClient`). Belongs to the event loop that first uses it.

    Args:
        model: name of the model as the endpoint knows it.
        base_url: e.g. "http://localhost:8000/v1"; several that serve one model, separated by commas, share the requests. None is the openai package's default.
        api_key_env: NAME of the environment variable that holds the key; "" for a server without keys.
        timeout_s: of one try.
        max_retries: further tries after the first.
        max_concurrency: requests in flight.
        temperature: None leaves it to the endpoint, as `top_p` does.
        max_tokens: default limit of a reply; None leaves it to the endpoint.
        cache_dir: replies are kept there; only for temperature 0, since sampled replies must differ.
        cache_tag: goes into the keys of kept replies, beside all that is sent: the version of the prompts, for instance.
        limits: requests and tokens a minute; None for none. Tries that the openai package repeats by itself are not counted.
        budget: what may be spent in all; None only counts tokens.
        schema_mode: how a schema is asked for: json_schema (without lengths of strings, which some endpoints refuse), json_schema_full (with them; good for
            small models behind vLLM, which else may never stop), json_object (JSON, but of any form), or off.
        reasoning: for models that take neither a temperature nor `max_tokens` (OpenAI's reasoning models): replies are limited by `max_completion_tokens`. A
            cache then keeps one sample of each reply.

    Raises:
        ConfigError: no model, no key, a cache for a sampled model, or an unknown mode.
    """

    def __init__(
        self,
        *,
        model: str | None,
        base_url: str | None = None,
        api_key_env: str = "OPENAI_API_KEY",
        timeout_s: float = 60.0,
        max_retries: int = 4,
        max_concurrency: int = 16,
        temperature: float | None = 0.0,
        top_p: float | None = None,
        max_tokens: int | None = None,
        cache_dir: str | None = None,
        cache_tag: str = "",
        limits: RequestLimits | None = None,
        budget: Budget | None = None,
        schema_mode: str = "json_schema",
        reasoning: bool = False,
    ) -> None:
        if not model:
            raise ConfigError.of("chat endpoint", "no model is named", fix="Set the key `model` beside `base_url`.")
        if cache_dir is not None and temperature != 0 and not reasoning:
            raise ConfigError.of("chat endpoint, cache_dir", "would give sampled replies again and again", got=temperature, expected="temperature 0")
        if schema_mode not in SCHEMA_MODES:
            raise ConfigError.of("chat endpoint, schema_mode", "is unknown", got=schema_mode, expected=", ".join(SCHEMA_MODES))
        self.name = model
        self.usage = Usage()
        self.endpoint = base_url or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
        addresses = [address.strip() for address in self.endpoint.split(",") if address.strip()]
        self._connections = Connections([functools.partial(_build_client, address, api_key_env, timeout_s, max_retries) for address in addresses])
        self._limit_name = "max_completion_tokens" if reasoning else "max_tokens"
        self._defaults = {"temperature": None if reasoning else temperature, "top_p": None if reasoning else top_p, self._limit_name: max_tokens}
        self._slots = asyncio.Semaphore(max_concurrency)
        self._cache = DiskCache(cache_dir) if cache_dir is not None else None
        self._cache_tag = {"tag": cache_tag} if cache_tag else {}
        self._limits, self.budget, self._schema_mode = limits or RequestLimits(), budget or Budget(), schema_mode

    def fork(self, *, seed: int | None = None) -> OpenAIChat:
        """The same client with a `usage` of its own: connections, limits, budget and cache stay shared. `seed` goes into its requests where one is given."""
        other = copy.copy(self)
        other.usage = Usage()
        if seed is not None:
            other._defaults = {**self._defaults, "seed": seed}
        return other

    async def chat(self, messages: Sequence[Mapping[str, Any]], *, schema: Mapping[str, Any] | None = None, max_tokens: int | None = None) -> str:
        """The text of one completion. Raises LLMError after all retries."""
        return (await self.complete(messages, schema=schema, max_tokens=max_tokens)).text

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[ToolSpec] = (),
        schema: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
    ) -> ChatReply:
        """One completion. Raises LLMError after all retries, or where the reply is not a chat completion; BudgetError where the budget does not hold it."""
        request = self._build_request(messages, tools, schema, max_tokens)
        key = {"endpoint": mask_secrets(self.endpoint), **self._cache_tag, **request}
        stored = await asyncio.to_thread(self._cache.get, key) if self._cache is not None else None
        if stored is not None:
            self.usage.num_cached += 1
            return ChatReply(**{**stored, "tool_calls": tuple(RawToolCall(**call) for call in stored["tool_calls"])})
        reply = await self._send(request)
        if self._cache is not None:
            await asyncio.to_thread(self._cache.put, key, _as_stored(reply))
        return reply

    async def check_endpoint(self) -> None:
        """Ask for one short reply, past the cache. Raises ConfigError that says what is wrong with the endpoint, the key or the model."""
        request = self._build_request([{"role": "user", "content": "Reply with the word ready."}], (), None, None)
        try:
            await self._send(request)
        except BudgetError:
            raise
        except LLMError as error:
            raise ConfigError.of(f"model {self.name} at {self.endpoint}", "preflight failed", got=error.message, fix=_advise(error.__cause__)) from error

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    def _build_request(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec], schema: Mapping[str, Any] | None, max_tokens: int | None
    ) -> dict[str, Any]:
        request: dict[str, Any] = {"model": self.name, "messages": [dict(message) for message in messages]}
        request |= {name: value for name, value in self._defaults.items() if value is not None}
        if max_tokens is not None:
            request[self._limit_name] = max_tokens
        if tools:
            request["tools"] = [tool.as_openai() for tool in tools]
        if schema is not None and self._schema_mode.startswith("json_schema"):
            asked = dict(schema) if self._schema_mode == "json_schema_full" else _without_lengths(schema)
            request["response_format"] = {"type": "json_schema", "json_schema": {"name": "reply", "schema": asked, "strict": True}}
        elif schema is not None and self._schema_mode == "json_object":
            request["response_format"] = {"type": "json_object"}
        return request

    async def _send(self, request: Mapping[str, Any]) -> ChatReply:
        """One request within limits and budget, counted."""
        spending = Spending(guess_prompt_tokens(request), request.get(self._limit_name, 0))
        guessed = spending.num_tokens
        async with self._slots:
            await self._limits.wait(guessed)
            async with self.budget.reserve(spending):
                self.usage.num_requests += 1
                completion = await self._create(request)
                self._count(completion, spending)
            self._limits.settle(guessed, spending.num_tokens)
        return _read_choice(completion.choices[0], completion.usage)

    async def _create(self, request: Mapping[str, Any]) -> ChatCompletion:
        from openai import OpenAIError
        from openai.types.chat import ChatCompletion

        try:
            # what `chat.completions.create` does, without its walk through every field of the request, which costs as much as sending it
            with self._connections.take() as client:
                completion = await client.post("/chat/completions", body=request, cast_to=ChatCompletion)
        except (OpenAIError, json.JSONDecodeError) as error:
            raise LLMError.of(f"model {self.name} at {self.endpoint}", f"request failed ({type(error).__name__})", got=str(error)) from error
        if not isinstance(completion, ChatCompletion) or not completion.choices:
            raise LLMError.of(f"model {self.name} at {self.endpoint}", "the reply is not a chat completion", got=str(completion))
        return completion

    def _count(self, completion: ChatCompletion, spending: Spending) -> None:
        """Put what a reply used into `spending` and `usage`; the prompt's guess and the reply's bytes stand in where the endpoint does not say."""
        if completion.usage is not None:
            spending.prompt_tokens, spending.completion_tokens = completion.usage.prompt_tokens or 0, completion.usage.completion_tokens or 0
        else:
            spending.completion_tokens = len((completion.choices[0].message.content or "").encode("utf-8", "replace")) // BYTES_OF_TOKEN
            self.usage.num_unmetered += 1
        self.usage.prompt_tokens += spending.prompt_tokens
        self.usage.completion_tokens += spending.completion_tokens
        self.usage.cost += self.budget.prices.cost(spending.prompt_tokens, spending.completion_tokens)


class ChatGenerate:
    """A policy (`Generate`) behind a chat endpoint with native tool calls.

    A native call is written in Hermes form behind the turn's text and the whole is read by the one strict parser, so that malformed JSON, unknown tools and
    ill-typed arguments end as `parsed.error`, as they do in training. Where the server returns calls as text, `tool_format` says how to read them.
    """

    def __init__(
        self, client: ChatClient, *, tool_format: str = "hermes", max_turn_tokens: int | None = None, schema: Mapping[str, Any] | None = None
    ) -> None:
        """`schema`: a JSON Schema that the endpoint is asked to bind every turn to."""
        self._client, self._tool_format, self._max_turn_tokens, self._schema = client, tool_format, max_turn_tokens, schema

    async def __call__(self, messages: list[dict[str, Any]], tools: Sequence[ToolSpec]) -> AssistantTurn:
        reply = await self._client.complete(messages, tools=tools, schema=self._schema, max_tokens=self._max_turn_tokens)
        counts = {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens, "is_truncated": reply.is_truncated}
        if not reply.tool_calls:
            return AssistantTurn(text=reply.text, parsed=parse_turn(reply.text, tool_format=self._tool_format, tools=tools), **counts)
        text = "\n".join([reply.text, *map(_as_hermes, reply.tool_calls)]).strip()
        parsed = parse_turn(text, tool_format="hermes", tools=tools)
        call_ids = tuple(call.call_id for call in reply.tool_calls)
        if parsed.error is None and len(parsed.calls) != len(call_ids):
            parsed = replace(parsed, calls=(), error="native tool calls are mixed with calls written in the text")
        return AssistantTurn(text=text, parsed=parsed, message=_as_message(reply), tool_call_ids=call_ids, **counts)


def _build_client(base_url: str, api_key_env: str, timeout_s: float, max_retries: int) -> AsyncOpenAI:
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    key = os.environ.get(api_key_env, "") if api_key_env else _NO_KEY
    if not key:
        raise ConfigError.of(
            f"chat endpoint {base_url}",
            f"the environment variable {api_key_env} is not set",
            fix=f'export {api_key_env}=<key>, or set `api_key_env: ""` for a server without keys.',
        )
    connections = DefaultAsyncHttpxClient(base_url=base_url, timeout=timeout_s, verify=_load_certificates())
    return AsyncOpenAI(api_key=key, base_url=base_url, timeout=timeout_s, max_retries=max_retries, http_client=connections)


@functools.cache
def _load_certificates() -> ssl.SSLContext:
    """The trusted certificates, read once a process: it takes 50 ms, while every other request waits."""
    from httpx import create_ssl_context

    return create_ssl_context()


def _without_lengths(schema: Any) -> Any:
    """A schema without the lengths of its strings."""
    if isinstance(schema, list):
        return [_without_lengths(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    is_string = schema.get("type") == "string"
    return {name: _without_lengths(part) for name, part in schema.items() if not (is_string and name in ("minLength", "maxLength"))}


def _read_choice(choice: Any, usage: Any) -> ChatReply:
    message = choice.message
    calls = tuple(
        RawToolCall(call_id=call.id, name=call.function.name, arguments=call.function.arguments) for call in message.tool_calls or () if call.type == "function"
    )
    counts = {} if usage is None else {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}
    return ChatReply(text=message.content or message.refusal or "", tool_calls=calls, is_truncated=choice.finish_reason == "length", **counts)


def _as_stored(reply: ChatReply) -> dict[str, Any]:
    calls = [{"call_id": call.call_id, "name": call.name, "arguments": call.arguments} for call in reply.tool_calls]
    counts = {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens}
    return {"text": reply.text, "tool_calls": calls, "is_truncated": reply.is_truncated, **counts}


def _as_hermes(call: RawToolCall) -> str:
    return f'<tool_call>\n{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}\n</tool_call>'


def _as_message(reply: ChatReply) -> dict[str, Any]:
    calls = [{"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}} for call in reply.tool_calls]
    return {"role": "assistant", "content": reply.text, "tool_calls": calls}


def _advise(cause: BaseException | None) -> str:
    """What the user can do about a failed request."""
    from openai import APIConnectionError, AuthenticationError, BadRequestError, NotFoundError, PermissionDeniedError

    advice: list[tuple[tuple[type[BaseException], ...], str]] = [
        ((APIConnectionError,), "Nothing answers there: check `base_url` and that the server runs."),
        ((AuthenticationError, PermissionDeniedError), "The key was refused: check the variable named by `api_key_env`."),
        ((NotFoundError,), "Check `model`, and that `base_url` ends where the API starts (often /v1)."),
        ((BadRequestError,), "The endpoint refuses the request: check `model` and `temperature`."),
    ]
    return next((words for kinds, words in advice if isinstance(cause, kinds)), "Try the endpoint by hand.")
