"""Checkpoints as policies of an evaluation, served here by vLLM or by the transformers engine.

One process starts the engine (`serve_engine`), any number of workers ask it (`build_any_policy`)::

    with serve_engine(recipe.policy, agent=recipe.agent, directory=out / "engine") as engine:   # None where nothing is to be served
        policy = build_any_policy(recipe.policy, memory=recipe.memory, agent=recipe.agent, evidence=evidence, engine=engine)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from napmem_rl.config.evaluation_sections import PolicyConfig
from napmem_rl.config.sections import AgentConfig, MemoryConfig
from napmem_rl.evals.policy import Policy
from napmem_rl.tools.spec import ToolSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineAddress:
    """Where a checkpoint is served; picklable. `base_url` is None for the transformers engine, which every worker loads for itself."""

    model: str  # HuggingFace directory, of a verl checkpoint its merged copy
    model_hash: str  # SHA-256 over names and contents of its files
    base_url: str | None


@contextmanager
def serve_engine(policy: PolicyConfig, *, agent: AgentConfig, directory: Path) -> Iterator[EngineAddress | None]:
    """Make the checkpoint ready, start vLLM where it is asked for, and end it on leaving.

    Args:
        policy: `engine` and `model`; for endpoint and extractive nothing is started and None is given.
        agent: its context limits size the server.
        directory: for the server's log and a merged checkpoint.

    Raises:
        ConfigError: no such checkpoint, or the engine cannot serve it.
        BackendError: the server did not come up in time; the message holds the end of its log.
    """
    raise NotImplementedError
    yield None


def build_any_policy(
    policy: PolicyConfig,
    *,
    memory: MemoryConfig,
    agent: AgentConfig,
    evidence: Mapping[str, tuple[str, ...]] | None = None,
    functions: Mapping[str, tuple[ToolSpec, ...]] | None = None,
    engine: EngineAddress | None = None,
) -> Policy:
    """`napmem_rl.evals.policies.registry.build_policy` for every engine; `engine` is what `serve_engine` gave."""
    raise NotImplementedError
