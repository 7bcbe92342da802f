"""Continuous batching on a transformers model: the CPU's rollout engine, without Ray or verl.

transformers 5.10 has an own one (`ContinuousBatchingManager`), read and left aside: it draws every request from one global `torch.multinomial`, so that a
seed belongs to no request; its log-probs are those of the cut distribution (after top-p), not the learner's; it has no weight update with invalidation of
its shared prefixes; and on CPU its paged SDPA builds a dense mask [tokens, all cached tokens of the batch].
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

import torch

from napmem_rl.backend.kv_slots import SLOT_ATTENTION, DecodeStep, KVSlots, PrefillStep, PrefixStore, register_slot_attention
from napmem_rl.backend.sampling import SamplingParams, sample_tokens
from napmem_rl.backend.weight_loading import WeightLoader
from napmem_rl.errors import BackendError, NapMemError

__all__ = ["Generation", "SamplingParams", "TransformersEngine"]

StopReason = Literal["stop", "length", "aborted"]
ARRIVAL_WINDOW_S = 0.002  # an idle engine waits until no request has come for this long, so that one prefill serves all
ADMIT_AT_ONCE = 8  # a busy engine lets this many waiting requests in at once …
ADMIT_AFTER_STEPS = 4  # … and fewer after this many steps
MAX_PREFILL_TOKENS = 16384  # of one forward
CONTROL_TIMEOUT_S = 300.0  # for what runs between two steps


@dataclass(frozen=True, slots=True)
class Generation:
    """A response. A stop token is its last token; `policy_version` is of the weights that sampled all of it."""

    token_ids: tuple[int, ...]  # [R]
    logprobs: tuple[float, ...]  # [R], natural log, see `sample_tokens`
    stop_reason: StopReason
    policy_version: int | None
    num_cached_tokens: int = 0  # prompt tokens whose keys came from an earlier turn


@dataclass(slots=True)
class _Request:
    request_id: str
    prompt: list[int]
    params: SamplingParams
    limit: int  # response tokens at most
    generator: random.Random
    stop_ids: frozenset[int]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Generation]
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    num_cached: int = 0

    @property
    def num_stored(self) -> int:
        """Tokens whose keys are in the cache: all but the newest."""
        return len(self.prompt) + len(self.token_ids) - 1


class TransformersEngine:
    """Serves `generate` to any number of event loops; one thread owns the model, the cache and the weights.

    The model's attention is switched to the engine's own: use the model through the engine alone. Prompts of an admission that are equal are computed once;
    a prompt that continues a finished turn starts from that turn's keys. Both are exact up to rounding, as batching is.
    """

    def __init__(
        self,
        model: Any,
        *,
        max_context: int,
        max_batch: int = 128,
        stop_token_ids: Sequence[int] = (),
        prefix_cache_bytes: int = 256 << 20,
        policy_version: int | None = None,
    ) -> None:
        """Start the engine.

        Args:
            model: a transformers causal language model, full attention in every layer, on CPU.
            max_context: tokens of prompt and response together.
            max_batch: requests running at once; more wait.
            stop_token_ids: end any response, besides those of the request.
            prefix_cache_bytes: for keys of finished turns; 0 keeps none.
            policy_version: of the weights the model holds.

        Raises:
            ConfigError: a model with other than full attention layers.
        """
        config = model.config.get_text_config()
        self._slots = KVSlots(config, dtype=model.dtype, max_rows=max_batch, max_context=max_context)
        self._prefixes = PrefixStore(prefix_cache_bytes)
        register_slot_attention()
        model.set_attn_implementation(SLOT_ATTENTION)
        self._model = model.eval().requires_grad_(False)
        self._vocab_size = config.vocab_size
        self._loader = WeightLoader(model)
        self._max_context, self._max_batch = max_context, max_batch
        self._stop_ids = frozenset(stop_token_ids)
        self.policy_version = policy_version
        self._active: list[_Request] = []  # the request of row i is at i
        self._waiting: deque[_Request] = deque()
        self._controls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._wake = threading.Condition()
        self._is_updating = self._is_closed = False
        self._unusable: NapMemError | None = None  # after a failed weight update, until a complete one
        self._steps_since_admission = 0
        self._thread = threading.Thread(target=self._serve, name="transformers-engine", daemon=True)
        self._thread.start()

    async def generate(self, prompt_ids: Sequence[int], params: SamplingParams, *, request_id: str | None = None) -> Generation:
        """Sample one response.

        Raises:
            BackendError: an empty prompt, one that leaves no room in the context, a token outside the vocabulary, or a step that failed.
        """
        request = self._build_request(list(prompt_ids), params, request_id or uuid4().hex)
        self._submit([request])
        return await self._wait_for(request)

    async def generate_many(self, requests: Sequence[tuple[Sequence[int], SamplingParams]]) -> list[Generation]:
        """`generate` for several at once, in order. The first error is raised after all have ended."""
        built = [self._build_request(list(prompt), params, uuid4().hex) for prompt, params in requests]
        self._submit(built)
        results = await asyncio.gather(*[self._wait_for(request) for request in built], return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return list(results)

    async def generate_as_done(self, requests: Sequence[tuple[Sequence[int], SamplingParams]]) -> AsyncIterator[list[tuple[int, Generation]]]:
        """`generate` for several at once: (number of the request, response) of those that have ended since the last time, until all have."""
        built = [self._build_request(list(prompt), params, uuid4().hex) for prompt, params in requests]
        self._submit(built)
        waiting = {request.future: index for index, request in enumerate(built)}
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                yield [(waiting.pop(future), future.result()) for future in done]
        finally:
            left = [built[index] for index in waiting.values()]
            if left:  # nobody listens any more
                self._submit_control(lambda: self._abort(lambda request: any(request is one for one in left)))

    def update_weights(self, weights: Mapping[str, torch.Tensor], *, is_last: bool = True, version: int | None = None) -> None:
        """Copy one bucket of new weights in place, between two steps; blocks until it is done.

        The first bucket aborts what is running and forgets all cached keys; nothing runs until the last one, which sets `policy_version`.

        Raises:
            BackendError: a wrong name or shape, or a weight that was not sent. The engine then refuses to generate until a complete update.
        """
        self._between_steps(lambda: self._load(weights, is_last, version))

    def abort_all(self) -> list[str]:
        """End every request, running or waiting, with what it has. Returns their ids."""
        return self._between_steps(lambda: self._abort(lambda request: True))

    def clear_prefixes(self) -> None:
        """Forget the keys of finished turns."""
        self._between_steps(self._prefixes.clear)

    def close(self) -> None:
        """Stop the thread; requests still there fail."""
        with self._wake:
            self._is_closed = True
            self._wake.notify_all()
        self._thread.join(CONTROL_TIMEOUT_S)

    # --- called from any thread ---

    def _build_request(self, prompt: list[int], params: SamplingParams, request_id: str) -> _Request:
        if self._unusable is not None:
            raise self._unusable
        room = self._max_context - len(prompt)
        if not prompt or room < 1:
            expected = f"1 to {self._max_context - 1}, so that one of max_context = {self._max_context} is left to answer"
            raise BackendError.of(f"request {request_id}, prompt", "does not fit", got=f"{len(prompt)} tokens", expected=expected)
        if min(prompt) < 0 or max(prompt) >= self._vocab_size:
            expected = f"0 to {self._vocab_size - 1}"
            raise BackendError.of(f"request {request_id}, prompt", "holds a token outside the vocabulary", got=(min(prompt), max(prompt)), expected=expected)
        loop = asyncio.get_running_loop()
        return _Request(
            request_id=request_id,
            prompt=prompt,
            params=params,
            limit=min(params.max_tokens or room, room),
            generator=random.Random(params.seed),
            stop_ids=self._stop_ids | frozenset(params.stop_token_ids),
            loop=loop,
            future=loop.create_future(),
        )

    def _submit(self, requests: list[_Request]) -> None:
        with self._wake:
            if self._is_closed:
                raise BackendError.of("transformers engine", "is closed")
            self._waiting.extend(requests)
            self._wake.notify_all()

    async def _wait_for(self, request: _Request) -> Generation:
        try:
            return await request.future
        except asyncio.CancelledError:
            self._submit_control(lambda: self._abort(lambda one: one is request))
            raise

    def _submit_control(self, function: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        with self._wake:
            if self._is_closed:
                raise BackendError.of("transformers engine", "is closed")
            self._controls.append((function, future))
            self._wake.notify_all()
        return future

    def _between_steps(self, function: Callable[[], Any]) -> Any:
        try:
            return self._submit_control(function).result(CONTROL_TIMEOUT_S)
        except FutureTimeout:
            raise BackendError.of("transformers engine", f"no step ended within {CONTROL_TIMEOUT_S:.0f} s") from None

    # --- the engine's own thread ---

    @torch.inference_mode()
    def _serve(self) -> None:
        while self._wait_for_work():
            self._run_controls()
            try:
                if self._should_admit():
                    self._admit(self._take_waiting())
                elif self._active:
                    self._decode()
            except Exception as error:  # boundary: the requests of the step fail, the engine goes on
                self._fail_active(BackendError.of("transformers engine", f"a step failed ({type(error).__name__}: {error})"), error)
        self._fail_active(BackendError.of("transformers engine", "was closed with requests in flight"), None)

    def _wait_for_work(self) -> bool:
        """False once closed. An idle engine gathers arrivals for a moment."""
        with self._wake:
            while not (self._is_closed or self._controls or self._active or self._can_take()):
                self._wake.wait()
            seen = 0
            while not self._active and not self._controls and len(self._waiting) > seen and not self._is_closed:
                seen = len(self._waiting)
                self._wake.wait(ARRIVAL_WINDOW_S)
            return not self._is_closed

    def _can_take(self) -> bool:
        return bool(self._waiting) and not self._is_updating and len(self._active) < self._max_batch

    def _should_admit(self) -> bool:
        if not self._can_take():
            return False
        return not self._active or len(self._waiting) >= ADMIT_AT_ONCE or self._steps_since_admission >= ADMIT_AFTER_STEPS

    def _take_waiting(self) -> list[_Request]:
        """The next requests in order of arrival, as many as fit the batch and one forward. An equal prompt costs nothing more."""
        taken: list[_Request] = []
        seen: set[tuple[int, ...]] = set()
        num_tokens = 0
        with self._wake:
            while self._waiting and len(self._active) + len(taken) < self._max_batch:
                prompt = tuple(self._waiting[0].prompt)
                num_tokens += 0 if prompt in seen else len(prompt)
                if taken and num_tokens > MAX_PREFILL_TOKENS:
                    break
                seen.add(prompt)
                taken.append(self._waiting.popleft())
        return taken

    def _run_controls(self) -> None:
        while True:
            with self._wake:
                if not self._controls:
                    return
                function, future = self._controls.popleft()
            try:
                future.set_result(function())
            except Exception as error:  # boundary: the caller of the control gets it
                future.set_exception(error)

    def _admit(self, requests: list[_Request]) -> None:
        """Give each request a row, compute its prompt and draw its first token."""
        first = len(self._active)
        self._active.extend(requests)  # from here on a failure is theirs too
        leaders: dict[tuple[int, ...], int] = {}
        leader_of = [leaders.setdefault(tuple(request.prompt), row) for row, request in enumerate(requests, start=first)]
        self._slots.reserve(len(self._active), max(len(request.prompt) for request in requests) + 1)
        logits = self._prefill(list(leaders.values()))
        for row, leader in enumerate(leader_of, start=first):
            if row != leader:
                self._slots.copy_row(leader, row, len(self._active[row].prompt))
                self._active[row].num_cached = self._active[leader].num_cached
        index_of = {row: index for index, row in enumerate(leaders.values())}
        self._steps_since_admission = 0
        self._draw(logits[[index_of[leader] for leader in leader_of]], first)

    def _prefill(self, rows: list[int]) -> torch.Tensor:
        """Keys of the prompts of `rows`, one packed forward over what no earlier turn left behind. Returns the last tokens' logits [len(rows), V]."""
        new_tokens: list[int] = []
        pasts, lengths = [], []
        for row in rows:
            request = self._active[row]
            kept = self._prefixes.take(request.prompt)
            if kept is not None:
                self._slots.write(row, *kept)
                request.num_cached = kept[0].shape[1]
            pasts.append(request.num_cached)
            lengths.append(len(request.prompt) - request.num_cached)
            new_tokens += request.prompt[request.num_cached :]
        step = PrefillStep.build(self._slots, rows, pasts, lengths)
        return self._forward(torch.tensor([new_tokens]), step.column_of_token[None], step, torch.tensor(lengths).cumsum(0) - 1)[0]

    def _decode(self) -> None:
        """One token for every running request."""
        lengths = torch.tensor([request.num_stored for request in self._active])
        self._slots.reserve(len(self._active), int(lengths.max()) + 1)
        newest = torch.tensor([[request.token_ids[-1]] for request in self._active])
        logits = self._forward(newest, lengths[:, None], DecodeStep.build(self._slots, lengths), 1)[:, 0]
        self._steps_since_admission += 1
        self._draw(logits, 0)

    def _forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor, step: PrefillStep | DecodeStep, keep: torch.Tensor | int) -> torch.Tensor:
        return self._model(input_ids=input_ids, position_ids=position_ids, use_cache=False, logits_to_keep=keep, kv_step=step).logits.float()

    def _draw(self, logits: torch.Tensor, first: int) -> None:
        """Sample a token for the rows from `first` on, and let those go that are done. logits [rows, V]."""
        requests = self._active[first:]
        tokens, logprobs = sample_tokens(logits, [request.params for request in requests], [request.generator for request in requests])
        done: list[tuple[int, StopReason]] = []
        for row, (request, token, logprob) in enumerate(zip(requests, tokens, logprobs, strict=True), start=first):
            request.token_ids.append(token)
            request.logprobs.append(logprob)
            if token in request.stop_ids:
                done.append((row, "stop"))
            elif len(request.token_ids) >= request.limit:
                done.append((row, "length"))
        self._finish(done)

    def _finish(self, done: list[tuple[int, StopReason]]) -> None:
        """Answer the requests of some rows and close the gaps with the last rows."""
        results = []
        for row, reason in sorted(done, reverse=True):
            request = self._active[row]
            if reason == "stop":
                self._prefixes.put((request.prompt + request.token_ids)[: request.num_stored], *self._slots.read(row, request.num_stored))
            results.append((request, self._build_generation(request, reason)))
            last = self._active.pop()
            if last is not request:
                self._slots.copy_row(len(self._active), row, last.num_stored)
                self._active[row] = last
        _deliver(results)

    def _build_generation(self, request: _Request, reason: StopReason) -> Generation:
        return Generation(tuple(request.token_ids), tuple(request.logprobs), reason, self.policy_version, request.num_cached)

    def _abort(self, is_meant: Callable[[_Request], bool]) -> list[str]:
        with self._wake:
            waiting = [request for request in self._waiting if is_meant(request)]
            self._waiting = deque(request for request in self._waiting if not is_meant(request))
        _deliver([(request, self._build_generation(request, "aborted")) for request in waiting])
        rows = [row for row, request in enumerate(self._active) if is_meant(request)]
        ids = [request.request_id for request in waiting] + [self._active[row].request_id for row in rows]
        self._finish([(row, "aborted") for row in rows])
        return ids

    def _load(self, weights: Mapping[str, torch.Tensor], is_last: bool, version: int | None) -> None:
        rows = range(len(self._active))
        self._finish([(row, "aborted") for row in rows])
        self._prefixes.clear()
        self._is_updating = True
        try:
            self._loader.load(weights)
            if is_last:
                self._loader.finish()
        except BackendError as error:
            self._loader.forget()
            self._is_updating, self._unusable = False, error
            raise
        if is_last:
            self._is_updating, self._unusable = False, None
            self.policy_version = version

    def _fail_active(self, failure: BackendError, cause: Exception | None) -> None:
        """Give the error to every running request (and to the waiting ones once closed), and start with an empty cache."""
        failure.__cause__ = cause
        with self._wake:
            failed, self._active = self._active, []
            if self._is_closed:
                failed += self._waiting
                for _, future in self._controls:
                    future.set_exception(failure)
        self._prefixes.clear()
        self._slots.reset()
        _deliver([(request, failure) for request in failed])


def _deliver(results: Sequence[tuple[_Request, Generation | BackendError]]) -> None:
    """Answer requests on their own event loops, one wake-up per loop. A loop that is closed has nobody waiting."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_Request, Generation | BackendError]]] = {}
    for request, result in results:
        by_loop.setdefault(request.loop, []).append((request, result))
    for loop, group in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, group)


def _resolve(group: Sequence[tuple[_Request, Generation | BackendError]]) -> None:
    for request, result in group:
        if request.future.done():
            continue
        if isinstance(result, BackendError):
            request.future.set_exception(result)
        else:
            request.future.set_result(result)
