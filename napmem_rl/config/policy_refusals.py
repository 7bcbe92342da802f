"""What a `policy` section of an evaluation may not say: unknown names, keys that do not go together, and keys that would do nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from napmem_rl.config.evaluation_sections import ACCESSES, ADAPTERS, ENGINES, NAVIGATING, SEARCHING, PacketSections, PolicyConfig
from napmem_rl.config.sections import PACKET_ABLATIONS, AnswererConfig, MemChainConfig
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


def check_packets(policy: PolicyConfig, packets: PacketSections, where: str = "") -> None:
    """Refuse sections `memchain` and `answerer` that cannot be used with a policy of access packet or candidates.

    Raises:
        ConfigError: it names the key.
    """
    for is_wrong, section, name, problem, fix in (*_list_packet_refusals(policy, packets.memchain), *_list_answerer_refusals(packets.answerer)):
        if is_wrong:
            place = f"{where}, key {section}.{name}" if where else f"{section}.{name}"
            raise ConfigError.of(place, problem, got=getattr(getattr(packets, section), name), fix=fix)


def _list_packet_refusals(policy: PolicyConfig, memchain: MemChainConfig) -> Iterable[tuple[bool, str, str, str, str]]:
    """(whether it is wrong, section, key, what is wrong, what to do)."""
    is_written = policy.access == "packet" and policy.engine != "extractive"
    no_model = "would do nothing: no model writes a packet"
    return (
        (memchain.ablation not in PACKET_ABLATIONS, "memchain", "ablation", "is none of the ablations", f"Set one of {', '.join(PACKET_ABLATIONS)}."),
        (not 1 <= memchain.max_candidates <= 24, "memchain", "max_candidates", "is out of range", "Set 1 to 24."),
        (memchain.retry_turn_tokens < 0, "memchain", "retry_turn_tokens", "is negative", "Set 0 for twice agent.max_turn_tokens, or more."),
        (memchain.guided and not is_written, "memchain", "guided", no_model, "Remove it."),
        (
            memchain.guided and policy.engine == "transformers",
            "memchain",
            "guided",
            "cannot be had from the transformers engine, which samples without a grammar",
            "Set policy.engine=vllm, or an endpoint that takes a JSON schema as response_format.",
        ),
        (memchain.ablation != "none" and not is_written, "memchain", "ablation", no_model, "Remove it."),
    )


def _list_answerer_refusals(answerer: AnswererConfig) -> Iterable[tuple[bool, str, str, str, str]]:
    """(whether it is wrong, section, key, what is wrong, what to do)."""
    is_endpoint = answerer.kind == "openai"
    known = ("openai", "worlds", "extractive")
    refusals = [
        (answerer.kind not in known, "answerer", "kind", "is no answer model of an evaluation", f"Set one of {', '.join(known)}."),
        (is_endpoint and not answerer.model, "answerer", "model", "is missing, and it is who answers", "Give answerer.model=NAME and answerer.base_url=URL."),
    ]
    for name in ("timeout_s", "max_tokens", "max_concurrency"):
        refusals.append((getattr(answerer, name) <= 0, "answerer", name, "is not positive", "Set more than 0."))
    for name in ("max_retries", "patience_s", "temperature"):
        refusals.append((getattr(answerer, name) < 0, "answerer", name, "is negative", "Set 0 or more."))
    return refusals


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
        (is_extractive and policy.access in NAVIGATING, "engine", "cannot call tools", "Use it with an access without tools."),
        (is_extractive and policy.model is not None, "model", "would do nothing: the extractive reader has no model", "Remove it."),
        (not is_extractive and policy.access == "candidates", "engine", "would be asked for nothing: every candidate is evidence", "Set engine extractive."),
        (not is_extractive and not policy.model, "model", f"is missing, and engine {policy.engine} needs one", _NO_MODEL),
        (not is_endpoint and policy.base_url is not None, "base_url", "would do nothing: the engine is no endpoint", "Remove it."),
        (not is_endpoint and policy.cache_dir is not None, "cache_dir", "would do nothing: only replies of endpoints are kept", "Remove it."),
        (not policy.upper_levels and policy.access != "navigate", "upper_levels", "would do nothing beside this access", "Set access navigate."),
        (policy.adapter is not None and not is_passive, "adapter", "would do nothing beside this access", "Set access passive."),
        (policy.access in (*SEARCHING, "packet") and policy.top_k < 1, "top_k", "is too small", "Set 1 or more."),
        (policy.max_context_tokens < 256, "max_context_tokens", "does not hold a question", "Set 256 or more."),
        (policy.max_answer_tokens < 1, "max_answer_tokens", "is too small", "Set 1 or more."),
    )
