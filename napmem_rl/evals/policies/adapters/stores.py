"""Peers' stores by name."""

from __future__ import annotations

from napmem_rl.config.evaluation_sections import PolicyConfig
from napmem_rl.config.sections import MemoryConfig
from napmem_rl.evals.policies.adapters.mem0 import build_mem0
from napmem_rl.evals.policies.contexts import ContextSource


def build_store(name: str, policy: PolicyConfig, memory: MemoryConfig) -> ContextSource:
    """The store that stands in the place of the bank.

    Raises:
        ConfigError: its package is not installed, or it needs what the recipe does not give.
    """
    return build_mem0(name, policy, memory)
