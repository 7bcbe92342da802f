"""Whole policies as a recipe builds them, against an endpoint of this process and a real bank."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bank_maker import save_sample

from napmem_rl.config.evaluation_sections import PolicyConfig
from napmem_rl.config.sections import AgentConfig, MemoryConfig
from napmem_rl.errors import ConfigError, DataError
from napmem_rl.evals.policies.registry import build_policy, describe_policy
from napmem_rl.evals.policy import Attempt
from napmem_rl.evals.trajectory_rows import read_trajectory, render_trajectory
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.schema import Status, Task
from napmem_rl.tools.spec import ToolSpec

MEMORY = MemoryConfig(encoder="none", ranking="bm25")
TASK = Task(task_id="t", bank_id="ana", question="What kind of bike did I buy?", category="c", needs_memory=True, asked_at="2024-03-20T10:00:00")
Serve = Callable[..., str]


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    path: Path = tmp_path_factory.mktemp("banks") / "ana"
    save_sample(path)
    return MemoryBank.open(path, ranking="bm25")


def answer(policy: PolicyConfig, bank: MemoryBank, task: Task = TASK, **keys: Any) -> Attempt:
    async def use() -> Attempt:
        built = build_policy(policy, memory=MEMORY, agent=keys.pop("agent", AgentConfig()), **keys)
        try:
            return await built.answer(task, bank, seed=7)
        finally:
            await built.close()

    return asyncio.run(use())


def endpoint(url: str, access: str, **changes: Any) -> PolicyConfig:
    return PolicyConfig(access=access, model="m", base_url=url, api_key_env="", max_retries=0, **changes)


def as_call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def test_a_passive_answer_rests_on_what_the_search_found_and_knows_its_cost(bank: MemoryBank, serve: Serve) -> None:
    asked: list[list[dict[str, Any]]] = []
    url = serve(lambda messages: asked.append(messages) or "a red bike", usage=(120, 4))
    attempt = answer(endpoint(url, "passive", top_k=1), bank)
    assert (attempt.trajectory.final_answer, attempt.context_ids, attempt.context_ranked) == ("a red bike", ("msg:3",), True)
    assert (attempt.prompt_tokens, attempt.completion_tokens) == (120, 4) and 0 < attempt.retrieval_s <= attempt.latency_s
    assert "I bought a red bike." in asked[0][1]["content"] and "Oslo" not in asked[0][1]["content"]


def test_without_memory_nothing_of_the_bank_is_sent(bank: MemoryBank, serve: Serve) -> None:
    asked: list[list[dict[str, Any]]] = []
    attempt = answer(endpoint(serve(lambda messages: asked.append(messages) or "not mentioned"), "none"), bank)
    assert attempt.context_ids == () and "red" not in json.dumps(asked)
    assert attempt.prompt_tokens is None and attempt.completion_tokens is None  # the endpoint did not say


def test_the_full_context_is_cut_from_the_old_end_and_says_so(bank: MemoryBank, serve: Serve) -> None:
    attempt = answer(endpoint(serve(lambda messages: "x"), "full"), bank)
    assert attempt.context_ids == ("msg:5", "msg:4", "msg:3", "msg:2", "msg:1") and attempt.trajectory.detail == ""
    small = answer(endpoint(serve(lambda messages: "x"), "full", max_context_tokens=290), bank)
    assert 0 < len(small.context_ids) < 5 and small.context_ids[0] == "msg:5" and "left out: context limit" in small.trajectory.detail


def test_better_evidence_gives_the_extractive_reader_a_better_answer_and_none_without_any(bank: MemoryBank) -> None:
    evidence = {"t": ("msg:3",)}
    answers = {access: answer(PolicyConfig(access=access, engine="extractive"), bank, evidence=evidence) for access in ("none", "passive", "full", "oracle")}
    assert answers["none"].trajectory.final_answer == "not mentioned"
    assert "red" in (answers["oracle"].trajectory.final_answer or "") and answers["oracle"].context_ids == ("msg:3",)
    assert all("red" in (answers[access].trajectory.final_answer or "") for access in ("passive", "full"))
    row = render_trajectory(answers["oracle"].trajectory, with_token_ids=True)
    assert read_trajectory(json.loads(json.dumps(row))).final_answer == answers["oracle"].trajectory.final_answer


def test_an_endpoint_that_fails_is_an_attempt_of_ours_and_never_an_answer(bank: MemoryBank) -> None:
    attempt = answer(endpoint("http://127.0.0.1:9/v1", "passive"), bank)
    assert attempt.trajectory.status is Status.ERROR_LLM and attempt.trajectory.final_answer is None and attempt.completion_tokens is None


def test_a_search_that_breaks_is_a_failure_of_the_tool(bank: MemoryBank) -> None:
    class Broken:
        def search_messages(self, *args: Any, **keys: Any) -> list[Any]:
            raise OSError("index is gone")

    attempt = answer(PolicyConfig(access="passive", engine="extractive"), Broken())  # type: ignore[arg-type]
    assert attempt.trajectory.status is Status.ERROR_TOOL and "index is gone" in attempt.trajectory.detail


def test_a_navigator_reads_through_tools_and_its_context_is_what_they_showed(bank: MemoryBank, serve: Serve) -> None:
    def reply(messages: list[dict[str, Any]]) -> str:
        return "<answer>red</answer>" if messages[-1]["role"] == "tool" else as_call("search_records", query="bike")

    attempt = answer(endpoint(serve(reply, usage=(100, 10)), "navigate"), bank)
    assert (attempt.trajectory.status, attempt.trajectory.final_answer) == (Status.COMPLETED, "red")
    assert attempt.context_ids[0] == "msg:3" and not attempt.context_ranked
    assert (attempt.prompt_tokens, attempt.completion_tokens) == (200, 20) and attempt.retrieval_s > 0


@pytest.mark.parametrize(("access", "upper_levels", "absent"), [("records", True, "search_conversation"), ("navigate", False, "read_file")])
def test_a_navigator_over_fewer_tools_neither_hears_of_the_others_nor_can_call_them(
    bank: MemoryBank, serve: Serve, access: str, upper_levels: bool, absent: str
) -> None:
    asked: list[list[dict[str, Any]]] = []
    arguments = {"file_name": "life.md"} if absent == "read_file" else {"query": "bike"}
    url = serve(lambda messages: asked.append(messages) or as_call(absent, **arguments))
    attempt = answer(endpoint(url, access, upper_levels=upper_levels), bank)
    assert attempt.trajectory.status is Status.ERROR_PARSE and absent in attempt.trajectory.detail
    assert absent not in asked[0][0]["content"] and "life.md" not in asked[0][0]["content"] and "profile.md" not in asked[0][0]["content"]


def test_functions_of_a_task_end_the_episode(bank: MemoryBank, serve: Serve) -> None:
    function = ToolSpec(name="book_table", description="Book.", parameters={"type": "object", "properties": {"seats": {"type": "integer"}}})
    policy = endpoint(serve(lambda messages: as_call("book_table", seats=2)), "navigate")
    attempt = answer(policy, bank, functions={"t": (function,)})
    assert json.loads(attempt.trajectory.final_answer or "") == [{"name": "book_table", "arguments": {"seats": 2}}]
    other = dataclasses.replace(TASK, task_id="another")
    assert answer(policy, bank, other, functions={"t": (function,)}).trajectory.status is Status.ERROR_PARSE


def test_a_task_that_cannot_be_asked_is_an_error(bank: MemoryBank, serve: Serve) -> None:
    with pytest.raises(DataError, match="too many options"):
        answer(endpoint(serve(lambda messages: "A"), "none"), bank, dataclasses.replace(TASK, options=tuple(map(str, range(27)))))


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        ({"access": "browse", "model": "m"}, "navigate, none"),
        ({"engine": "sglang", "model": "m"}, "endpoint, vllm"),
        ({"engine": "extractive"}, "cannot call tools"),
        ({"engine": "extractive", "access": "none", "model": "m"}, "would do nothing"),
        ({"access": "none"}, "policy.model"),
        ({"access": "none", "engine": "vllm", "model": "m", "base_url": "http://x"}, "policy.base_url"),
        ({"access": "none", "engine": "transformers", "model": "m", "cache_dir": "c"}, "policy.cache_dir"),
        ({"access": "passive", "model": "m", "upper_levels": False}, "policy.upper_levels"),
        ({"access": "full", "model": "m", "adapter": "mem0"}, "policy.adapter"),
        ({"access": "passive", "model": "m", "adapter": "zep"}, "policy.adapter: is unknown; got 'zep'; expected mem0"),
        ({"access": "passive", "model": "m", "top_k": 0}, "policy.top_k"),
        ({"access": "none", "model": "m", "max_context_tokens": 10}, "policy.max_context_tokens"),
    ],
)
def test_keys_that_do_not_go_together_are_refused_before_anything_runs(keys: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        describe_policy(PolicyConfig(**keys), memory=MEMORY, agent=AgentConfig())


def test_an_oracle_without_evidence_and_a_served_engine_without_a_model_are_refused() -> None:
    for keys in ({"access": "oracle", "engine": "extractive"}, {"access": "none", "engine": "vllm", "model": "m"}):
        with pytest.raises(ConfigError):
            build_policy(PolicyConfig(**keys), memory=MEMORY, agent=AgentConfig())


def test_policies_that_differ_have_different_names_and_facts() -> None:
    described = [
        describe_policy(PolicyConfig(model="runs/a/global_step_20", **keys), memory=memory, agent=AgentConfig())
        for memory in (MEMORY, MemoryConfig(ranking="rrf"))
        for keys in ({"access": "passive"}, {"access": "passive", "top_k": 5}, {"access": "none"}, {"access": "navigate"}, {"access": "records"})
    ]
    names = {name for name, _ in described}
    assert {"passive bm25 top 20, a/global_step_20", "passive rrf top 5, a/global_step_20", "no memory, a/global_step_20"} <= names
    facts = [json.dumps(facts, sort_keys=True) for _, facts in described]
    assert len(set(facts)) == 9  # without memory the ranking changes nothing
    named, _ = describe_policy(PolicyConfig(name="mine", access="none", model="m"), memory=MEMORY, agent=AgentConfig())
    assert named == "mine"
