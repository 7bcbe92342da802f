"""A checkpoint as a policy of an evaluation, through the transformers engine; where checkpoints are found."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from bank_maker import save_sample

from napmem_rl.backend.run_checkpoints import seal_checkpoint
from napmem_rl.backend.served_policy import EngineAddress, build_any_policy, find_context, find_model, serve_engine
from napmem_rl.backend.tiny_policy import build_model, build_tokenizer, save_policy
from napmem_rl.config.evaluation_sections import PolicyConfig
from napmem_rl.config.sections import AgentConfig, MemoryConfig
from napmem_rl.errors import CheckpointError, ConfigError
from napmem_rl.evals.policy import Attempt
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.schema import Task

AGENT = AgentConfig(max_turn_tokens=12, max_context_tokens=128, max_result_tokens=60, system_prompt=False)
MEMORY = MemoryConfig(encoder="none", ranking="bm25")
TASK = Task(task_id="t", bank_id="ana", question="Where does Ana live?", category="c", needs_memory=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    tokenizer = build_tokenizer(["Where does Ana live? Oslo bike red tea nurse"], max_length=256)
    save_policy(build_model(tokenizer, seed=0, width=32, layers=1, heads=2, ffn=32), tokenizer, path)
    return path


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> MemoryBank:
    path = tmp_path_factory.mktemp("banks") / "ana"
    save_sample(path)
    return MemoryBank.open(path, ranking="bm25")


def attempt_all(policy: PolicyConfig, bank: MemoryBank, directory: Path, seeds: list[int]) -> tuple[list[Attempt], EngineAddress, dict]:
    with serve_engine(policy, agent=AGENT, directory=directory) as engine:
        assert engine is not None

        async def use() -> tuple[list[Attempt], dict]:
            built = build_any_policy(policy, memory=MEMORY, agent=AGENT, engine=engine)
            try:
                return list(await asyncio.gather(*(built.answer(TASK, bank, seed=seed) for seed in seeds))), dict(built.facts)
            finally:
                await built.close()

        attempts, facts = asyncio.run(use())
    return attempts, engine, facts


def test_a_checkpoint_answers_in_exact_tokens_that_its_seed_decides(model: Path, bank: MemoryBank, tmp_path: Path) -> None:
    policy = PolicyConfig(access="navigate", engine="transformers", model=str(model), temperature=1.0)
    (first, again, other), engine, facts = attempt_all(policy, bank, tmp_path, [5, 5, 6])
    turn = first.trajectory.turns[0]
    assert turn.prompt_ids and turn.response_ids and turn.response_ids == again.trajectory.turns[0].response_ids
    assert turn.response_ids != other.trajectory.turns[0].response_ids
    assert (first.prompt_tokens, first.completion_tokens) == (
        sum(len(one.prompt_ids) for one in first.trajectory.turns),
        sum(len(one.response_ids) for one in first.trajectory.turns),
    )
    assert engine.model == str(model) and facts["served_by"].startswith("transformers ")


def test_nothing_is_served_for_an_endpoint_or_the_extractive_reader(tmp_path: Path) -> None:
    with serve_engine(PolicyConfig(access="none", engine="extractive"), agent=AGENT, directory=tmp_path / "engine") as engine:
        assert engine is None and not (tmp_path / "engine").exists()
    with pytest.raises(ConfigError, match="not served"):
        build_any_policy(PolicyConfig(access="none", engine="vllm", model="m"), memory=MEMORY, agent=AGENT)


def make_run(model: Path, run_dir: Path, step: int) -> Path:
    """A run directory as training leaves it, with the whole model in its checkpoint."""
    checkpoint = run_dir / f"global_step_{step}"
    shutil.copytree(model, checkpoint / "actor" / "huggingface")
    for name in ("resolved.yaml", "provenance.json"):
        (checkpoint / name).write_text("{}")
    seal_checkpoint(checkpoint, step=step, bank_versions={})
    return checkpoint


def test_a_checkpoint_of_a_run_is_merged_once_and_again_where_it_changed(model: Path, tmp_path: Path) -> None:
    checkpoint = make_run(model, tmp_path / "run", 4)
    merged = find_model(checkpoint, tmp_path / "engine")
    assert (merged / "config.json").is_file() and merged.name.startswith("global_step_4-")
    assert find_model(checkpoint, tmp_path / "engine") == merged == find_model(tmp_path / "run", tmp_path / "engine")
    shutil.rmtree(checkpoint)
    make_run(model, tmp_path / "run", 4)
    assert find_model(checkpoint, tmp_path / "engine") != merged
    assert find_model(model, tmp_path / "engine") == model


def test_what_holds_no_whole_checkpoint_is_refused(model: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(ConfigError, match="holds no checkpoint"):
            find_model(path, tmp_path / "engine")
    (make_run(model, tmp_path / "run", 4) / "checkpoint.json").unlink()
    for path in (tmp_path / "run", tmp_path / "run" / "global_step_4"):
        with pytest.raises(CheckpointError):
            find_model(path, tmp_path / "engine")


def test_a_context_that_the_model_was_not_made_for_is_refused_by_the_key_that_sets_it() -> None:
    config = {"max_position_embeddings": 1024}
    passive = PolicyConfig(access="full", engine="vllm", model="m", max_context_tokens=1000, max_answer_tokens=24)
    assert find_context(passive, AGENT, config) == 1024
    with pytest.raises(ConfigError, match="policy.max_context_tokens"):
        find_context(PolicyConfig(access="full", engine="vllm", model="m", max_context_tokens=1001, max_answer_tokens=24), AGENT, config)
    with pytest.raises(ConfigError, match="agent.max_context_tokens"):
        find_context(PolicyConfig(engine="vllm", model="m"), AgentConfig(max_context_tokens=2048), config)
