"""The trainer's `Generate`: one token list per episode, sampled by verl's rollout servers, many concurrent turns in one Ray call where the server allows it."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import uuid4

from napmem_rl.config.sections import AgentConfig
from napmem_rl.errors import BackendError, StaleWeightsError
from napmem_rl.llm.base import AssistantTurn
from napmem_rl.llm.token_context import TokenContext
from napmem_rl.tools.parse import ParsedTurn, parse_turn
from napmem_rl.tools.spec import ToolSpec

ABORTED = ("aborted", "abort")  # stop reasons of a turn that neither the policy nor a limit ended
ARRIVAL_WINDOW_S = 0.003  # turns that arrive within one window travel together


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledTurn:
    """What a rollout server gave back for one turn. `token_ids` and `logprobs` have one length [R]."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    min_version: int | None  # trainer step of the oldest and of the newest weights that sampled it
    max_version: int | None
    is_length_stop: bool
    is_aborted: bool = False  # the server gave it up before its end; `token_ids` are what it had by then, perhaps none


class TokenServer(Protocol):
    """Whoever samples the tokens of one turn."""

    async def generate(self, request_id: str, prompt_ids: list[int], sampling: Mapping[str, Any]) -> SampledTurn:
        """Sample one turn.

        Args:
            request_id: the same for all turns of an episode, so that a server can keep its prefix.
            prompt_ids: [P].
            sampling: `max_tokens`, `stop_token_ids`, `temperature`, `top_p`, `top_k`, `logprobs`, `seed`.

        Raises:
            BackendError: the server failed or broke its protocol.
        """
        ...


def compute_request_seed(run_seed: int, *, step: int, task_id: str, sample_index: int, turn_index: int, repeat: int = 0) -> int:
    """Seed of one turn: the same request of the same run gets the same seed, whatever the order in which requests arrive. In [0, 2^31).

    `repeat` counts hand-outs of the task within the step: a second group of it must not be a copy of the first.
    """
    return hash_seed(f"{run_seed}/{step}/{task_id}/{sample_index}/{turn_index}{f'/{repeat}' if repeat else ''}")


def hash_seed(text: str) -> int:
    """A seed in [0, 2^31) that depends on all of a text, the same in every process."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


class TokenGenerate:
    """Holds the token list of one episode and samples its turns; build one for each episode.

    Every turn's prompt is the list so far: the template's first prompt, then the engine's own ids and plain-text tool results, never a re-tokenised
    history. A turn gets at most `max_turn_tokens`, and no more than the episode's context has left.
    """

    def __init__(
        self,
        *,
        server: TokenServer,
        tokenizer: Any,
        config: AgentConfig,
        sampling: Mapping[str, Any],
        seed_of_turn: Callable[[int], int],
        expects_one_version: bool,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self._server = server
        self._tokenizer = tokenizer
        self._config = config
        self._sampling = dict(sampling)
        self._seed_of_turn = seed_of_turn
        self._expects_one_version = expects_one_version
        self._context = TokenContext(tokenizer, template_kwargs=template_kwargs)
        self._request_id = uuid4().hex
        self._num_messages = 0
        self._num_turns = 0
        self._ids: list[int] = []
        self.min_version: int | None = None
        self.max_version: int | None = None
        self.generate_s = 0.0

    async def __call__(self, messages: list[dict[str, Any]], tools: Sequence[ToolSpec]) -> AssistantTurn:
        """Sample the turn after `messages`, which must continue those of the previous call.

        Raises:
            StaleWeightsError: the weights changed within the episode although rollouts are synchronous.
            BackendError: the server failed, gave the turn up or broke its protocol.
        """
        self._take_messages(messages, tools)
        room = min(self._config.max_turn_tokens, self._config.max_context_tokens - len(self._ids))
        prompt_ids = tuple(self._ids)
        if room <= 0:
            return AssistantTurn(text="", parsed=self._parse("", tools), prompt_ids=prompt_ids, is_truncated=True)
        sampling = {**self._sampling, "max_tokens": room, "seed": self._seed_of_turn(self._num_turns)}
        clock = asyncio.get_running_loop().time
        started = clock()
        turn = await self._server.generate(self._request_id, list(prompt_ids), sampling)
        self.generate_s += clock() - started
        if turn.is_aborted:
            raise BackendError.of("rollout server", "gave the turn up before its end", got=f"{len(turn.token_ids)} tokens")
        self._note_version(turn)
        self._num_turns += 1
        self._context.append_response(list(turn.token_ids))
        self._ids = list(prompt_ids + turn.token_ids)
        text = self._decode(turn.token_ids)
        parsed = self._parse(text, tools)
        if parsed.calls and not turn.is_length_stop and not self._context.is_turn_closed:
            parsed = dataclasses.replace(parsed, calls=(), error="the turn with tool calls ended with another token than the end of turn")
        return AssistantTurn(
            text=text,
            parsed=parsed,
            prompt_ids=prompt_ids,
            response_ids=turn.token_ids,
            logprobs=turn.logprobs,
            policy_version=turn.max_version,
            is_truncated=turn.is_length_stop,
        )

    def _take_messages(self, messages: list[dict[str, Any]], tools: Sequence[ToolSpec]) -> None:
        """Bring the token list up to date with the messages that came since the last turn."""
        if self._num_messages == 0:
            self._ids = list(self._context.start(messages, tools))
            self._num_messages = len(messages)
            return
        new = messages[self._num_messages :]
        roles = [message["role"] for message in new]
        if len(new) < 2 or roles[0] != "assistant" or set(roles[1:]) != {"tool"}:
            raise BackendError.of("episode history", "does not continue the previous turn", got=roles, expected="the assistant's turn, then its tool results")
        self._context.append_tool_results([message["content"] for message in new[1:]])
        self._ids = list(self._context.token_ids)
        self._num_messages = len(messages)

    def _note_version(self, turn: SampledTurn) -> None:
        versions = [version for version in (self.min_version, turn.min_version) if version is not None]
        self.min_version = min(versions, default=None)
        self.max_version = max([version for version in (self.max_version, turn.max_version) if version is not None], default=None)
        if self._expects_one_version and self.min_version != self.max_version:
            raise StaleWeightsError.of(
                "episode", "its turns were sampled from different weights", got=f"versions {self.min_version} to {self.max_version}", expected="one version"
            )

    def _decode(self, token_ids: Sequence[int]) -> str:
        """The turn as text without its end-of-turn token; everything else stays visible to the parser."""
        ids = list(token_ids)
        if ids[-1] in self._sampling["stop_token_ids"]:
            ids.pop()
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def _parse(self, text: str, tools: Sequence[ToolSpec]) -> ParsedTurn:
        return parse_turn(text, tool_format=self._config.tool_format, tools=tools)


class ClientServer:
    """`TokenServer` over verl's own client: one request for each turn. Works with every rollout server."""

    def __init__(self, generate: Callable[..., Awaitable[Any]], *, passes_seed: bool = True) -> None:
        """`generate` is that of verl's plain client (`LLMServerClient.generate`), which hands an aborted turn on as it is."""
        self._generate = generate
        self._passes_seed = passes_seed

    async def generate(self, request_id: str, prompt_ids: list[int], sampling: Mapping[str, Any]) -> SampledTurn:
        params = dict(sampling)
        if not self._passes_seed:
            params.pop("seed", None)
        try:
            output = await self._generate(request_id=request_id, prompt_ids=prompt_ids, sampling_params=params)
        except Exception as error:  # boundary: whatever the engine raised is the engine's failure
            raise BackendError.of("rollout server", f"generation failed ({type(error).__name__}: {error})") from error
        return read_token_output(output, end_ids=params["stop_token_ids"])


class BatchingServer:
    """`TokenServer` that sends turns arriving together as one `generate_stream` call per server; each turn is answered as soon as it has ended.

    verl's client pays three Ray calls for every turn (acquire, generate, release); with a hundred episodes in flight that costs more than a small model's
    forward. Uses the client's `_acquire_server` and `_release_server`, so that load balancing stays verl's.
    """

    def __init__(self, client: Any, *, num_servers: int = 1, window_s: float = ARRIVAL_WINDOW_S) -> None:
        self._client = client
        self._num_servers = num_servers
        self._window_s = window_s
        self._waiting: list[tuple[list[int], dict[str, Any], asyncio.Future[SampledTurn]]] = []
        self._pump: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()

    async def generate(self, request_id: str, prompt_ids: list[int], sampling: Mapping[str, Any]) -> SampledTurn:
        future: asyncio.Future[SampledTurn] = asyncio.get_running_loop().create_future()
        self._waiting.append((prompt_ids, dict(sampling), future))
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._collect())
        return await future

    async def _collect(self) -> None:
        """Wait until no more turns arrive, then split what came over the servers."""
        while self._waiting:
            seen = -1
            while seen != len(self._waiting):
                seen = len(self._waiting)
                await asyncio.sleep(self._window_s)
            waiting, self._waiting = self._waiting, []
            size = -(-len(waiting) // self._num_servers)
            for start in range(0, len(waiting), size):
                task = asyncio.create_task(self._send(waiting[start : start + size]))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)

    async def _send(self, requests: list[tuple[list[int], dict[str, Any], asyncio.Future[SampledTurn]]]) -> None:
        request_id = uuid4().hex
        waiting = dict(enumerate(requests))
        try:
            server_id, server = await self._client._acquire_server(request_id, prompt_ids=requests[0][0])
            try:
                async for reference in server.generate_stream.remote([(prompt_ids, sampling) for prompt_ids, sampling, _ in requests]):
                    for index, output in await reference:
                        _answer(waiting.pop(index), output)
            finally:
                self._client._release_server(server_id, request_id=request_id)
            if waiting:
                raise BackendError.of("rollout server", f"left {len(waiting)} of {len(requests)} turns without an answer")
        except Exception as error:  # boundary: whatever the engine raised is the engine's failure, and every waiting turn must hear of it
            failure = BackendError.of("rollout server", f"generation failed ({type(error).__name__}: {error})")
            failure.__cause__ = error
            for _, _, future in waiting.values():
                if not future.done():
                    future.set_exception(failure)


def _answer(request: tuple[list[int], dict[str, Any], asyncio.Future[SampledTurn]], output: Any) -> None:
    """Give one turn its tokens, or what is wrong with them."""
    _, sampling, future = request
    if future.done():
        return
    try:
        future.set_result(read_token_output(output, end_ids=sampling["stop_token_ids"]))
    except BackendError as error:
        future.set_exception(error)


def read_token_output(output: Any, *, end_ids: Collection[int]) -> SampledTurn:
    """Check verl's `TokenOutput` and take what an episode needs of it.

    A turn that does not end with one of `end_ids` was cut. The stop reason cannot tell: verl's vLLM server reports "completed" for a length stop too.
    It does tell where the server gave the turn up because weights arrive; a turn that had just ended is whole all the same.

    Raises:
        BackendError: no tokens, or not one log-prob for each token.
    """
    token_ids = tuple(int(token) for token in output.token_ids)
    logprobs = tuple(float(value) for value in output.log_probs or ())
    is_aborted = output.stop_reason in ABORTED and (not token_ids or token_ids[-1] not in end_ids)
    if not token_ids and not is_aborted:
        raise BackendError.of("rollout server", "returned no tokens", got=f"stop reason {output.stop_reason!r}")
    if len(logprobs) != len(token_ids):
        raise BackendError.of("rollout server", f"returned {len(logprobs)} log-probs", expected=f"{len(token_ids)}, one for each token")
    version = output.extra_fields.get("global_steps")
    return SampledTurn(
        token_ids=token_ids,
        logprobs=logprobs,
        min_version=output.extra_fields.get("min_global_steps", version),
        max_version=output.extra_fields.get("max_global_steps", version),
        is_length_stop=not is_aborted and token_ids[-1] not in end_ids,
        is_aborted=is_aborted,
    )


def find_end_ids(tokenizer: Any, generation_config: Any = None, *, template_kwargs: Mapping[str, Any] | None = None) -> tuple[int, ...]:
    """Token ids that end a turn: the chat template's end of turn, the tokenizer's end token and those of the model's generation config.

    Raises:
        ConfigError: the tokenizer has no usable chat template.
    """
    named = getattr(generation_config, "eos_token_id", None)
    end_of_turn = TokenContext(tokenizer, template_kwargs=template_kwargs).end_of_turn_id
    ids = {end_of_turn, tokenizer.eos_token_id, *(named if isinstance(named, (list, tuple)) else [named])}
    return tuple(sorted(int(token) for token in ids - {None}))
