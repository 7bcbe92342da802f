"""Reading practice of the tiny policy (`data/packet_practice.py`), a process a core; the loop and the pool of processes are the quickstart's."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from napmem_rl.backend.quickstart_sft import RANK_TIMEOUT_S
from napmem_rl.backend.quickstart_world import encode_copying
from napmem_rl.backend.tiny_sft import Document, SftSettings, train_sft
from napmem_rl.data.packet_practice import draw_recital
from napmem_rl.data.worlds import generate_user

POOL_USERS, POOL_DOCUMENTS = 32, 256  # of one pool; its users are drawn for it and then forgotten
COPYING = 0.3  # share of random words, said twice
NUM_QUESTIONS = 12
LR = 5e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class Practice:
    """What to practise: the policy at `path` (read, and written anew), for so many steps, on users of a population of its own by `seed`."""

    path: Path
    steps: int
    seed: int
    num_candidates: int
    num_ranks: int


def run_practice(job: Practice, report: Callable[[str], None]) -> None:
    """Train the policy at `job.path` in place. What a process fails of is raised."""
    rendezvous = job.path.with_name(f"{job.path.name}.rendezvous")
    rendezvous.unlink(missing_ok=True)
    with ProcessPoolExecutor(job.num_ranks, mp_context=get_context("spawn")) as pool:
        losses = [rank.result() for rank in [pool.submit(_practise, job, rank, str(rendezvous)) for rank in range(job.num_ranks)]]
    rendezvous.unlink(missing_ok=True)
    report(f"practice: {job.steps} steps of reading on {job.num_ranks} processes, last loss {losses[0]:.3f} nats a token")


def _practise(job: Practice, rank: int, rendezvous: str) -> float:
    """One rank; rank 0 saves the policy. Returns the last loss."""
    import torch
    import torch.distributed as dist
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    from napmem_rl.algos.packing import PACKED_ATTENTION, register_packed_attention

    logging.disable_progress_bar()
    register_packed_attention()
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(job.path)
    model = AutoModelForCausalLM.from_pretrained(job.path, attn_implementation=PACKED_ATTENTION)
    last = [float("nan")]
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=job.num_ranks, timeout=timedelta(seconds=RANK_TIMEOUT_S))
    try:
        train_sft(model, _Pools(job, tokenizer).next_documents, SftSettings(steps=job.steps, lr=LR), on_step=lambda step, loss: last.__setitem__(0, loss))
    finally:
        dist.destroy_process_group()
    if rank == 0:
        model.save_pretrained(job.path)
    return last[0]


class _Pools:
    """Practice texts as documents, the same in every rank."""

    def __init__(self, job: Practice, tokenizer: Any) -> None:
        self._job, self._tokenizer, self._rng, self._num_users = job, tokenizer, random.Random(f"practice-{job.seed}"), 0

    def next_documents(self, progress: float) -> list[Document]:
        """One pool, whatever the progress."""
        first, self._num_users = self._num_users, self._num_users + POOL_USERS
        self._users = [generate_user(f"packet-practice-{self._job.seed}", index, num_questions=NUM_QUESTIONS) for index in range(first, self._num_users)]
        return [encode_copying(self._tokenizer, self._rng) if self._rng.random() < COPYING else self._draw() for _ in range(POOL_DOCUMENTS)]

    def _draw(self) -> Document:
        recital = draw_recital(self._rng.choice(self._users), self._rng, num_candidates=self._job.num_candidates)
        read = self._tokenizer.encode(f"<|user|>{recital.prompt}<|end|><|assistant|>", add_special_tokens=False)
        said = self._tokenizer.encode(f"{recital.text}<|end|>", add_special_tokens=False)
        return Document([*read, *said], [0] * len(read) + [1] * len(said))
