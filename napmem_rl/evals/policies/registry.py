"""From the `policy` section of an evaluation recipe to the policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from napmem_rl.config.evaluation_sections import PolicyConfig
from napmem_rl.config.sections import AgentConfig, MemoryConfig
from napmem_rl.evals.policies.model import PolicyModel
from napmem_rl.evals.policy import Policy
from napmem_rl.tools.spec import ToolSpec


def build_policy(
    policy: PolicyConfig,
    *,
    memory: MemoryConfig,
    agent: AgentConfig,
    evidence: Mapping[str, tuple[str, ...]] | None = None,
    functions: Mapping[str, tuple[ToolSpec, ...]] | None = None,
    model: PolicyModel | None = None,
) -> Policy:
    """The policy that a recipe asks for.

    Args:
        policy: who answers, and how it reaches memory.
        memory: `ranking` and `top_k` of the banks that `answer` will be given.
        agent: limits of an episode.
        evidence: task id -> ids of the messages with gold evidence; for access oracle alone.
        functions: task id -> functions that the task itself offers (BFCL-style control tasks); for access navigate and records.
        model: of the engines vllm and transformers, see `napmem_rl.backend.served_policy`; endpoint and extractive need none.

    Raises:
        ConfigError: an unknown access or engine, keys that do not go together, or an endpoint that cannot be used.
    """
    raise NotImplementedError


def describe_policy(policy: PolicyConfig, *, memory: MemoryConfig, agent: AgentConfig) -> tuple[str, dict[str, Any]]:
    """(name in tables, facts that results are stamped with), without building anything. Raises ConfigError as `build_policy` does."""
    raise NotImplementedError
