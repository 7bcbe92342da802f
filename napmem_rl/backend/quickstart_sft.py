"""The quickstart's supervised phase, in processes of its own.

First the cold start on sloppy demonstrations, where reinforcement learning begins. Then, for reference, the other way on from there: the same policy
trained further on clean demonstrations.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast
from transformers.utils import logging

from napmem_rl.algos.packing import PACKED_ATTENTION, register_packed_attention
from napmem_rl.backend.quickstart_world import Curriculum, Split, World, build_demonstrations, generate_split
from napmem_rl.backend.tiny_policy import build_model, build_tokenizer, save_policy
from napmem_rl.backend.tiny_sft import SftSettings, train_sft
from napmem_rl.config.sections import AgentConfig, MemoryConfig
from napmem_rl.data.world_demos import Habits
from napmem_rl.retrieval.encoder import load_encoder

PRACTICE = (0.9, 0.3)  # share of practice texts at the beginning and at the end
START_LR, CONTINUED_LR = 5e-3, 2e-3
RANK_TIMEOUT_S = 120.0  # how long a rank waits for another that failed


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
    num_ranks: int
    start_from: Path | None = None

    @property
    def progress_file(self) -> Path:
        """One JSON line every 25 steps."""
        return self.out_dir.with_suffix(".jsonl")


def run_cold_start(job: ColdStart, rank: int) -> dict[str, float]:
    """One rank of a run; rank 0 saves the policy and writes its progress to <out_dir>.jsonl. Returns seconds spent and the last loss (nats a token)."""
    import torch
    import torch.distributed as dist

    logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.manual_seed(job.seed)
    started = time.monotonic()
    rng = random.Random(f"{job.name}-{job.seed}")
    world = World(job.data_dir, generate_split(job.split, job.seed), job.memory, job.agent, load_encoder(job.memory.encoder))
    tokenizer, model = _load_policy(job, world)
    demonstrations = build_demonstrations(world, tokenizer, job.agent, job.habits, number=job.num_demonstrations, rng=rng)
    demonstrated = time.monotonic()
    begin, end = (PRACTICE[1] if job.start_from else PRACTICE[0]), PRACTICE[1]
    curriculum = Curriculum(f"practice-{job.name}-{job.seed}", demonstrations, tokenizer, rng, start=begin, end=end)
    settings = SftSettings(steps=job.steps, lr=CONTINUED_LR if job.start_from else START_LR)
    last = {"loss": float("nan")}

    def on_step(step: int, loss: float) -> None:
        last["loss"] = loss
        if rank == 0 and (step % 25 == 0 or step == job.steps):
            row = {"step": step, "steps": job.steps, "loss": round(loss, 4), "seconds": round(time.monotonic() - started, 1)}
            with job.progress_file.open("a") as log:
                log.write(json.dumps(row) + "\n")

    rendezvous = f"file://{job.out_dir}.rendezvous"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=job.num_ranks, timeout=timedelta(seconds=RANK_TIMEOUT_S))
    try:
        train_sft(model, curriculum.next_documents, settings, on_step=on_step)
    finally:
        dist.destroy_process_group()
    if rank == 0:
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
    """Run the jobs one after another, a process for each rank; `on_wait` is called every `poll_s` seconds meanwhile.

    Returns:
        name -> result of rank 0's `run_cold_start`.
    """
    results = {}
    for job in jobs:
        job.out_dir.parent.mkdir(parents=True, exist_ok=True)
        for leftover in (job.progress_file, Path(f"{job.out_dir}.rendezvous")):
            leftover.unlink(missing_ok=True)
        with ProcessPoolExecutor(job.num_ranks, mp_context=get_context("spawn")) as pool:
            ranks = [pool.submit(run_cold_start, job, rank) for rank in range(job.num_ranks)]
            while wait(ranks, timeout=poll_s, return_when=FIRST_EXCEPTION).not_done and not any(rank.done() and rank.exception() for rank in ranks):
                on_wait()
            results[job.name] = [rank.result() for rank in ranks][0]
        on_wait()
    return results
