"""Timings of the CPU path: packed against padded training, and the rollout engine against plain `generate`.

Repetitions of the two sides alternate and the best of each counts. Wall time is what a user waits; the ratio is of CPU time, which other jobs on the machine
disturb least.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from napmem_rl.algos.packing import PACKED_ATTENTION, register_packed_attention
from napmem_rl.backend.engine_transformers import SamplingParams, TransformersEngine

TINY = dict(hidden_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4, intermediate_size=384, vocab_size=700)


@dataclass(frozen=True, slots=True)
class Timing:
    """Best of several repetitions; the CPU time is of all threads of the process."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Wall and CPU seconds of the product's way and of the plain one, and how far their log-probs are apart."""

    name: str
    ours: Timing
    plain: Timing
    num_tokens: int
    max_logprob_difference: float

    @property
    def ratio(self) -> float:
        """How many times less CPU time ours takes."""
        return self.plain.cpu_s / self.ours.cpu_s

    def __str__(self) -> str:
        wall = f"{self.ours.wall_s:.3f} s against {self.plain.wall_s:.3f} s ({self.num_tokens / self.ours.wall_s:.0f} tokens/s)"
        cpu = f"CPU {self.ours.cpu_s:.3f} s against {self.plain.cpu_s:.3f} s, {self.ratio:.2f} x"
        return f"{self.name}: {wall}; {cpu}; log-probs within {self.max_logprob_difference:.1e}"


def load_model(path: Path | None) -> Any:
    """The model at `path` in fp32, or a random llama of 0.93M parameters."""
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    if path is not None:
        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**TINY, tie_word_embeddings=True, eos_token_id=None))


def draw_sequences(vocab_size: int, count: int, shortest: int, longest: int) -> list[list[int]]:
    """Random token lists of mixed lengths, the same on every call."""
    rng = random.Random(0)
    return [[rng.randrange(vocab_size) for _ in range(rng.randint(shortest, longest))] for _ in range(count)]


def compare_packing(path: Path | None = None, *, count: int = 32, shortest: int = 30, longest: int = 250, repeats: int = 5) -> Comparison:
    """Forward and backward over sequences of mixed lengths, packed (`napmem_varlen`) and padded on the right (`sdpa`)."""
    register_packed_attention()
    model = load_model(path)
    sequences = [torch.tensor(tokens) for tokens in draw_sequences(model.config.vocab_size, count, shortest, longest)]
    lengths = [len(tokens) for tokens in sequences]
    packed = {"input_ids": torch.cat(sequences)[None], "position_ids": torch.cat([torch.arange(length) for length in lengths])[None]}
    padded_ids = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True)
    mask = (torch.arange(padded_ids.shape[1]) < torch.tensor(lengths)[:, None]).long()

    def run(implementation: str, inputs: dict[str, torch.Tensor], split: Callable[[torch.Tensor], list[torch.Tensor]]) -> torch.Tensor:
        model.set_attn_implementation(implementation)
        model.zero_grad()
        logits = split(model(**inputs, use_cache=False).logits)
        logprobs = torch.cat([torch.log_softmax(row[:-1], -1).gather(1, ids[1:, None])[:, 0] for row, ids in zip(logits, sequences, strict=True)])
        logprobs.mean().backward()
        return logprobs.detach()

    def run_packed() -> torch.Tensor:
        return run(PACKED_ATTENTION, packed, lambda logits: list(logits[0].split(lengths)))

    def run_padded() -> torch.Tensor:
        inputs = {"input_ids": padded_ids, "attention_mask": mask}
        return run("sdpa", inputs, lambda logits: [row[:length] for row, length in zip(logits, lengths, strict=True)])

    times, (ours, plain) = _time_alternately([run_packed, run_padded], repeats)
    difference = float((ours - plain).abs().max())
    return Comparison("packing, forward and backward", times[0], times[1], sum(lengths), difference)


def compare_rollout(
    path: Path | None = None, *, count: int = 128, shortest: int = 30, longest: int = 250, new_tokens: int = 24, repeats: int = 3
) -> Comparison:
    """Greedy responses of one length to prompts of mixed lengths: the engine against transformers' `generate` on one left-padded batch."""
    plain, model = load_model(path), load_model(path)
    prompts = draw_sequences(plain.config.vocab_size, count, shortest, longest)
    engine = TransformersEngine(model, max_context=longest + new_tokens, max_batch=count)
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(prompt) for prompt in prompts], batch_first=True, padding_side="left")
    mask = (torch.arange(ids.shape[1]) >= ids.shape[1] - torch.tensor([len(prompt) for prompt in prompts])[:, None]).long()

    def run_engine() -> Any:
        engine.clear_prefixes()
        params = SamplingParams(temperature=0.0, max_tokens=new_tokens)
        return asyncio.run(engine.generate_many([(prompt, params) for prompt in prompts]))

    def run_generate() -> Any:
        return plain.generate(ids, attention_mask=mask, max_new_tokens=new_tokens, min_new_tokens=new_tokens, do_sample=False, pad_token_id=0)

    times, (generations, _) = _time_alternately([run_engine, run_generate], repeats)
    engine.close()
    difference = max(find_logprob_difference(plain, prompt, one.token_ids, one.logprobs) for prompt, one in zip(prompts, generations, strict=True))
    return Comparison("rollout, tokens generated", times[0], times[1], count * new_tokens, difference)


@torch.no_grad()
def find_logprob_difference(model: Any, prompt: list[int], response: tuple[int, ...], logprobs: tuple[float, ...]) -> float:
    """Largest difference between an engine's log-probs [R] of a response and those of one plain forward over prompt and response."""
    logits = model(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1]
    expected = torch.log_softmax(logits, -1).gather(1, torch.tensor(response)[:, None])[:, 0]
    return float((torch.tensor(logprobs) - expected).abs().max())


def _time_alternately(functions: list[Callable[[], Any]], repeats: int) -> tuple[list[Timing], list[Any]]:
    """Timing of each function and its last result, after one warm-up each."""
    results = [function() for function in functions]
    taken: list[list[Timing]] = [[] for _ in functions]
    for _ in range(repeats):
        for index, function in enumerate(functions):
            wall, cpu = time.perf_counter(), time.process_time()
            results[index] = function()
            taken[index].append(Timing(time.perf_counter() - wall, time.process_time() - cpu))
    return [Timing(min(one.wall_s for one in each), min(one.cpu_s for one in each)) for each in taken], results
