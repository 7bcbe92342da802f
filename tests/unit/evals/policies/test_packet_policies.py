"""MemChain's policies of an evaluation, as a recipe builds them: real banks, real endpoints of this process, the extractive answer model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bank_maker import save_sample

from napmem_rl.config.evaluation_recipe import load_evaluation_recipe
from napmem_rl.config.evaluation_sections import PacketSections, PolicyConfig
from napmem_rl.config.sections import AgentConfig, AnswererConfig, MemChainConfig, MemoryConfig
from napmem_rl.errors import ConfigError, DataError
from napmem_rl.evals.policies.registry import build_policy, describe_policy
from napmem_rl.evals.policy import Attempt
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.schema import Status, Task
from napmem_rl.systems.memchain.candidate_file import save_candidates
from napmem_rl.systems.memchain.candidates import Candidate

MEMORY = MemoryConfig(encoder="none", ranking="bm25")
TASK = Task(task_id="t", bank_id="ana", question="What bike did I buy, I who like tea?", category="fact", needs_memory=True, asked_at="2024-03-20T10:00:00")
EXTRACTIVE = AnswererConfig(kind="extractive")
PLAN = {"intent": "lookup", "memory_types": ["fact"], "time_scope": "any", "requirement": "what was bought", "evidence_target": 1}
PACKET = {
    "plan": PLAN,
    "trace": [{"role": "answer", "ids": ["msg:3"], "statement": "Ana bought a red bike.", "relation": "none"}],
    "actions": [
        {"action": "REFINE", "ids": ["msg:3"], "rationale": "says it", "statement": "Ana bought a red bike."},
        {"action": "DROP", "ids": ["msg:4"], "rationale": "tea"},
    ],
    "evidence": [{"statement": "Ana bought a red bike.", "ids": ["msg:3"]}],
}
Serve = Callable[..., str]


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    path: Path = tmp_path_factory.mktemp("banks") / "ana"
    save_sample(path)
    return MemoryBank.open(path)


def ask(policy: PolicyConfig, bank: MemoryBank, *tasks: Task, answerer: AnswererConfig = EXTRACTIVE, **memchain: Any) -> list[Attempt]:
    async def use() -> list[Attempt]:
        packets = PacketSections(memchain=MemChainConfig(**memchain), answerer=answerer)
        built = build_policy(policy, memory=MEMORY, agent=AgentConfig(max_turn_tokens=300), packets=packets)
        try:
            return list(await asyncio.gather(*(built.answer(task, bank, seed=7) for task in tasks or (TASK,))))
        finally:
            await built.close()

    return asyncio.run(use())


def endpoint(url: str, **keys: Any) -> PolicyConfig:
    return PolicyConfig(access="packet", engine="endpoint", model="writer", base_url=url, api_key_env="", max_retries=0, **keys)


def answerer_at(url: str, **keys: Any) -> AnswererConfig:
    return AnswererConfig(
        **{"kind": "openai", "model": "reader", "base_url": url, "api_key_env": "", "max_retries": 0, "patience_s": 0.0, "temperature": 0} | keys
    )


def test_a_packet_is_executed_and_answered_from_its_evidence_alone(bank, serve) -> None:
    seen: list[dict] = []
    url = serve(lambda messages: json.dumps(PACKET), usage=(500, 60))
    reader = serve(lambda messages: "a red bike", requests=seen)
    (attempt,) = ask(endpoint(url), bank, answerer=answerer_at(reader))
    assert (attempt.trajectory.status, attempt.trajectory.final_answer) == (Status.COMPLETED, "a red bike")
    assert attempt.context_ids == ("msg:3",) and not attempt.context_ranked
    assert (attempt.prompt_tokens, attempt.completion_tokens) == (500, 60)
    (asked,) = seen
    assert "Evidence:\n- Ana bought a red bike.\n" in asked["messages"][1]["content"] and "I like tea" not in asked["messages"][1]["content"]
    packet = attempt.details["packet"]
    assert "msg:3" in [item["id"] for item in packet["candidates"]] and packet["evidence"][0]["ids"] == ["msg:3"]
    facts = packet["facts"]
    assert (facts["parsed"], facts["asked_again"], facts["actions/REFINE"], facts["actions/DROP"], facts["actions/KEEP"]) == (1, 0, 1, 1, 0)
    assert 0 < facts["evidence_tokens"] < facts["candidate_tokens"]
    assert attempt.latency_s == pytest.approx(facts["retrieval_s"] + facts["packet_s"] + facts["answer_s"], abs=1e-6)
    json.dumps(attempt.details)


def test_what_does_not_parse_is_asked_again_once_with_the_longer_budget(bank, serve) -> None:
    seen: list[dict] = []
    replies = iter(["sorry", json.dumps(PACKET)])
    url = serve(lambda messages: next(replies), requests=seen, usage=(100, 10))
    (attempt,) = ask(endpoint(url), bank)
    assert [request["max_tokens"] for request in seen] == [300, 600] and attempt.trajectory.final_answer == "Ana bought a red bike"
    assert attempt.details["packet"]["facts"]["asked_again"] == 1 and attempt.details["packet"]["first_try"]["text"] == "sorry"
    assert (attempt.prompt_tokens, attempt.completion_tokens) == (200, 20)


def test_two_failures_give_no_answer_which_is_the_policys_doing(bank, serve) -> None:
    seen: list[dict] = []
    (attempt,) = ask(endpoint(serve(lambda messages: "{}", requests=seen)), bank, retry_turn_tokens=1000)
    assert [request["max_tokens"] for request in seen] == [300, 1000]
    assert (attempt.trajectory.status, attempt.trajectory.final_answer) == (Status.ERROR_PARSE, None)
    assert attempt.details["packet"]["evidence_origin"] == "none" and attempt.details["packet"]["facts"]["parsed"] == 0


def test_a_guided_policy_is_bound_to_the_schema_over_its_candidates(bank, serve) -> None:
    seen: list[dict] = []
    url = serve(lambda messages: json.dumps(PACKET), requests=seen)
    ask(endpoint(url), bank, guided=True, ablation="no_plan")
    asked = seen[0]["response_format"]
    assert asked["type"] == "json_schema" and asked["json_schema"]["strict"] is True
    schema = asked["json_schema"]["schema"]
    assert list(schema["properties"]) == ["trace", "actions", "evidence"]
    assert set(schema["properties"]["evidence"]["items"]["properties"]["ids"]["items"]["enum"]) == {"msg:1", "msg:2", "msg:3", "msg:4", "msg:5"}
    ask(endpoint(url), bank)
    assert "response_format" not in seen[-1]


def test_the_extractive_packet_and_all_candidates_need_no_model(bank) -> None:
    (three,) = ask(PolicyConfig(access="packet", engine="extractive", top_k=2), bank)
    (everything,) = ask(PolicyConfig(access="candidates", engine="extractive"), bank)
    assert len(three.context_ids) == 2 and "msg:3" in three.context_ids and three.details["packet"]["facts"]["actions/KEEP"] == 1
    assert set(everything.context_ids) == {"msg:1", "msg:2", "msg:3", "msg:4", "msg:5"}
    assert everything.details["packet"]["evidence_origin"] == "candidates" and "parsed" not in everything.details["packet"]["facts"]
    for attempt in (three, everything):
        assert attempt.trajectory.final_answer == "I like tea", "the reader points at words of the evidence"
        assert attempt.details["packet"]["evidence"][0]["statement"].startswith("2024-03-0")


def test_candidates_of_a_file_stand_in_for_retrieval(bank, tmp_path) -> None:
    save_candidates(tmp_path / "c.jsonl", {"t": [Candidate(id="w:1", text="Ana bought a blue bike.", source_ids=("msg:3", "msg:9"))]})
    (attempt,) = ask(PolicyConfig(access="candidates", engine="extractive"), bank, candidates=str(tmp_path / "c.jsonl"))
    assert attempt.context_ids == ("msg:3",) and "blue bike" in attempt.trajectory.final_answer
    with pytest.raises(DataError, match="do not have a task"):
        ask(PolicyConfig(access="candidates", engine="extractive"), bank, replace(TASK, task_id="other"), candidates=str(tmp_path / "c.jsonl"))


def test_nothing_said_yet_is_no_evidence_and_no_answer(bank) -> None:
    early = replace(TASK, asked_at="2024-01-01T00:00:00")
    for policy in (PolicyConfig(access="candidates", engine="extractive"), PolicyConfig(access="packet", engine="extractive")):
        (attempt,) = ask(policy, bank, early)
        assert (attempt.trajectory.status, attempt.trajectory.final_answer) == (Status.ERROR_PARSE, None)


def test_an_engine_and_an_answer_model_that_are_down_are_failures_of_ours(bank, serve) -> None:
    (attempt,) = ask(endpoint("http://127.0.0.1:9/v1"), bank)
    assert attempt.trajectory.status is Status.ERROR_LLM and attempt.trajectory.final_answer is None
    url = serve(lambda messages: json.dumps(PACKET))
    (attempt,) = ask(endpoint(url), bank, answerer=answerer_at("http://127.0.0.1:9/v1"))
    assert attempt.trajectory.status is Status.ERROR_LLM and "answer model reader" in attempt.trajectory.detail
    assert attempt.trajectory.turns[0].text == json.dumps(PACKET), "what the policy wrote is not lost with it"


def test_options_are_answered_by_their_letter(bank, serve) -> None:
    url, reader = serve(lambda messages: json.dumps(PACKET)), serve(lambda messages: "B. a red bike")
    (attempt,) = ask(endpoint(url), bank, replace(TASK, options=("a boat", "a red bike")), answerer=answerer_at(reader))
    assert attempt.trajectory.final_answer == "B"


@pytest.mark.parametrize(
    ("policy", "memchain", "answerer", "said"),
    [
        ({"access": "candidates", "engine": "vllm", "model": "m"}, {}, {}, "policy.engine: would be asked for nothing"),
        ({"access": "packet", "engine": "transformers", "model": "m"}, {"guided": True}, {}, "samples without a grammar"),
        ({"access": "packet", "engine": "extractive"}, {"guided": True}, {}, "memchain.guided: would do nothing"),
        ({"access": "packet", "engine": "extractive"}, {"ablation": "no_plan"}, {}, "memchain.ablation: would do nothing"),
        ({"access": "packet", "engine": "endpoint", "model": "m"}, {"ablation": "no_idea"}, {}, "is none of the ablations"),
        ({"access": "packet", "engine": "endpoint", "model": "m"}, {"max_candidates": 25}, {}, "Set 1 to 24"),
        ({"access": "packet", "engine": "endpoint", "model": "m"}, {"retry_turn_tokens": -1}, {}, "is negative"),
        ({"access": "packet", "engine": "endpoint", "model": "m"}, {}, {"kind": "openai"}, "answerer.model: is missing"),
        ({"access": "packet", "engine": "endpoint", "model": "m"}, {}, {"kind": "served"}, "is no answer model of an evaluation"),
        ({"access": "packet", "engine": "extractive", "top_k": 0}, {}, {}, "policy.top_k: is too small"),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_key(policy, memchain, answerer, said: str) -> None:
    packets = PacketSections(memchain=MemChainConfig(**memchain), answerer=AnswererConfig(**{"kind": "extractive"} | answerer))
    with pytest.raises(ConfigError, match=said):
        describe_policy(PolicyConfig(**policy), memory=MEMORY, agent=AgentConfig(), packets=packets)


def test_shipped_recipes_load_and_idle_sections_are_refused() -> None:
    recipe = load_evaluation_recipe("memchain", ["policy.model=m", "answerer.model=f"])
    assert (recipe.policy.access, recipe.packets.answerer.temperature, recipe.agent.max_turn_tokens) == ("packet", 0, 2048)
    assert load_evaluation_recipe("memchain_extractive", ["answerer.kind=extractive"]).policy.top_k == 3
    assert load_evaluation_recipe("memchain_candidates", ["answerer.kind=worlds"]).policy.access == "candidates"
    with pytest.raises(ConfigError, match="would do nothing beside policy.access none"):
        load_evaluation_recipe("no_memory", ["policy.model=m", "memchain.guided=true"])
    with pytest.raises(ConfigError, match="an evaluation pays no reward"):
        load_evaluation_recipe("memchain", ["policy.model=m", "answerer.model=f", "memchain.invalid_actions=zero"])


def test_a_run_of_memchain_brings_its_packets_form_along(tmp_path) -> None:
    (tmp_path / "resolved.yaml").write_text(
        "napmem: {system: memchain, agent: {max_turn_tokens: 144}, memory: {encoder: hashing, banks: x},"
        " memchain: {ablation: no_trace, max_candidates: 6, num_answers: 2, invalid_actions: soft}, answerer: {kind: worlds}}\n"
    )
    recipe = load_evaluation_recipe(str(tmp_path))
    assert (recipe.policy.access, recipe.memchain.ablation, recipe.memchain.max_candidates, recipe.answerer.kind) == ("packet", "no_trace", 6, "worlds")
    assert (recipe.agent.max_turn_tokens, recipe.memchain.num_answers) == (144, 4)
