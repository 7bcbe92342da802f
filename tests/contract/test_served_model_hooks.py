"""What serving a model beside training takes from verl: its pool of reward models, where that says its replicas are, and who sees the job's config."""

from __future__ import annotations

import asyncio
import inspect
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
from omegaconf import OmegaConf


def test_the_manager_of_reward_models_says_where_its_replicas_are_and_sleeps_only_where_it_may_free_memory() -> None:
    from verl.experimental.reward_loop.reward_model import RewardModelManager

    source = inspect.getsource(RewardModelManager)
    assert "self.server_addresses = [server._server_address for server in self.rollout_replicas]" in source
    assert "if self.config.rollout.free_cache_engine:\n            self.sleep()" in source, "which is why the recipe says false"
    assert list(inspect.signature(RewardModelManager.__init__).parameters) == ["self", "config", "resource_pool"]


def test_with_a_pool_of_its_own_and_no_workers_verl_leaves_rewards_to_the_episodes() -> None:
    """None would have the trainer score batches by its own reward loop, after the episodes."""
    from verl.experimental.reward_loop import RewardLoopManager

    manager = object.__new__(RewardLoopManager)
    manager.reward_loop_workers = []
    for is_own, expected in ((True, []), (False, None)):
        manager.config = OmegaConf.create({"reward": {"reward_model": {"enable": True, "enable_resource_pool": is_own}}})
        assert manager.reward_loop_worker_handles == expected


def test_the_trainer_starts_the_pool_before_the_rollout_servers_and_shares_its_config_with_the_agent_loop_manager() -> None:
    """`publish_served` writes into the trainer's config; the agent-loop manager, made afterwards, reads the same object."""
    from verl.trainer import main_ppo
    from verl.trainer.ppo.v1 import trainer_base

    setup = inspect.getsource(trainer_base.PPOTrainer._setup)
    assert setup.index("self.reward_loop_manager = RewardLoopManager(") < setup.index("LLMServerManager.create(")
    runner = inspect.getsource(main_ppo)
    assert "self.config = config" in runner and "trainer_cls(config=config)" in runner
    assert runner.index("self.trainer.init()") < runner.index("self.init_agent_loop_manager()\n            self.trainer.fit")
    assert "self.config = config" in inspect.getsource(trainer_base)


def test_verls_router_answers_what_a_replica_refuses_with_500_which_is_why_workers_ask_replicas_themselves() -> None:
    from verl.experimental.reward_loop.router.naive_router import NaiveRouter

    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(400)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    async def ask() -> int:
        router = NaiveRouter([f"http://127.0.0.1:{server.server_port}"], retry_delay=0.01)
        await router._on_startup()
        transport = httpx.ASGITransport(app=router.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://router") as client:
            status = (await client.post("/v1/chat/completions", json={})).status_code
        await router._on_shutdown()
        return status

    assert asyncio.run(ask()) == 500
    server.shutdown()
    server.server_close()


def test_the_vllm_replica_serves_a_reward_model_over_http_under_the_path_of_its_model() -> None:
    """verl asks its replicas by `model_path` too; on a machine without vLLM the text of the module says it."""
    import importlib.util
    from pathlib import Path

    folder = Path(importlib.util.find_spec("verl").submodule_search_locations[0], "workers", "rollout", "vllm_rollout")
    text = (folder / "vllm_async_server.py").read_text()
    assert 'name = f"{prefix}server_reward_{self.replica_rank}_{node_rank}{self.name_suffix}"' in text
    assert "build_app(args" in text and "run_uvicorn(app, args, self._server_address)" in text
    assert 'args["served_model_name"] = served_model_name' in text and "if self.config.prometheus.enable:" in text, "else vLLM calls it by its path"
