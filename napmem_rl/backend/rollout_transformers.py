"""verl's rollout replica "transformers": one `TransformersEngine` in a Ray actor per replica, and the sender of weights in the learners.

    learner rank 0 of a replica: TransformersWeightSender.update_weights ── buckets through Ray's object store ──▶ TransformersServer.load_weights
    agent-loop workers: LLMServerClient.generate / generate_stream ──▶ TransformersServer ──▶ TransformersEngine

verl finds both by the name in ``actor_rollout_ref.rollout.name`` (napmem_rl/backend/plugin.py enters it). Every wait on the server is bounded: a server that
died is an error, not a hang.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any

import numpy as np
import ray
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.tokenizer import normalize_token_ids
from verl.workers.config import HFModelConfig, RolloutConfig
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

from napmem_rl.backend.engine_transformers import Generation, SamplingParams, TransformersEngine
from napmem_rl.errors import BackendError, ConfigError

START_TIMEOUT_S = 600.0  # imports and model loading on a busy node
BUCKET_TIMEOUT_S = 600.0
THREADS_VARIABLE = "NAPMEM_ROLLOUT_THREADS"  # torch threads of a server; default: all cores
_DTYPES = {"float32": torch.float32, "fp32": torch.float32, "bfloat16": torch.bfloat16, "bf16": torch.bfloat16}
_IGNORED_SAMPLING = {"logprobs", "repetition_penalty", "top_k", "ignore_eos", "skip_special_tokens"}
WireTensor = tuple[torch.dtype, tuple[int, ...], np.ndarray]  # numpy bytes travel through Ray without a copy in the pickle


def server_name(config: RolloutConfig, replica_rank: int, suffix: str = "") -> str:
    """Ray name of a replica's server, which is how the learners find it."""
    return f"{config.name}_server_{replica_rank}_0{suffix}"


async def wait_bounded(awaitable: Awaitable[Any], *, seconds: float, what: str) -> Any:
    """Await a Ray call for at most `seconds`.

    Raises:
        BackendError: time is up, or the actor died.
    """
    try:
        return await asyncio.wait_for(asyncio.ensure_future(awaitable), seconds)
    except TimeoutError:
        fix = "See the log of the rollout server; the node may be out of memory."
        raise BackendError.of(what, f"did not answer within {seconds:.0f} s", fix=fix) from None
    except ray.exceptions.RayActorError as error:
        raise BackendError.of(what, f"died ({error})") from error


def to_wire(weight: torch.Tensor) -> WireTensor:
    """A tensor as bytes of numpy (which has no bfloat16)."""
    flat = weight.detach().to("cpu").contiguous().reshape(-1)
    return weight.dtype, tuple(weight.shape), flat.view(torch.uint8).numpy()


def from_wire(wire: WireTensor) -> torch.Tensor:
    """The inverse of `to_wire`. Ray maps the bytes read-only, which torch does not know: those are copied."""
    dtype, shape, data = wire
    return torch.from_numpy(data if data.flags.writeable else data.copy()).view(dtype).reshape(shape)


class TransformersWeightSender(BaseRollout):
    """The rollout side of a learner: sends weights to its replica's server. Rank 0 of a replica sends, the others take part in gathering."""

    def __init__(self, config: RolloutConfig, model_config: HFModelConfig, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh)
        rank = int(os.environ["RANK"])
        ranks = self.config.tensor_model_parallel_size * self.config.data_parallel_size * self.config.pipeline_model_parallel_size
        self.replica_rank = rank // ranks if replica_rank == -1 else replica_rank
        self.rollout_rank = rank % ranks
        self.is_leader_rank = self.rollout_rank == 0
        self.sleep_level = 2  # read by verl; weights are never put to sleep here
        self._server: Any = None

    async def resume(self, tags: list[str]) -> None:
        """Nothing was released."""

    async def release(self) -> None:
        """The server keeps its own weights."""

    async def update_weights(
        self, weights: Any, global_steps: int | None = None, wire_format: str = "named_tensors", peft_config: Any = None, **kwargs: Any
    ) -> None:
        """Send all weights in buckets of ``checkpoint_engine.update_weights_bucket_megabytes``.

        Raises:
            ConfigError: adapters or deltas, which the server does not take.
            BackendError: the server refused a name, died or did not answer.
        """
        from verl.workers.rollout.utils import ensure_async_iterator

        if peft_config is not None or wire_format != "named_tensors":
            fix = "Set actor_rollout_ref.model.lora.merge=true and checkpoint_engine.backend=naive."
            raise ConfigError.of("rollout server transformers", "takes full weights only", got="an adapter" if peft_config else wire_format, fix=fix)
        limit = int(self.config.checkpoint_engine.update_weights_bucket_megabytes) << 20
        bucket: dict[str, WireTensor] = {}
        num_bytes = 0
        async for name, weight in ensure_async_iterator(weights):  # a collective: every rank iterates
            if not self.is_leader_rank:
                continue
            if bucket and num_bytes + weight.nbytes > limit:
                await self._send(bucket, is_last=False, version=global_steps)
                bucket, num_bytes = {}, 0
            bucket[name] = to_wire(weight)
            num_bytes += weight.nbytes
        if self.is_leader_rank:
            await self._send(bucket, is_last=True, version=global_steps)

    async def _send(self, bucket: dict[str, WireTensor], *, is_last: bool, version: int | None) -> None:
        name = server_name(self.config, self.replica_rank)  # only teachers have a suffix, and nobody sends them weights
        if self._server is None:
            try:
                self._server = ray.get_actor(name)
            except ValueError as error:
                raise BackendError.of(f"rollout server {name}", "is not there to take weights", fix="It died, or its replica never started it.") from error
        await wait_bounded(self._server.load_weights.remote(bucket, is_last, version), seconds=BUCKET_TIMEOUT_S, what=f"rollout server {name}, weight update")


class TransformersServer:
    """The Ray actor of one replica. Its methods are those that verl's client, replica and checkpoint manager call."""

    def __init__(self, config: RolloutConfig, model_config: Any, replica_rank: int) -> None:
        from transformers import AutoModelForCausalLM

        self.config: RolloutConfig = omega_conf_to_dataclass(config)
        self.model_config: HFModelConfig = omega_conf_to_dataclass(model_config, dataclass_type=HFModelConfig)
        self.replica_rank = replica_rank
        if self.config.dtype not in _DTYPES:
            raise ConfigError.of("rollout.dtype", "is not served on CPU", got=self.config.dtype, expected=" or ".join(sorted(_DTYPES)))
        torch.set_num_threads(int(os.environ.get(THREADS_VARIABLE, "0")) or os.cpu_count() or 1)
        model = AutoModelForCausalLM.from_pretrained(
            self.model_config.local_path, dtype=_DTYPES[self.config.dtype], trust_remote_code=self.model_config.trust_remote_code
        )
        self._max_context = self.config.max_model_len or self.config.prompt_length + self.config.response_length
        self._engine = TransformersEngine(
            model, max_context=self._max_context, max_batch=self.config.max_num_seqs, stop_token_ids=_end_ids(model.generation_config.eos_token_id)
        )
        self._is_rejecting = False
        self._is_paused = False
        self._resumed = asyncio.Event()
        self._resumed.set()

    def get_node_address(self) -> str:
        """Address of the node; answering it means the model is loaded."""
        return ray.util.get_node_ip_address().strip("[]")

    async def listen(self) -> str:
        """Answer in the OpenAI protocol too, as a model that is served beside training does. Returns "host:port"."""
        from transformers import AutoTokenizer
        from verl.utils.net_utils import is_valid_ipv6_address
        from verl.workers.rollout.utils import run_uvicorn

        from napmem_rl.backend.chat_server import ChatServer

        tokenizer = AutoTokenizer.from_pretrained(self.model_config.local_path)
        chat = ChatServer(model=self.model_config.path, tokenizer=tokenizer, sample=self._engine.generate, max_context=self._max_context)
        host = self.get_node_address()
        port, self._listening = await run_uvicorn(chat.app, None, host)
        return f"[{host}]:{port}" if is_valid_ipv6_address(host) else f"{host}:{port}"

    # --- generation ---

    async def generate(
        self, prompt_ids: Sequence[int], sampling_params: Mapping[str, Any], request_id: str, image_data: Any = None, video_data: Any = None, **kwargs: Any
    ) -> TokenOutput:
        """One response, as verl's client asks for it. Parked while the server is paused; answered "aborted" where it leaves rotation."""
        if image_data is not None or video_data is not None:
            raise BackendError.of(f"request {request_id}", "holds images or video", expected="text", fix="Use the vLLM rollout server.")
        if not await self._is_admitted():
            return TokenOutput(token_ids=[], log_probs=[], stop_reason="aborted", extra_fields={"global_steps": self._engine.policy_version})
        prompt = normalize_token_ids(prompt_ids)
        return to_output(await self._engine.generate(prompt, self._read_params(prompt, sampling_params), request_id=request_id))

    async def generate_stream(self, requests: Sequence[tuple[Sequence[int], Mapping[str, Any]]]) -> AsyncIterator[list[tuple[int, TokenOutput]]]:
        """`generate` for several (prompt ids, sampling parameters) in one Ray call: (number of the request, output) of those that have just ended."""
        if not await self._is_admitted():
            yield [(index, TokenOutput(token_ids=[], log_probs=[], stop_reason="aborted")) for index in range(len(requests))]
            return
        prompts = [normalize_token_ids(prompt) for prompt, _ in requests]
        built = [(prompt, self._read_params(prompt, params)) for prompt, (_, params) in zip(prompts, requests, strict=True)]
        async for done in self._engine.generate_as_done(built):
            yield [(index, to_output(generation)) for index, generation in done]

    def _read_params(self, prompt: Sequence[int], params: Mapping[str, Any]) -> SamplingParams:
        """verl's sampling parameters as ours. Without a limit verl's rule holds: the response length, less what the prompt took of it.

        Raises:
            BackendError: a parameter that the engine does not apply, so that the samples would not follow it.
        """
        known = {"temperature", "top_p", "max_tokens", "max_new_tokens", "stop_token_ids", "seed"}
        unknown = sorted(set(params) - known - _IGNORED_SAMPLING)
        inert = params.get("top_k", -1) in (-1, 0, None) and params.get("repetition_penalty", 1.0) in (1.0, None) and not params.get("ignore_eos")
        if unknown or not inert:
            raise BackendError.of("sampling parameters", "are not all served by the transformers server", got=dict(params), expected=f"among {sorted(known)}")
        limit = params.get("max_tokens") or params.get("max_new_tokens")
        config = self.config
        return SamplingParams(
            temperature=float(params.get("temperature", config.temperature)),
            top_p=float(params.get("top_p", config.top_p)),
            max_tokens=limit or max(1, min(config.response_length, config.prompt_length + config.response_length - len(prompt))),
            stop_token_ids=tuple(params.get("stop_token_ids") or ()),
            seed=params.get("seed"),
        )

    async def _is_admitted(self) -> bool:
        while self._is_paused:
            if self._is_rejecting:
                return False
            await self._resumed.wait()
        return True

    # --- weights ---

    async def load_weights(self, bucket: Mapping[str, WireTensor], is_last: bool, version: int | None) -> None:
        """One bucket of an update; see `TransformersEngine.update_weights`."""
        weights = {name: from_wire(wire) for name, wire in bucket.items()}
        await asyncio.to_thread(self._engine.update_weights, weights, is_last=is_last, version=version)

    # --- control ---

    async def abort_all_requests(self, reset_prefix_cache: bool = True, reject_request: bool = False) -> dict[str, Any]:
        """End every request with what it has and hold new ones until `resume_generation` (or refuse them, with `reject_request`)."""
        self._is_paused, self._is_rejecting = True, reject_request
        self._resumed.clear()
        request_ids = await asyncio.to_thread(self._engine.abort_all)
        if reset_prefix_cache:
            await self.clear_kv_cache()
        return {"aborted_count": len(request_ids), "request_ids": request_ids}

    async def resume_generation(self) -> None:
        """Take requests again."""
        self._is_paused = self._is_rejecting = False
        self._resumed.set()

    async def clear_kv_cache(self) -> None:
        """Forget the keys of finished turns."""
        await asyncio.to_thread(self._engine.clear_prefixes)

    async def release_kv_cache(self) -> None:
        """Memory of the host is not handed back and forth; the keys go."""
        await self.clear_kv_cache()

    async def resume_kv_cache(self) -> None:
        """Nothing to take back."""

    async def sleep(self) -> None:
        """Weights and cache stay: there is no device to free."""

    async def wake_up(self, tags: list[str] | None = None) -> None:
        """See `sleep`."""

    async def start_profile(self, **kwargs: Any) -> None:
        """No profiler."""

    async def stop_profile(self) -> None:
        """No profiler."""


def _end_ids(eos: int | list[int] | None) -> tuple[int, ...]:
    if eos is None:
        return ()
    return tuple(eos) if isinstance(eos, list) else (eos,)


def to_output(generation: Generation) -> TokenOutput:
    """What verl's client expects of a generation."""
    return TokenOutput(
        token_ids=list(generation.token_ids),
        log_probs=list(generation.logprobs),
        stop_reason="aborted" if generation.stop_reason == "aborted" else "completed",
        extra_fields={
            "global_steps": generation.policy_version,
            "num_cached_tokens": generation.num_cached_tokens,
            "finish_reason": generation.stop_reason,
        },
    )


class TransformersReplica(RolloutReplica):
    """One server per replica, on the node of the replica's first learner."""

    server_class: type = TransformersServer

    async def launch_servers(self) -> None:
        """Start the server and wait until its model is loaded.

        Raises:
            BackendError: it did not come up in time.
        """
        what = f"rollout server of replica {self.replica_rank}"
        node_id = await wait_bounded(self.workers[0].__ray_call__.remote(_node_of), seconds=START_TIMEOUT_S, what=what)
        role = "reward_" if self.is_reward_model else "teacher_" if self.is_teacher_model else ""
        name = server_name(self.config, self.replica_rank, self.name_suffix)
        server = (
            ray.remote(self.server_class)
            .options(
                name=name.replace("server_", f"server_{role}", 1),
                max_concurrency=self.max_concurrency,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node_id, soft=False),
            )
            .remote(self.config, self.model_config, self.replica_rank)
        )
        address = await wait_bounded(server.get_node_address.remote(), seconds=START_TIMEOUT_S, what=f"{what}, start")
        self.servers = [server]
        self._server_handle = server
        self._server_address = f"{address}:{name}"
        if self.is_reward_model:
            self._server_address = await wait_bounded(server.listen.remote(), seconds=START_TIMEOUT_S, what=f"{what}, start of its endpoint")


def _node_of(worker: Any) -> str:
    return ray.get_runtime_context().get_node_id()
