"""verl's FSDP2 engines on the CPU platform.

verl offloads the parameters of a forward-only model (the reference) with ``CPUOffloadPolicy(pin_memory=True)``. Without an accelerator there is nothing to
offload from and torch raises on pinned memory, so the module is wrapped as a trainable one would be: the same shards, the same forward.
"""

from __future__ import annotations

import copy

import torch
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead

from napmem_rl.errors import ConfigError
from napmem_rl.platforms.cpu import PLATFORM_NAME

STRATEGY = "fsdp2"


class _NoOffload:
    """Mixin over a verl FSDP engine: builds the module without an offload policy."""

    def _build_fsdp_module(self, module: torch.nn.Module) -> torch.nn.Module:
        """Wrap `module` under FSDP2.

        Raises:
            ConfigError: the recipe asks for FSDP2's offload policy, which has no meaning on a CPU.
        """
        asked = self.engine_config
        if asked.offload_policy:
            raise ConfigError.of("fsdp_config.offload_policy", "does nothing on the CPU platform", got=True, expected="false", fix="Remove it from the recipe.")
        self.engine_config = copy.copy(asked)
        object.__setattr__(self.engine_config, "forward_only", False)
        try:
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config = asked
            self._is_offload_param = self._is_offload_optimizer = False


class CPUEngineWithLMHead(_NoOffload, FSDPEngineWithLMHead):
    """Policy and reference."""


class CPUEngineWithValueHead(_NoOffload, FSDPEngineWithValueHead):
    """Critic."""


def register_engines() -> None:
    """Enter the engines in verl's registry, once per process."""
    for model_type, engine in (("language_model", CPUEngineWithLMHead), ("value_model", CPUEngineWithValueHead)):
        if PLATFORM_NAME not in EngineRegistry._engines[model_type][STRATEGY]:
            EngineRegistry.register(model_type=model_type, backend=STRATEGY, device=PLATFORM_NAME)(engine)
