"""Peers' stores by name."""

from __future__ import annotations

from napmem_rl.config.evaluation_sections import PolicyConfig
from napmem_rl.config.sections import MemoryConfig
from napmem_rl.errors import ConfigError
from napmem_rl.evals.policies.contexts import ContextSource

ADAPTERS = ("mem0",)


def build_store(name: str, policy: PolicyConfig, memory: MemoryConfig) -> ContextSource:
    """The store that stands in the place of the bank. Raises ConfigError where its package is not installed."""
    raise ConfigError.of(f"policy.adapter {name}", "is not available")
