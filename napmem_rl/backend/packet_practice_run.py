"""Reading practice of the tiny policy (`data/packet_practice.py`) by the quickstart's loop, in this process."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from napmem_rl.algos.packing import PACKED_ATTENTION, register_packed_attention
from napmem_rl.backend.quickstart_world import encode_copying
from napmem_rl.backend.tiny_sft import Document, SftSettings, train_sft
from napmem_rl.data.packet_practice import draw_recital
from napmem_rl.data.worlds import SyntheticUser, generate_user

POOL_USERS, POOL_DOCUMENTS = 32, 256  # of one pool; its users are drawn for it and then forgotten
COPYING = 0.3  # share of random words, said twice
NUM_QUESTIONS = 12
LR = 5e-3
TELL_EVERY = 50  # steps


@dataclass(frozen=True, kw_only=True, slots=True)
class Practice:
    """What to practise: the policy at `path` (read, and written anew), for so many steps, on users of a population of its own by `seed`."""

    path: Path
    steps: int
    seed: int
    num_candidates: int


def run_practice(job: Practice, report: Callable[[str], None]) -> None:
    """Train the policy at `job.path` in place."""
    register_packed_attention()
    model = AutoModelForCausalLM.from_pretrained(job.path, attn_implementation=PACKED_ATTENTION)
    pools, started = _Pools(job, AutoTokenizer.from_pretrained(job.path)), time.perf_counter()

    def on_step(step: int, loss: float) -> None:
        if step % TELL_EVERY == 0 or step == job.steps:
            report(f"practice: step {step} of {job.steps}, loss {loss:.3f} nats a token, {time.perf_counter() - started:.0f} s")

    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # rows of so small a policy are too short to share
    try:
        train_sft(model, pools.next_documents, SftSettings(steps=job.steps, lr=LR), on_step=on_step)
    finally:
        torch.set_num_threads(num_threads)
    model.save_pretrained(job.path)


class _Pools:
    """Practice texts as documents."""

    def __init__(self, job: Practice, tokenizer: Any) -> None:
        self._job, self._tokenizer, self._rng, self._num_users = job, tokenizer, random.Random(f"practice-{job.seed}"), 0

    def next_documents(self, progress: float) -> list[Document]:
        """One pool, whatever the progress."""
        first, self._num_users = self._num_users, self._num_users + POOL_USERS
        users = [generate_user(f"packet-practice-{self._job.seed}", index, num_questions=NUM_QUESTIONS) for index in range(first, self._num_users)]
        return [self._draw(users) for _ in range(POOL_DOCUMENTS)]

    def _draw(self, users: list[SyntheticUser]) -> Document:
        if self._rng.random() < COPYING:
            return encode_copying(self._tokenizer, self._rng)
        recital = draw_recital(self._rng.choice(users), self._rng, num_candidates=self._job.num_candidates)
        read = self._tokenizer.encode(f"<|user|>{recital.prompt}<|end|><|assistant|>", add_special_tokens=False)
        said = self._tokenizer.encode(f"{recital.text}<|end|>", add_special_tokens=False)
        return Document([*read, *said], [0] * len(read) + [1] * len(said))
