"""A policy in this process: checkpoints evaluated by the training's own episode and engine, without Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from napmem_rl.backend.engine_transformers import SamplingParams, TransformersEngine
from napmem_rl.backend.token_generate import SampledTurn, TokenGenerate, compute_request_seed
from napmem_rl.config.sections import AgentConfig
from napmem_rl.evals.metrics import Facts, trajectory_facts
from napmem_rl.evals.runner import evaluate_policy
from napmem_rl.llm.token_context import encode_plain
from napmem_rl.rewards.judge import LexicalJudge
from napmem_rl.schema import ScoredTrajectory, Task

if TYPE_CHECKING:
    from napmem_rl.backend.quickstart_world import World


class EngineServer:
    """`TokenServer` over an engine of this process."""

    def __init__(self, engine: TransformersEngine) -> None:
        self._engine = engine

    async def generate(self, request_id: str, prompt_ids: list[int], sampling: Mapping[str, Any]) -> SampledTurn:
        """Sample one turn; see `TokenServer`."""
        generation = await self._engine.generate(prompt_ids, SamplingParams(**sampling))
        version = generation.policy_version
        return SampledTurn(
            token_ids=tuple(generation.token_ids),
            logprobs=tuple(generation.logprobs),
            min_version=version,
            max_version=version,
            is_length_stop=generation.stop_reason != "stop",
        )


@contextmanager
def open_checkpoint(path: Path, agent: AgentConfig, *, temperature: float, seed: int) -> Iterator[tuple[Any, Callable[[Task], TokenGenerate]]]:
    """A HuggingFace directory as a policy: its tokenizer, and what builds the policy's side of one episode. Closed at the end of the block.

    Args:
        temperature: 0 is greedy.
        seed: of the sampling; the same seed gives the same turns.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="sdpa").eval()
    engine = TransformersEngine(model, max_context=agent.max_context_tokens)
    server = EngineServer(engine)
    sampling = {"temperature": temperature, "top_p": 1.0, "stop_token_ids": (tokenizer.eos_token_id,)}

    def build_generate(task: Task) -> TokenGenerate:
        def seed_of_turn(turn: int) -> int:
            return compute_request_seed(seed, step=0, task_id=task.task_id, sample_index=0, turn_index=turn)

        return TokenGenerate(server=server, tokenizer=tokenizer, config=agent, sampling=sampling, seed_of_turn=seed_of_turn, expects_one_version=False)

    try:
        yield tokenizer, build_generate
    finally:
        engine.close()


def evaluate_checkpoint(path: Path, world: World, agent: AgentConfig, *, temperature: float, seed: int) -> tuple[list[ScoredTrajectory], list[Facts]]:
    """Every question of the world's users, answered by the checkpoint at `path`, judged lexically. `temperature` and `seed` as in `open_checkpoint`."""
    with open_checkpoint(path, agent, temperature=temperature, seed=seed) as (tokenizer, build_generate):
        scored = asyncio.run(
            evaluate_policy(
                world.items,
                build_generate=build_generate,
                build_toolbox=world.toolbox_builder(lambda text: len(encode_plain(tokenizer, text))),
                agent=agent,
                judge=LexicalJudge(),
            )
        )
    return scored, [trajectory_facts(one, key) for one, (_, key) in zip(scored, world.items, strict=True)]


def build_token_counter(path: Path) -> Callable[[str], int]:
    """Counts the tokens of a text as the policy at `path` reads it."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path)
    return lambda text: len(encode_plain(tokenizer, text))
