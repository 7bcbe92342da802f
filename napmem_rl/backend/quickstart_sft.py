"""The quickstart's supervised phase: two cold starts side by side, each in a process of its own.

The sloppy one is where reinforcement learning begins; the clean one is a reference row.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from napmem_rl.backend.quickstart_world import Curriculum, Split, World, build_demonstrations, generate_split
from napmem_rl.backend.tiny_policy import build_model, build_tokenizer, save_policy
from napmem_rl.backend.tiny_sft import SftSettings, train_sft
from napmem_rl.config.sections import AgentConfig, MemoryConfig
from napmem_rl.data.world_demos import Habits
from napmem_rl.retrieval.encoder import load_encoder


@dataclass(frozen=True, kw_only=True, slots=True)
class ColdStart:
    """One supervised run, sent to a worker process."""

    name: str
    habits: Habits
    split: Split
    seed: int
    steps: int
    num_demonstrations: int
    data_dir: Path
    out_dir: Path
    memory: MemoryConfig
    agent: AgentConfig


def run_cold_start(job: ColdStart) -> dict[str, float]:
    """Train and save one policy; writes its progress to <out_dir>.jsonl. Returns seconds spent and the last loss (nats a token)."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(job.seed)
    started = time.monotonic()
    rng = random.Random(f"{job.name}-{job.seed}")
    world = World(job.data_dir, generate_split(job.split, job.seed), job.memory, job.agent, load_encoder(job.memory.encoder))
    tokenizer = build_tokenizer(world.texts(), max_length=job.agent.max_context_tokens)
    demonstrations = build_demonstrations(world, tokenizer, job.agent, job.habits, number=job.num_demonstrations, rng=rng)
    demonstrated = time.monotonic()
    model = build_model(tokenizer, seed=job.seed)
    curriculum = Curriculum(world.readable_users(), demonstrations, tokenizer, rng)
    last = {"loss": float("nan")}
    job.out_dir.parent.mkdir(parents=True, exist_ok=True)
    with job.out_dir.with_suffix(".jsonl").open("w") as log:

        def on_step(step: int, loss: float) -> None:
            last["loss"] = loss
            if step % 25 == 0 or step == job.steps:
                log.write(json.dumps({"step": step, "steps": job.steps, "loss": round(loss, 4), "seconds": round(time.monotonic() - started, 1)}) + "\n")
                log.flush()

        train_sft(model, curriculum.next_documents, SftSettings(steps=job.steps), on_step=on_step)
    save_policy(model, tokenizer, job.out_dir)
    return {"loss": last["loss"], "demonstrations_s": demonstrated - started, "seconds": time.monotonic() - started}


def run_cold_starts(jobs: Sequence[ColdStart], *, on_wait: Callable[[], None], poll_s: float = 5.0) -> dict[str, dict[str, float]]:
    """Run all jobs at once, one process each; `on_wait` is called every `poll_s` seconds meanwhile. Returns name -> result of `run_cold_start`."""
    with ProcessPoolExecutor(len(jobs), mp_context=get_context("spawn")) as pool:
        futures: dict[str, Future[dict[str, float]]] = {job.name: pool.submit(run_cold_start, job) for job in jobs}
        while not all(future.done() for future in futures.values()):
            time.sleep(poll_s)
            on_wait()
        return {name: future.result() for name, future in futures.items()}
