"""A model served beside training: what a recipe may say of it, how reward workers find it, and the endpoint that the transformers engine gives it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from judge_endpoint import serve_judge
from omegaconf import OmegaConf

from napmem_rl.backend.chat_server import ChatServer
from napmem_rl.backend.cluster_needs import Needs, NodeRoom, find_shortages
from napmem_rl.backend.engine_transformers import TransformersEngine
from napmem_rl.backend.reward_workers import RewardWorker
from napmem_rl.backend.served_model import check_served, enable_served, name_model, publish_served
from napmem_rl.backend.settings import JobSettings
from napmem_rl.backend.tiny_policy import build_model, build_tokenizer, save_policy
from napmem_rl.config.recipe import Recipe, load_recipe
from napmem_rl.config.sections import AgentConfig, AnswererConfig, JobConfig, JudgeConfig, MemChainConfig, MemoryConfig, ReportConfig, RewardConfig
from napmem_rl.errors import ConfigError, LLMError
from napmem_rl.llm.openai_client import OpenAIChat
from napmem_rl.llm.served import ServedEndpoint
from napmem_rl.rewards.judge import build_judge
from napmem_rl.schema import AnswerKey, Task
from napmem_rl.systems.memchain.answer_models import build_answer_model

TASK = Task(task_id="t1", bank_id="ana", question="Which pet does Mia have?", category="fact", needs_memory=True)
KEY = AnswerKey(task_id="t1", references=("Coco",))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model of ten words."""
    path = tmp_path_factory.mktemp("served") / "model"
    tokenizer = build_tokenizer(["Which pet does Mia have ? Coco Ziggy evidence question"], max_length=128)
    built = build_model(tokenizer, seed=0, width=16, layers=1, heads=2, ffn=32)
    built.config._attn_implementation = "sdpa"
    save_policy(built, tokenizer, path)
    return path


def load(*overrides: str, tmp_path: Path) -> Recipe:
    path = tmp_path / "recipe.yaml"
    path.write_text(
        "platform: cpu\ndata: {dir: /data, train_batch_size: 4}\n"
        "actor_rollout_ref: {model: {path: /data/model}, actor: {ppo_mini_batch_size: 4}, rollout: {n: 2}}\n"
        "agent: {max_turn_tokens: 64}\n"
    )
    return load_recipe(path, overrides)


SERVED = ("judge.kind=served", "reward.reward_model.model_path=/models/judge")


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (("reward.reward_model.model_path=/m",), "reward.reward_model.model_path: would do nothing: nobody asks a served model; judge.kind=served does"),
        (("judge.kind=served",), "reward.reward_model.model_path: is not given, and judge.kind or answerer.kind is served"),
        ((*SERVED, "reward.reward_model.enable=true"), "would do nothing: judge.kind and answerer.kind decide it"),
        ((*SERVED, "judge.base_url=http://x/v1"), "judge.base_url: would do nothing: judge.kind is served; reward.reward_model names the model"),
        ((*SERVED, "reward.reward_model.rollout.free_cache_engine=true"), "would put the model to sleep"),
        ((*SERVED, "reward.reward_model.nnodes=0"), "reward.reward_model.nnodes: is not positive; got 0"),
        ((*SERVED, "reward.reward_model.rollout.tensor_model_parallel_size=2"), "does not divide the 1 GPUs of the pool"),
        ((*SERVED, "reward.reward_model.rollout.max_model_len=63"), "does not hold one turn of the policy and a reply to it; got 63; expected at least 64"),
        ((*SERVED, "reward.reward_model.rollout.name=sglang"), "is none of the servers; got 'sglang'"),
        ((*SERVED, "platform=gpu", "reward.reward_model.rollout.name=transformers"), "is none of the servers"),
        (("answerer.kind=served",), "answerer.kind: would do nothing: system is napmem"),
        (("actor_rollout_ref.model.lora_adapter_path=/a",), "lora_adapter_path: would be passed by, and all weights trained"),
        (("reward.reward_model.model_pat=/m",), "Did you mean reward.reward_model.model_path?"),
    ],
)
def test_what_does_not_fit_a_served_model_is_refused_by_name(overrides: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(*overrides, tmp_path=tmp_path)
    assert expected in str(caught.value)


def test_one_model_that_answers_and_judges_is_allowed_and_said(tmp_path: Path) -> None:
    memchain = ("system=memchain", "answerer.kind=served", "reward.reward_model.model_path=/m")
    both = load(*memchain, "judge.kind=served", tmp_path=tmp_path)
    assert any("one model judges its own answers" in notice for notice in both.notices)
    assert not any("its own answers" in notice for notice in load(*memchain, tmp_path=tmp_path).notices)


def test_verl_gets_a_pool_of_its_own_and_on_the_cpu_a_slot_more_where_a_model_is_served(tmp_path: Path) -> None:
    for overrides, expected in ((SERVED, (True, True, 3)), ((), (False, False, 2))):
        recipe = load(*overrides, tmp_path=tmp_path)
        config = recipe.verl.copy()
        enable_served(config, recipe)
        pool = config.reward.reward_model
        assert (pool.enable, pool.enable_resource_pool, config.ray_kwargs.ray_init.num_gpus) == expected
    assert (pool.n_gpus_per_node, pool.nnodes, pool.rollout.free_cache_engine) == (1, 1, False)


def test_a_model_that_cannot_be_served_is_refused_before_anything_starts(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="reward.reward_model.model_path: is no model directory"):
        check_served(load(*SERVED, tmp_path=tmp_path))
    given = ("judge.kind=served", f"reward.reward_model.model_path={model}")
    with pytest.raises(ConfigError, match="max_model_len: is more than the model's context; got 4096; expected at most 128"):
        check_served(load(*given, tmp_path=tmp_path))
    check_served(load(*given, "reward.reward_model.rollout.max_model_len=128", tmp_path=tmp_path))
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "config.json").write_text("{}")
    (bare / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ConfigError, match="has no chat template"):
        check_served(load("judge.kind=served", f"reward.reward_model.model_path={bare}", tmp_path=tmp_path))


def test_workers_learn_where_the_model_is_served_from_the_jobs_config(model: Path) -> None:
    sections = {
        "memory": MemoryConfig(),
        "agent": AgentConfig(),
        "reward": RewardConfig(),
        "judge": JudgeConfig(),
        "report": ReportConfig(),
        "job": JobConfig(),
    }
    settings = JobSettings(**sections, banks_dir="/b", run_dir="/r", seed=1, is_sync=True, job_name="j")
    config = OmegaConf.create({"napmem": settings.as_config(), "reward": {"reward_model": {"model_path": str(model)}}})
    OmegaConf.set_struct(config, True)
    publish_served(config, None)
    assert JobSettings.from_config(config).served is None
    publish_served(config, SimpleNamespace(server_addresses=["10.0.0.3:5", "[fd00::1]:6"]))
    served = JobSettings.from_config(config).served
    assert served == ServedEndpoint(urls=("http://10.0.0.3:5/v1", "http://[fd00::1]:6/v1"), model=str(model), name=name_model(model))
    assert served.base_url == "http://10.0.0.3:5/v1,http://[fd00::1]:6/v1"


def test_the_pool_of_a_served_model_is_placed_into_what_the_learners_leave() -> None:
    needs = Needs(num_nodes=1, gpus_per_node=6, storage_units=1, encoder_nodes=0, object_store_bytes=0, checkpoint_bytes=0, kept_checkpoints=0)
    needs = dataclasses.replace(needs, served_nodes=1, served_gpus=2)
    room = NodeRoom(name="a", cpus=64, gpus=8, total_cpus=64, total_gpus=8, object_store_bytes=0)
    assert find_shortages(needs, [room]) == []
    (problem,) = find_shortages(needs, [dataclasses.replace(room, gpus=7)])
    assert problem.startswith("served model: asked for reward.reward_model.nnodes=1 groups of n_gpus_per_node=2 GPUs") and "room for 0" in problem


def test_verdicts_and_answers_of_a_served_model_are_found_again_at_another_address(tmp_path: Path) -> None:
    asked = []

    def reply(messages: list) -> str:
        asked.append(messages)
        return json.dumps({"verdict": "correct", "reason": "r"})

    for name, expected in (("served m 1", 2), ("served m 1", 2), ("served m 2", 4)):
        url, stop = serve_judge(reply)
        served = ServedEndpoint(urls=(url,), model="m", name=name)
        judge = build_judge(JudgeConfig(kind="served", cache_dir=str(tmp_path / "judge")), served)
        answerer = build_answer_model(AnswererConfig(kind="served", cache_dir=str(tmp_path / "answers")), served)
        assert asyncio.run(judge.judge(TASK, KEY, "a dog")).is_correct
        assert len(asyncio.run(answerer.answer("q", ["e"], num_answers=1))) == 1
        stop()
        assert len(asked) == expected


def test_without_a_job_nothing_is_served_and_the_key_is_named() -> None:
    for build, config, key in ((build_judge, JudgeConfig(kind="served"), "judge.kind"), (build_answer_model, AnswererConfig(kind="served"), "answerer.kind")):
        with pytest.raises(ConfigError, match=f"{key}: is a model that runs beside training"):
            build(config)


def test_a_served_model_that_cannot_judge_ends_the_job_at_its_start_and_one_that_can_is_asked_once() -> None:
    says = {"text": "Well, who knows?"}
    url, stop = serve_judge(lambda messages: says["text"])
    served = ServedEndpoint(urls=(url,), model="m", name="m")
    judge, answerer = JudgeConfig(kind="served", max_retries=0), AnswererConfig(kind="served", max_retries=0)
    worker = RewardWorker(judge, AgentConfig(), system="memchain", memchain=MemChainConfig(), answerer=answerer, served=served)

    async def start_three_times() -> None:
        with pytest.raises(ConfigError, match="gives no usable verdict"):
            await worker.ready()
        says["text"] = json.dumps({"verdict": "correct", "reason": "equal"})
        assert (await worker.ready()).startswith("m/napmem-judge-")
        stop()
        with pytest.raises(ConfigError, match="preflight failed"):
            await worker.ready()

    asyncio.run(start_three_times())


@pytest.fixture(scope="module")
def chat(model: Path) -> ChatServer:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    engine = TransformersEngine(AutoModelForCausalLM.from_pretrained(model), max_context=64, max_batch=4)
    yield ChatServer(model=str(model), tokenizer=AutoTokenizer.from_pretrained(model), sample=engine.generate, max_context=64)
    engine.close()


def post(chat: ChatServer, **body: object) -> httpx.Response:
    async def send() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=chat.app), base_url="http://test") as client:
            return await client.post("/v1/chat/completions", json=body)

    return asyncio.run(send())


def test_the_engine_answers_in_the_openai_protocol_by_seed(chat: ChatServer, model: Path) -> None:
    ask = {"model": str(model), "messages": [{"role": "user", "content": "Which pet does Mia have ?"}], "max_tokens": 5}
    first, again, other = (post(chat, **ask, seed=seed) for seed in (1, 1, 2))
    assert first.status_code == 200 and first.json()["choices"] == again.json()["choices"] != other.json()["choices"]
    usage = first.json()["usage"]
    assert usage["completion_tokens"] <= 5 and usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert first.json()["choices"][0]["finish_reason"] in ("stop", "length")


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"model": "other"}, 404, "is not served here"),
        ({"tools": []}, 400, "not served: tools"),
        ({"n": 2}, 400, "not served: n"),
        ({"temperature": -1}, 400, "temperature"),
        ({"messages": [{"role": "user", "content": "pet " * 80}]}, 400, "leaves no room for a reply"),
        ({"messages": "hello"}, 400, "cannot be served"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_with_its_reason(chat: ChatServer, model: Path, changes: dict, status: int, words: str) -> None:
    reply = post(chat, **{"model": str(model), "messages": [{"role": "user", "content": "Mia"}], **changes})
    assert reply.status_code == status and words in reply.json()["error"]["message"]


def test_a_control_token_inside_a_message_stays_text(chat: ChatServer, model: Path) -> None:
    plain, hostile = (
        post(chat, model=str(model), max_tokens=1, messages=[{"role": "user", "content": content}]).json()["usage"]["prompt_tokens"]
        for content in ("Mia", "Mia <|end|> Mia")
    )
    assert hostile > plain + 2, "read as one control token it would be shorter"


def test_our_own_client_asks_it(chat: ChatServer, model: Path) -> None:
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(chat.app, port=0, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        pass
    port = server.servers[0].sockets[0].getsockname()[1]

    async def ask() -> None:
        client = OpenAIChat(model=str(model), base_url=f"http://127.0.0.1:{port}/v1", api_key_env="", max_retries=0, max_tokens=4)
        assert isinstance(await client.chat([{"role": "user", "content": "Mia"}]), str)
        with pytest.raises(LLMError, match="leaves no room for a reply"):
            await client.chat([{"role": "user", "content": "pet " * 80}])
        await client.close()

    asyncio.run(ask())
    server.should_exit = True
    thread.join(10)
