"""Whoever answers `napmem ask` and `napmem chat`: the policy of an evaluation recipe, with the engine that it needs and the search that it was trained with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from napmem_rl.backend.bank_search import build_search
from napmem_rl.config.evaluation_recipe import EvaluationRecipe, load_evaluation_recipe
from napmem_rl.config.evaluation_sections import NAVIGATING, SERVED
from napmem_rl.errors import ConfigError
from napmem_rl.evals.policies.registry import build_policy
from napmem_rl.evals.policy import Policy
from napmem_rl.retrieval.encoder import load_encoder

ENGINE_DIR = Path("runs", "ask")  # merged checkpoints and logs of servers
ASKABLE = (*NAVIGATING, "passive", "full", "none")
_WORDS_ALONE = ("memory.encoder=none", "memory.ranking=bm25")


@dataclass(frozen=True, kw_only=True, slots=True)
class AskedPolicy:
    """A policy that is ready; `search` is what `MemoryBank.open` takes. `looks_up`: it calls the memory tools itself."""

    policy: Policy
    search: dict[str, Any]
    looks_up: bool


def choose_recipe(source: str | None, *, model: str | None, base_url: str | None, api_key_env: str | None, overrides: Sequence[str]) -> EvaluationRecipe:
    """The recipe of whoever is to answer.

    Args:
        source: a recipe, the name of one that ships, or a directory with a checkpoint; None: the endpoint that is named, else words picked out of what one
            search finds, which needs no model.
        model, base_url, api_key_env: an OpenAI-compatible endpoint.
        overrides: key=value; they win.

    Raises:
        ConfigError: see `load_evaluation_recipe`, an endpoint beside a checkpoint, or a policy that only makes sense in an evaluation.
    """
    is_directory = source is not None and Path(source).expanduser().is_dir()
    named = {"model": model, "base_url": base_url, "api_key_env": api_key_env}
    endpoint = [f"policy.{key}={value!r}" for key, value in named.items() if value is not None]
    if is_directory and endpoint:
        fix = "Give the directory, or --model with --base-url."
        raise ConfigError.of(f"policy {source}", "is a directory, which is served here; an endpoint beside it would do nothing", fix=fix)
    if is_directory:
        defaults = ["policy.engine=transformers"]  # starts in seconds; policy.engine=vllm is worth its start for a long conversation on a GPU
    elif endpoint:
        source = source or "navigate"
        defaults = ["policy.engine=endpoint", *_WORDS_ALONE, *endpoint]
    else:
        defaults = [*_WORDS_ALONE, "policy.engine=extractive"] if source is None else []
        source = source or "passive_bm25"
    recipe = load_evaluation_recipe(source, [*defaults, *overrides])
    access = recipe.policy.access
    if access not in ASKABLE:
        why = "needs gold evidence, which only a benchmark has" if access == "oracle" else "is for evaluations alone"
        raise ConfigError.of(f"policy.access {access}", why, expected=", ".join(ASKABLE))
    return recipe


@contextmanager
def open_policy(recipe: EvaluationRecipe, *, directory: Path = ENGINE_DIR) -> Iterator[AskedPolicy]:
    """Start what the policy needs; the caller closes `policy` within its event loop.

    Raises:
        ConfigError, BackendError, CheckpointError: it cannot be served.
    """
    needs_vectors = recipe.memory.ranking != "bm25" and recipe.memory.encoder != "none"
    encoder = load_encoder(recipe.memory.encoder, device=recipe.memory.encoder_device) if needs_vectors else None
    given = {"memory": recipe.memory, "agent": recipe.agent}
    with ExitStack() as stack:
        if recipe.policy.engine in SERVED:
            from napmem_rl.backend.served_policy import build_any_policy, serve_engine  # imports what takes seconds

            engine = stack.enter_context(serve_engine(recipe.policy, agent=recipe.agent, directory=directory, max_concurrency=1))
            policy = build_any_policy(recipe.policy, engine=engine, **given)
        else:
            policy = build_policy(recipe.policy, **given)
        yield AskedPolicy(policy=policy, search=build_search(recipe.memory, encoder), looks_up=recipe.policy.access in NAVIGATING)
