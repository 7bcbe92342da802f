"""From the `policy` section of an evaluation recipe to the policy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from napmem_rl.config.evaluation_sections import NAVIGATING, PACKETS, SEARCHING, SERVED, PacketSections, PolicyConfig
from napmem_rl.config.policy_refusals import check_packets, check_policy
from napmem_rl.config.sections import AgentConfig, MemChainConfig, MemoryConfig
from napmem_rl.errors import ConfigError
from napmem_rl.evals.policies.adapters.stores import build_store
from napmem_rl.evals.policies.answerers import build_answerer, describe_answerer
from napmem_rl.evals.policies.contexts import ContextSource, FullContext, NoContext, OracleContext, SearchContext
from napmem_rl.evals.policies.endpoint import EndpointModel
from napmem_rl.evals.policies.extractive import VERSION, ExtractiveReader
from napmem_rl.evals.policies.model import PolicyModel
from napmem_rl.evals.policies.navigator import Navigator, choose_tools
from napmem_rl.evals.policies.packets import CandidateFinder, EverythingWriter, ModelWriter, PacketPolicy, RuleWriter, Writer
from napmem_rl.evals.policies.passive import PassivePolicy
from napmem_rl.evals.policies.prompts import PROMPT_VERSION
from napmem_rl.evals.policies.readers import ModelReader, Reader
from napmem_rl.evals.policies.topics import TopicContext
from napmem_rl.evals.policy import Policy
from napmem_rl.systems.memchain import prompts as packet_prompts
from napmem_rl.systems.napmem import prompts as episode_prompts
from napmem_rl.tools.spec import ToolSpec

_LIMITS = (
    "tool_format", "max_tool_steps", "max_calls_per_turn", "max_turn_tokens", "max_context_tokens", "max_result_tokens", "max_episode_tool_tokens",
    "system_prompt",
)  # fmt: skip


def build_policy(
    policy: PolicyConfig,
    *,
    memory: MemoryConfig,
    agent: AgentConfig,
    evidence: Mapping[str, tuple[str, ...]] | None = None,
    functions: Mapping[str, tuple[ToolSpec, ...]] | None = None,
    model: PolicyModel | None = None,
    packets: PacketSections | None = None,
) -> Policy:
    """The policy that a recipe asks for.

    Args:
        policy: who answers, and how it reaches memory.
        memory: `ranking` and `top_k` of the banks that `answer` will be given.
        agent: limits of an episode.
        evidence: task id -> ids of the messages with gold evidence; for access oracle alone.
        functions: task id -> functions that the task itself offers (BFCL-style control tasks); for access navigate and records.
        model: of the engines vllm and transformers, see `napmem_rl.backend.served_policy`; endpoint and extractive need none.
        packets: MemChain's sections; for access packet and candidates.

    Raises:
        ConfigError: an unknown access or engine, keys that do not go together, or an endpoint that cannot be used.
    """
    name, facts = describe_policy(policy, memory=memory, agent=agent, packets=packets)
    if policy.access == "oracle" and evidence is None:
        raise ConfigError.of("policy.access oracle", "was given no evidence", fix="Evaluate it on a benchmark whose keys name gold messages.")
    if policy.engine in SERVED and model is None:
        raise ConfigError.of(f"policy.engine {policy.engine}", "has no model", fix="Build it with napmem_rl.backend.served_policy.build_any_policy.")
    if policy.engine == "endpoint":
        model = EndpointModel(policy)
    facts |= model.facts if model is not None else {}
    if policy.access in PACKETS:
        assert packets is not None, "build_policy: describe_policy checks it"
        finder, answerer = CandidateFinder(packets.memchain), build_answerer(packets.answerer)
        return PacketPolicy(finder, _build_writer(policy, agent, packets.memchain, model), answerer, name=name, facts=facts)
    if policy.access in NAVIGATING:
        assert model is not None, "build_policy: an engine without a model does not navigate"
        tools = choose_tools(policy.access, upper_levels=policy.upper_levels)
        return Navigator(model, agent=agent, top_k=memory.top_k, tools=tools, functions=functions, name=name, facts=facts)
    return PassivePolicy(_build_source(policy, memory, evidence), _build_reader(policy, model), name=name, facts=facts)


def describe_policy(
    policy: PolicyConfig, *, memory: MemoryConfig, agent: AgentConfig, packets: PacketSections | None = None
) -> tuple[str, dict[str, Any]]:
    """(name in tables, facts that results are stamped with), without building anything.

    Raises:
        ConfigError: an unknown access or engine, or keys that do not go together.
    """
    check_policy(policy)
    if policy.access in PACKETS:
        if packets is None:
            raise ConfigError.of(f"policy.access {policy.access}", "was given no sections memchain and answerer", fix="Pass `packets`.")
        check_packets(policy, packets)
        return policy.name or _compose_name(policy, memory), _describe_packets(policy, memory, agent, packets)
    facts: dict[str, Any] = {"access": policy.access, "engine": policy.engine, "model": policy.model, "prompt": _find_prompt_version(policy)}
    if policy.engine != "extractive":
        facts |= {"temperature": policy.temperature, "top_p": policy.top_p}
    if policy.access in SEARCHING or policy.access in NAVIGATING:
        facts |= {"ranking": memory.ranking, "encoder": memory.encoder}
    if policy.access in NAVIGATING:
        facts |= {"tools": [tool.name for tool in choose_tools(policy.access, upper_levels=policy.upper_levels)], "top_k": memory.top_k}
        facts |= {limit: getattr(agent, limit) for limit in _LIMITS}
    else:
        facts |= {"max_context_tokens": policy.max_context_tokens}
        facts |= {} if policy.engine == "extractive" else {"max_answer_tokens": policy.max_answer_tokens}
    if policy.access == "passive":
        facts |= {"top_k": policy.top_k, "adapter": policy.adapter}
    if policy.access == "topics":
        facts |= {"top_k": policy.top_k, "is_reranked": memory.rerank is not None}
    return policy.name or _compose_name(policy, memory), facts


def _compose_name(policy: PolicyConfig, memory: MemoryConfig) -> str:
    """E.g. "passive rrf top 20, SmolLM2"."""
    how = {
        "navigate": "navigate" if policy.upper_levels else "navigate without upper levels",
        "none": "no memory",
        "full": "full context",
        "passive": f"passive {policy.adapter or memory.ranking} top {policy.top_k}",
        "topics": f"topic memories {memory.ranking}{' reranked' if memory.rerank else ''} top {policy.top_k}",
        "records": "records only",
        "oracle": "oracle evidence",
        "packet": f"extractive packet of {policy.top_k}" if policy.engine == "extractive" else "packet",
        "candidates": "all candidates",
    }[policy.access]
    if policy.access in PACKETS and policy.engine == "extractive":
        return how
    return f"{how}, {_name_model(policy)}"


def _name_model(policy: PolicyConfig) -> str:
    """The last part of a model's path; of a checkpoint of a run the run's name too."""
    if policy.model is None:
        return policy.engine
    parts = PurePath(policy.model).parts
    return "/".join(parts[-2:]) if parts and parts[-1].startswith("global_step_") else PurePath(policy.model).name


def _describe_packets(policy: PolicyConfig, memory: MemoryConfig, agent: AgentConfig, packets: PacketSections) -> dict[str, Any]:
    memchain = packets.memchain
    facts: dict[str, Any] = {"access": policy.access, "engine": policy.engine, "model": policy.model, "encoder": memory.encoder}
    facts |= {"max_candidates": memchain.max_candidates, "candidates": memchain.candidates}
    if policy.engine != "extractive":
        facts |= {"prompt": packet_prompts.PROMPT_VERSION, "temperature": policy.temperature, "top_p": policy.top_p}
        facts |= {"ablation": memchain.ablation, "guided": memchain.guided, "max_turn_tokens": agent.max_turn_tokens}
        facts |= {"retry_turn_tokens": memchain.retry_turn_tokens or 2 * agent.max_turn_tokens, "max_context_tokens": agent.max_context_tokens}
    elif policy.access == "packet":
        facts |= {"top_k": policy.top_k}
    return facts | describe_answerer(packets.answerer)


def _build_writer(policy: PolicyConfig, agent: AgentConfig, memchain: MemChainConfig, model: PolicyModel | None) -> Writer:
    if policy.access == "candidates":
        return EverythingWriter()
    return RuleWriter(number=policy.top_k) if model is None else ModelWriter(model, agent=agent, memchain=memchain)


def _find_prompt_version(policy: PolicyConfig) -> str:
    if policy.access in NAVIGATING:
        return episode_prompts.PROMPT_VERSION
    return VERSION if policy.engine == "extractive" else PROMPT_VERSION


def _build_source(policy: PolicyConfig, memory: MemoryConfig, evidence: Mapping[str, tuple[str, ...]] | None) -> ContextSource:
    if policy.adapter is not None:
        return build_store(policy.adapter, policy, memory)
    if policy.access == "passive":
        return SearchContext(top_k=policy.top_k)
    if policy.access == "topics":
        return TopicContext(top_k=policy.top_k)
    return OracleContext(evidence or {}) if policy.access == "oracle" else FullContext() if policy.access == "full" else NoContext()


def _build_reader(policy: PolicyConfig, model: PolicyModel | None) -> Reader:
    if model is None:
        return ExtractiveReader(max_context_tokens=policy.max_context_tokens)
    return ModelReader(model, max_context_tokens=policy.max_context_tokens, max_answer_tokens=policy.max_answer_tokens)
