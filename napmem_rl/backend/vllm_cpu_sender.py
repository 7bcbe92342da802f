"""The learners' side of the vLLM rollout server on the CPU: verl's own sender, for one engine process however many learners its replica spans."""

from __future__ import annotations

import dataclasses
from typing import Any

import verl  # noqa: F401  (first: its plugin answers for the name vllm)
from verl.workers.config import HFModelConfig, RolloutConfig
from verl.workers.rollout.utils import ensure_async_iterator
from verl.workers.rollout.vllm_rollout.vllm_rollout import ServerAdapter

BYTES_OF_WEIGHT = 4  # learners keep fp32


def find_largest_weight_bytes(model_config: Any) -> int:
    """Upper bound of the bytes of one weight of a model: the embedding, or a matrix of its MLP with both halves fused."""
    text = model_config.get_text_config()
    widths = [text.vocab_size, 2 * (getattr(text, "intermediate_size", None) or 0)]
    return max(widths) * text.hidden_size * BYTES_OF_WEIGHT


class CPUServerAdapter(ServerAdapter):
    """Sends weights through shared memory in buckets that hold the largest weight. Rank 0 of a replica sends, the others take part in gathering."""

    def __init__(self, config: RolloutConfig, model_config: HFModelConfig, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh, replica_rank)
        engine = self.config.checkpoint_engine
        megabytes = max(engine.update_weights_bucket_megabytes, (find_largest_weight_bytes(self.model_config.hf_config) >> 20) + 1)
        self.config = dataclasses.replace(self.config, checkpoint_engine=dataclasses.replace(engine, update_weights_bucket_megabytes=megabytes))

    async def update_weights(self, weights: Any, global_steps: int | None = None, wire_format: str = "named_tensors", **kwargs: Any) -> None:
        """As verl's. A rank without a server has nobody to send to, but gathering is a collective: it iterates too."""
        if self._has_server:
            await super().update_weights(weights, global_steps=global_steps, wire_format=wire_format, **kwargs)
            return
        async for _ in ensure_async_iterator(weights):
            pass
