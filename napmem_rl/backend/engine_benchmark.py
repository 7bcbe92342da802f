"""Throughput of the two rollout servers of the CPU platform, side by side: the same requests through each.

A server is the Ray actor of a training job with the recipe's own configuration, asked the way agent-loop workers ask it: groups of samples of one prompt, all
at once, through verl's client and load balancer. Nothing else runs meanwhile, one server after the other. Each round begins with an empty prefix cache; the
first one warms up, the fastest of the others counts.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import ray
import torch

from napmem_rl.backend.benchmarks import draw_sequences, find_logprob_difference
from napmem_rl.backend.token_generate import BatchingServer, ClientServer, SampledTurn, TokenServer, compute_request_seed
from napmem_rl.backend.train import build_env, ray_cluster
from napmem_rl.backend.vllm_cpu_name import check_vllm_cpu
from napmem_rl.config.recipe import Recipe, load_recipe

SERVERS = ("transformers", "vllm")
SHORTEST_PROMPT = 30
MAX_CONCURRENCY = 1000  # calls that a server takes at a time
Round = tuple[float, list[tuple[list[int], SampledTurn]]]  # seconds; each turn with its prompt
RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "quickstart.yaml"


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """What each server is asked: `num_prompts` groups of `num_samples`, prompts of random tokens and mixed lengths, at temperature 1."""

    model: Path | None = None  # HuggingFace directory; None: a random policy of the quickstart's size
    num_prompts: int = 16
    num_samples: int = 8
    longest_prompt: int = 250
    new_tokens: int = 48
    repeats: int = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerFigures:
    """One server: seconds from its actor's creation to the first request, the fastest round, share of turns whose tokens are the same in every round (they
    have seeds), and how far its log-probs are from a plain forward's."""

    server: str
    start_s: float
    wall_s: float
    num_tokens: int
    tokens_per_s: float
    repeated_turns: float
    max_logprob_difference: float


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineReport:
    """Figures of each server, in the order asked for."""

    workload: Workload
    num_prompt_tokens: int
    num_cores: int
    figures: tuple[ServerFigures, ...]

    @property
    def ratio(self) -> float | None:
        """Tokens per second of vLLM over those of the transformers server, where both ran."""
        speeds = {one.server: one.tokens_per_s for one in self.figures}
        return speeds["vllm"] / speeds["transformers"] if set(SERVERS) <= set(speeds) else None

    def to_json(self) -> str:
        """Everything, as one object."""
        content = asdict(self) | {"ratio": self.ratio}
        content["workload"]["model"] = str(self.workload.model) if self.workload.model else None
        return json.dumps(content, indent=2)

    def __str__(self) -> str:
        work = self.workload
        lines = [
            f"{work.num_prompts} prompts ({self.num_prompt_tokens} tokens) x {work.num_samples}, up to {work.new_tokens} new tokens, {self.num_cores} cores"
        ]
        for one in self.figures:
            speed = f"{one.tokens_per_s:.0f} tokens/s ({one.num_tokens} in {one.wall_s:.2f} s)"
            agreement = f"{one.repeated_turns:.0%} of turns repeat, log-probs within {one.max_logprob_difference:.1e} of a plain forward"
            lines.append(f"{one.server}: {speed}; ready after {one.start_s:.0f} s; {agreement}")
        return "\n".join([*lines, f"vllm / transformers: {self.ratio:.2f}"] if self.ratio else lines)


def run_engine_benchmark(workload: Workload, servers: Sequence[str] = SERVERS) -> EngineReport:
    """Start, time and end one server after the other.

    Raises:
        ConfigError: vLLM is asked for and not installed, or cannot serve the model.
        BackendError: a server failed.
    """
    with tempfile.TemporaryDirectory() as directory:
        model = workload.model or _write_policy(Path(directory) / "model", workload)
        if "vllm" in servers:
            check_vllm_cpu(json.loads((model / "config.json").read_text(encoding="utf-8")))
        from transformers import AutoModelForCausalLM

        plain = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        prompts = draw_sequences(plain.config.vocab_size, workload.num_prompts, min(SHORTEST_PROMPT, workload.longest_prompt), workload.longest_prompt)
        figures = tuple(_time_server(name, model, prompts, workload, plain, Path(directory)) for name in servers)
    return EngineReport(workload=workload, num_prompt_tokens=sum(map(len, prompts)), num_cores=os.cpu_count() or 1, figures=figures)


def _write_policy(path: Path, workload: Workload) -> Path:
    """A random policy as large as the quickstart's, with some 700 words."""
    from napmem_rl.backend.tiny_policy import build_model, build_tokenizer, save_policy

    tokenizer = build_tokenizer([f"w{number}" for number in range(680)], max_length=max(1024, workload.longest_prompt + workload.new_tokens))
    save_policy(build_model(tokenizer, seed=0), tokenizer, path)
    return path


def _time_server(name: str, model: Path, prompts: list[list[int]], workload: Workload, plain: Any, directory: Path) -> ServerFigures:
    context = max(768, workload.longest_prompt + workload.new_tokens)
    rollout = {"name": name} | ({"load_format": "auto"} if name == "vllm" else {})  # a job's server starts with random weights and is sent the learners'
    settings = [
        f"data.dir={directory}",
        f"actor_rollout_ref.model.path={model}",
        f"agent.max_context_tokens={context}",
        "ray_kwargs.ray_init.log_to_driver=false",
    ]
    recipe = load_recipe(RECIPE, [*settings, *(f"actor_rollout_ref.rollout.{key}={value}" for key, value in rollout.items())])
    with ray_cluster(recipe.verl, build_env(recipe, directory)):
        start_s, rounds = asyncio.run(_ask(name, recipe, prompts, workload))
    wall_s, turns = min(rounds, key=lambda one: one[0])
    repeated = [len({turn.token_ids for _, turn in same}) == 1 for same in zip(*(turns for _, turns in rounds), strict=True)]
    num_tokens = sum(len(turn.token_ids) for _, turn in turns)
    difference = max(find_logprob_difference(plain, prompt, turn.token_ids, turn.logprobs) for prompt, turn in turns)
    times = {"start_s": start_s, "wall_s": wall_s, "tokens_per_s": num_tokens / wall_s}
    return ServerFigures(server=name, **times, num_tokens=num_tokens, repeated_turns=sum(repeated) / len(repeated), max_logprob_difference=difference)


async def _ask(name: str, recipe: Recipe, prompts: list[list[int]], workload: Workload) -> tuple[float, list[Round]]:
    """Seconds until the server stands, and all rounds after the first."""
    from verl.workers.rollout.llm_server import LLMServerClient
    from verl.workers.rollout.router import GlobalRequestLoadBalancer

    started = time.perf_counter()
    actor = await (_start_vllm if name == "vllm" else _start_transformers)(recipe.verl.actor_rollout_ref)
    start_s = time.perf_counter() - started
    balancer = ray.remote(GlobalRequestLoadBalancer).remote(servers={name: actor})
    client = LLMServerClient(config=recipe.verl, load_balancer_handle=balancer)
    server: TokenServer = ClientServer(client.generate) if name == "vllm" else BatchingServer(client)
    rounds = []
    for _ in range(workload.repeats + 1):
        await actor.clear_kv_cache.remote()
        started = time.perf_counter()
        turns = await asyncio.gather(*[_sample(server, prompt, index, workload) for prompt in prompts for index in range(workload.num_samples)])
        rounds.append((time.perf_counter() - started, list(turns)))
    return start_s, rounds[1:]


async def _sample(server: TokenServer, prompt: list[int], index: int, workload: Workload) -> tuple[list[int], SampledTurn]:
    seed = compute_request_seed(0, step=0, task_id=str(prompt), sample_index=index, turn_index=0)
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "logprobs": True, "max_tokens": workload.new_tokens, "stop_token_ids": [], "seed": seed}
    return prompt, await server.generate(uuid4().hex, prompt, sampling)


async def _start_transformers(config: Any) -> Any:
    from napmem_rl.backend.rollout_transformers import TransformersServer

    actor = ray.remote(TransformersServer).options(max_concurrency=MAX_CONCURRENCY).remote(config.rollout, config.model, 0)
    await actor.get_node_address.remote()
    return actor


async def _start_vllm(config: Any) -> Any:
    from verl.workers.rollout.replica import RolloutMode

    from napmem_rl.backend.rollout_vllm_cpu import CPUvLLMServer

    actor = ray.remote(CPUvLLMServer).options(max_concurrency=MAX_CONCURRENCY)
    place = {"replica_rank": 0, "node_rank": 0, "gpus_per_node": 1, "nnodes": 1, "cuda_visible_devices": ""}
    handle = actor.remote(config=config.rollout, model_config=config.model, rollout_mode=RolloutMode.STANDALONE, workers=[], **place)
    await handle.launch_server.remote()
    return handle
