"""What a `policy` section of an evaluation may not say: unknown names, keys that do not go together, and keys that would do nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from napmem_rl.config.evaluation_sections import ACCESSES, ADAPTERS, ENGINES, NAVIGATING, PolicyConfig
from napmem_rl.errors import ConfigError

_NO_MODEL = "Give policy.model=NAME (and policy.base_url=URL), a checkpoint with policy.engine=vllm, or policy.engine=extractive, which needs none."


def check_policy(policy: PolicyConfig, where: str = "") -> None:
    """Refuse a policy that cannot run.

    Args:
        policy: the section.
        where: how an error names its place, e.g. ``"recipe mine.yaml"``.

    Raises:
        ConfigError: it names the key, and of an unknown name the nearest.
    """
    place = f"{where}, key policy" if where else "policy"
    _check_names(policy, place)
    for is_wrong, name, problem, fix in _list_refusals(policy):
        if is_wrong:
            raise ConfigError.of(f"{place}.{name}", problem, got=getattr(policy, name), fix=fix)


def _check_names(policy: PolicyConfig, place: str) -> None:
    for name, value, known in (("access", policy.access, ACCESSES), ("engine", policy.engine, ENGINES), ("adapter", policy.adapter, ADAPTERS)):
        if value is not None and value not in known:
            near = difflib.get_close_matches(value, known, n=1)
            fix = f"Did you mean {near[0]}?" if near else None
            raise ConfigError.of(f"{place}.{name}", "is unknown", got=value, expected=", ".join(known), fix=fix)


def _list_refusals(policy: PolicyConfig) -> Iterable[tuple[bool, str, str, str]]:
    """(whether it is wrong, the key, what is wrong, what to do)."""
    is_extractive, is_endpoint, is_passive = policy.engine == "extractive", policy.engine == "endpoint", policy.access == "passive"
    return (
        (is_extractive and policy.access in NAVIGATING, "engine", "cannot call tools", "Use it with access none, full, passive or oracle."),
        (is_extractive and policy.model is not None, "model", "would do nothing: the extractive reader has no model", "Remove it."),
        (not is_extractive and not policy.model, "model", f"is missing, and engine {policy.engine} needs one", _NO_MODEL),
        (not is_endpoint and policy.base_url is not None, "base_url", "would do nothing: the engine is no endpoint", "Remove it."),
        (not is_endpoint and policy.cache_dir is not None, "cache_dir", "would do nothing: only replies of endpoints are kept", "Remove it."),
        (not policy.upper_levels and policy.access != "navigate", "upper_levels", "would do nothing beside this access", "Set access navigate."),
        (policy.adapter is not None and not is_passive, "adapter", "would do nothing beside this access", "Set access passive."),
        (is_passive and policy.top_k < 1, "top_k", "is too small", "Set 1 or more."),
        (policy.max_context_tokens < 256, "max_context_tokens", "does not hold a question", "Set 256 or more."),
        (policy.max_answer_tokens < 1, "max_answer_tokens", "is too small", "Set 1 or more."),
    )
