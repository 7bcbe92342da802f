"""One text encoder per node, shared by all banks on it: an actor that batches and caches, and the `Encoder` that asks it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import ray

from napmem_rl.backend.stacks import arm_stacks
from napmem_rl.config.sections import MemoryConfig
from napmem_rl.errors import BackendError
from napmem_rl.retrieval.encoder import CachedEncoder, Encoder, load_encoder

LOCAL_SPECS = ("none", "hashing")  # cheap enough to run where they are asked for
ARRIVAL_WINDOW_S = 0.002  # requests that arrive within one window are encoded together
MAX_BATCH_TEXTS = 256
REQUEST_TIMEOUT_S = 600.0


class EncoderService:
    """The actor's body. Requests that arrive together are encoded in one batch, in one thread; the encoder remembers what it saw."""

    def __init__(self, memory: MemoryConfig) -> None:
        """Args:
            memory: its keys `encoder…`.
        """
        import torch

        arm_stacks()
        torch.set_num_threads(memory.encoder_threads)
        encoder = load_encoder(memory.encoder, device=memory.encoder_device)
        if encoder is None:
            raise BackendError.of("encoder service", "was started without an encoder", got=memory.encoder)
        self._encoder = encoder
        self._waiting: list[tuple[list[str], asyncio.Future[np.ndarray]]] = []
        self._pump: asyncio.Task[None] | None = None

    def describe(self) -> tuple[str, int]:
        """Name and dimension of the vectors."""
        return self._encoder.name, self._encoder.dim

    async def encode(self, texts: list[str]) -> np.ndarray:
        """Returns [n, dim] float32, see `Encoder.encode`."""
        future: asyncio.Future[np.ndarray] = asyncio.get_running_loop().create_future()
        self._waiting.append((texts, future))
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        while self._waiting:
            await asyncio.sleep(ARRIVAL_WINDOW_S)
            batch = self._take_batch()
            texts = [text for request, _ in batch for text in request]
            try:
                rows = await asyncio.to_thread(self._encoder.encode, texts)
            except Exception as error:  # boundary: every waiting request must hear of it
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            start = 0
            for request, future in batch:
                if not future.done():
                    future.set_result(rows[start : start + len(request)])
                start += len(request)

    def _take_batch(self) -> list[tuple[list[str], asyncio.Future[np.ndarray]]]:
        """The oldest requests, at least one, up to `MAX_BATCH_TEXTS` texts."""
        count, size = 0, 0
        for texts, _ in self._waiting:
            if count and size + len(texts) > MAX_BATCH_TEXTS:
                break
            count, size = count + 1, size + len(texts)
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch


class RemoteEncoder:
    """`Encoder` over the node's service. Blocks its thread, so it is for searches off the event loop."""

    def __init__(self, service: Any, *, name: str, dim: int) -> None:
        self._service = service
        self.name = name
        self.dim = dim

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """See `Encoder.encode`.

        Raises:
            BackendError: the service died, failed, or did not answer in time.
        """
        try:
            return ray.get(self._service.encode.remote(list(texts)), timeout=REQUEST_TIMEOUT_S)
        except ray.exceptions.RayError as error:
            raise BackendError.of("encoder service", f"failed ({type(error).__name__}: {error})") from error


def needs_service(spec: str) -> bool:
    """True where the encoder is a model, loaded once per node instead of once per worker."""
    return spec not in LOCAL_SPECS


def start_service(memory: MemoryConfig, *, node_id: str, job_name: str) -> Any:
    """Start the encoder of one node. With `encoder_device: cuda` it waits for a GPU that nobody else of the node holds.

    Args:
        memory: its keys `encoder…`.
        node_id: Ray's id of the node that it must run on.
        job_name: keeps the services of jobs that share a cluster apart.

    Returns:
        the actor's handle; the actor dies with the last handle to it.
    """
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)
    threads = {name: str(memory.encoder_threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    options = {"name": f"napmem_encoder_{job_name}_{node_id[:8]}", "num_cpus": 0, "max_concurrency": 1000, "max_restarts": 2, "max_task_retries": 2}
    options["num_gpus"] = 1 if memory.encoder_device == "cuda" else 0
    actor = ray.remote(EncoderService).options(**options, scheduling_strategy=strategy, runtime_env={"env_vars": threads})
    return actor.remote(memory)


def connect_encoder(spec: str, service: Any | None) -> Encoder | None:
    """The encoder of one worker: local where it is cheap, else the node's service behind a small cache.

    Args:
        spec: see `load_encoder`.
        service: handle of the node's service, or None where `needs_service` is False.
    """
    if not needs_service(spec):
        return load_encoder(spec)
    if service is None:
        raise BackendError.of(f"encoder {spec}", f"has no service on this node (process {os.getpid()})")
    try:
        name, dim = ray.get(service.describe.remote(), timeout=REQUEST_TIMEOUT_S)
    except ray.exceptions.RayError as error:
        fix = "With memory.encoder_device=cuda each node needs one GPU more than trainer.n_gpus_per_node."
        raise BackendError.of(f"encoder {spec}", f"did not start ({type(error).__name__}: {error})", fix=fix) from error
    return CachedEncoder(RemoteEncoder(service, name=name, dim=dim))
