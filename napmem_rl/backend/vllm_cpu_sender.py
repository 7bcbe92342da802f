"""The learners' side of the vLLM rollout server on the CPU: verl's own sender, for one engine process however many learners its replica spans."""

from __future__ import annotations

import time
from typing import Any

import ray
import verl  # noqa: F401  (first: its plugin answers for the name vllm)
import zmq
from verl.workers.rollout.utils import ensure_async_iterator
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender
from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter

from napmem_rl.backend.job_names import find_job_name
from napmem_rl.backend.rollout_transformers import BUCKET_TIMEOUT_S, wait_bounded
from napmem_rl.errors import BackendError

BYTES_OF_WEIGHT = 4  # learners keep fp32
POLL_S = 1.0


def find_largest_weight_bytes(model_config: Any) -> int:
    """Upper bound of the bytes of one weight of a model: the embedding, or a matrix of its MLP with both halves fused."""
    text = model_config.get_text_config()
    widths = [text.vocab_size, 2 * (getattr(text, "intermediate_size", None) or 0)]
    return max(widths) * text.hidden_size * BYTES_OF_WEIGHT


class CPUServerAdapter(ServerAdapter):
    """Sends weights through shared memory in buckets that hold the largest weight. Rank 0 of a replica sends, the others take part in gathering.

    Sender and receiver meet at a path of the machine that verl makes of Ray's job id. That is the same in every Ray that has just been started, so that of
    two jobs beside each other one would load the other's weights; here the path holds the name of the job.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        ray_job_id = ray.get_runtime_context().get_job_id()
        self.zmq_handle = self.zmq_handle.replace(f"-zmq-{ray_job_id}-", f"-zmq-{find_job_name() or ray_job_id}-")

    async def update_weights(self, weights: Any, global_steps: int | None = None, wire_format: str = "named_tensors", **kwargs: Any) -> None:
        """As verl's, with an end to every wait. A rank without a server has nobody to send to, but gathering is a collective: it iterates too.

        Raises:
            BackendError: the server died, refused the weights, or did not answer.
        """
        if not self._has_server:
            async for _ in ensure_async_iterator(weights):
                pass
            return
        if wire_format != "named_tensors":
            raise BackendError.of("rollout server vllm on the cpu platform", "takes full weights only", got=wire_format)
        what = f"rollout server of replica {self.replica_rank}, weight update"
        try:
            self._ensure_server_handle()
        except ValueError as error:
            raise BackendError.of(what, "is not there to take weights", fix="It died; see its log.") from error
        try:
            taken = await self._execute_method("update_weights_from_ipc", non_block=True, kwargs={**kwargs, "use_shm": True})
            sender = WatchfulSender(taken, what=what, zmq_handle=self.zmq_handle, bucket_size_mb=self._find_bucket_megabytes(), use_shm=True)
            await sender.async_send_weights(weights)
            await wait_bounded(taken, seconds=BUCKET_TIMEOUT_S, what=what)
            await wait_bounded(self.server_handle.clear_kv_cache.remote(), seconds=BUCKET_TIMEOUT_S, what=what)
            if global_steps is not None:
                await wait_bounded(self.server_handle.set_global_steps.remote(global_steps), seconds=BUCKET_TIMEOUT_S, what=what)
        except ray.exceptions.RayError as error:
            lines = str(error).strip().splitlines() or [""]
            raise BackendError.of(what, f"failed ({type(error).__name__}: {lines[-1]})") from error

    def _find_bucket_megabytes(self) -> int:
        """The recipe's size of a bucket, or more where the largest weight needs it."""
        return max(self.config.checkpoint_engine.update_weights_bucket_megabytes, (find_largest_weight_bytes(self.model_config.hf_config) >> 20) + 1)


class WatchfulSender(BucketedWeightSender):
    """verl's sender, which waits for a receiver in another process without an end; this one stops when the receiver's side has ended or time is up."""

    def __init__(self, taken: Any, *, what: str, timeout_s: float = BUCKET_TIMEOUT_S, **kwargs: Any) -> None:
        """Args:
            taken: reference of the server's call that receives; it is pending until the last bucket has come.
            what: who takes the weights, for errors.
            timeout_s: for each bucket.
            kwargs: of verl's sender.
        """
        super().__init__(**kwargs)
        self._taken = taken
        self._what = what
        self._timeout_s = timeout_s

    def _init_socket(self) -> None:
        super()._init_socket()
        self.socket = _WatchfulSocket(self.socket, self)

    def _cleanup(self) -> None:
        try:
            super()._cleanup()
        except FileNotFoundError:  # a receiver that died took the shared memory with it: why the update failed matters more
            self.shm = None

    def wait(self, socket: zmq.Socket, event: int) -> None:
        """Return as soon as the socket is ready for `event`: to be read (zmq.POLLIN), or written (zmq.POLLOUT), which takes a receiver that has connected.

        Raises:
            RayError: the call that receives failed.
            BackendError: it ended before all had come, or time is up.
        """
        deadline = time.monotonic() + self._timeout_s
        while not socket.poll(POLL_S * 1000, event):
            if ray.wait([self._taken], timeout=0)[0]:
                ray.get(self._taken)
                if not socket.poll(POLL_S * 1000, event):  # its last answer may come after its end
                    raise BackendError.of(self._what, "ended before all weights had come")
            elif time.monotonic() > deadline:
                raise BackendError.of(self._what, f"did not answer within {self._timeout_s:.0f} s", fix="See the log of the rollout server.")


class _WatchfulSocket:
    """A socket of ZeroMQ as far as verl's sender uses one."""

    def __init__(self, socket: zmq.Socket, sender: WatchfulSender) -> None:
        self._socket = socket
        self._sender = sender

    def send_pyobj(self, value: Any) -> None:
        """See `WatchfulSender.wait`."""
        self._sender.wait(self._socket, zmq.POLLOUT)
        self._socket.send_pyobj(value)

    def recv(self) -> bytes:
        """See `WatchfulSender.wait`."""
        self._sender.wait(self._socket, zmq.POLLIN)
        return self._socket.recv()

    def close(self) -> None:
        """What was not sent is not waited for: the context's end would hang on it."""
        self._socket.close(linger=0)
