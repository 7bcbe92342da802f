"""The quickstart's supervised phase, in a process of its own.

First the cold start on sloppy demonstrations, where reinforcement learning begins. Then, for reference, the other way on from there: the same policy
trained further on clean demonstrations.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast

from napmem_rl.algos.packing import PACKED_ATTENTION, register_packed_attention
from napmem_rl.backend.quickstart_world import Curriculum, Split, World, build_demonstrations, generate_split
from napmem_rl.backend.tiny_policy import build_model, build_tokenizer, save_policy
from napmem_rl.backend.tiny_sft import SftSettings, train_sft
from napmem_rl.config.sections import AgentConfig, MemoryConfig
from napmem_rl.data.world_demos import Habits
from napmem_rl.retrieval.encoder import load_encoder

PRACTICE = (0.9, 0.3)  # share of practice texts at the beginning and at the end
START_LR, CONTINUED_LR = 5e-3, 2e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class ColdStart:
    """One supervised run. With `start_from` it goes on from a saved policy, at a lower learning rate and without the practice of the beginning."""

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
    num_threads: int
    start_from: Path | None = None


def run_cold_start(job: ColdStart) -> dict[str, float]:
    """Train and save one policy; writes its progress to <out_dir>.jsonl. Returns seconds spent and the last loss (nats a token)."""
    import torch

    torch.set_num_threads(job.num_threads)
    torch.manual_seed(job.seed)
    started = time.monotonic()
    rng = random.Random(f"{job.name}-{job.seed}")
    world = World(job.data_dir, generate_split(job.split, job.seed), job.memory, job.agent, load_encoder(job.memory.encoder))
    tokenizer, model = _load_policy(job, world)
    demonstrations = build_demonstrations(world, tokenizer, job.agent, job.habits, number=job.num_demonstrations, rng=rng)
    demonstrated = time.monotonic()
    curriculum = Curriculum(
        f"practice-{job.name}-{job.seed}", demonstrations, tokenizer, rng, start=PRACTICE[1] if job.start_from else PRACTICE[0], end=PRACTICE[1]
    )
    settings = SftSettings(steps=job.steps, lr=CONTINUED_LR if job.start_from else START_LR)
    last = {"loss": float("nan")}
    job.out_dir.parent.mkdir(parents=True, exist_ok=True)
    with job.out_dir.with_suffix(".jsonl").open("w") as log:

        def on_step(step: int, loss: float) -> None:
            last["loss"] = loss
            if step % 25 == 0 or step == job.steps:
                log.write(json.dumps({"step": step, "steps": job.steps, "loss": round(loss, 4), "seconds": round(time.monotonic() - started, 1)}) + "\n")
                log.flush()

        train_sft(model, curriculum.next_documents, settings, on_step=on_step)
    save_policy(model, tokenizer, job.out_dir)
    return {"loss": last["loss"], "demonstrations_s": demonstrated - started, "seconds": time.monotonic() - started}


def _load_policy(job: ColdStart, world: World) -> tuple[PreTrainedTokenizerFast, PreTrainedModel]:
    if job.start_from is None:
        tokenizer = build_tokenizer(world.texts(), max_length=job.agent.max_context_tokens)
        return tokenizer, build_model(tokenizer, seed=job.seed)
    register_packed_attention()
    model = AutoModelForCausalLM.from_pretrained(job.start_from, attn_implementation=PACKED_ATTENTION)
    return AutoTokenizer.from_pretrained(job.start_from), model


def run_cold_starts(jobs: Sequence[ColdStart], *, on_wait: Callable[[], None], poll_s: float = 5.0) -> dict[str, dict[str, float]]:
    """Run the jobs one after another; `on_wait` is called every `poll_s` seconds meanwhile. Returns name -> result of `run_cold_start`."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        futures = {job.name: pool.submit(run_cold_start, job) for job in jobs}
        while not all(future.done() for future in futures.values()):
            wait(futures.values(), timeout=poll_s)
            on_wait()
        return {name: future.result() for name, future in futures.items()}
