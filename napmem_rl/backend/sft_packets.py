"""MemChain's part of `launch/sft.py`: candidates for the questions of the train split, packets by a teacher, and their tokens."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path

from napmem_rl.backend.memchain_system import build_form, build_reward_settings
from napmem_rl.backend.tiny_packets import save_tiny_policy
from napmem_rl.config.sections import TeacherConfig
from napmem_rl.config.sft_recipe import SftRecipe
from napmem_rl.data.careless_teacher import CarelessTeacher
from napmem_rl.data.demonstrations import save_demonstrations
from napmem_rl.data.packet_demonstrations import FindCandidates, TaughtRows, build_packet_demonstrations, teach
from napmem_rl.data.packet_rows import save_packet_rows
from napmem_rl.data.packet_teacher import TEACHER_VERSION, GoldTeacher, ModelTeacher, Teacher
from napmem_rl.data.rows import load_rows
from napmem_rl.data.splits import check_data_dir
from napmem_rl.errors import ConfigError, DataError
from napmem_rl.llm.openai_client import OpenAIChat
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.storage import find_bank_dir
from napmem_rl.retrieval.encoder import load_encoder
from napmem_rl.schema import Task
from napmem_rl.systems.memchain.candidate_file import find_candidates, load_candidates
from napmem_rl.systems.memchain.candidates import BankViews, Candidate, CandidateConfig, retrieve_candidates

PACKETS_FILE = "packets.parquet"
TINY_POLICY = "memchain_tiny"


def teach_rows(recipe: SftRecipe, report: Callable[[str], None]) -> TaughtRows:
    """Packets for up to `demonstrations.count` questions of the train split.

    Raises:
        ConfigError: the teacher cannot be used.
        DataError: no question could be taught.
        LLMError: the model that teaches failed.
    """
    started = time.perf_counter()
    pairs = load_rows(recipe.data_dir / "train.parquet")
    taught = teach(pairs, build_finder(recipe), build_teacher(recipe.teacher), build_form(recipe.memchain), count=recipe.count)
    left_out = "; ".join(f"{number} left out ({why})" for why, number in taught.left_out.items())
    report(f"packets: {len(taught.rows)} of {len(pairs)} train questions, {time.perf_counter() - started:.1f} s" + (f"; {left_out}" if left_out else ""))
    if not taught.rows:
        raise DataError.of(f"rows {recipe.data_dir / 'train.parquet'}", "could not be taught", got=left_out, expected="keys with evidence that retrieval finds")
    return taught


def write_packets(recipe: SftRecipe, report: Callable[[str], None]) -> Path:
    """Have the teacher write packets and keep them in `data.dir`/packets.parquet; one that is there is replaced.

    Raises:
        ConfigError, DataError, LLMError: as `teach_rows`, or the recipe is of another system.
    """
    if recipe.system != "memchain":
        raise ConfigError.of(f"recipe {recipe.path}, key system", "has no packets", got=recipe.system, expected="memchain")
    check_data_dir(recipe.data_dir)
    path = recipe.data_dir / PACKETS_FILE
    save_packet_rows(path, teach_rows(recipe, report).rows, data_source="packets", settings=build_reward_settings(recipe.memchain))
    return path


def build_finder(recipe: SftRecipe) -> FindCandidates:
    """Candidates of a task, as in training: out of the recipe's file, or retrieved from the task's bank."""
    if recipe.memchain.candidates is not None:
        path = Path(recipe.memchain.candidates)
        found = load_candidates(path)
        return lambda task: find_candidates(found, task, path=path)[: recipe.memchain.max_candidates]
    encoder = load_encoder(recipe.memory.encoder, device=recipe.memory.encoder_device)
    banks = Path(recipe.memory.banks) if recipe.memory.banks else recipe.data_dir / "banks"
    config = CandidateConfig(max_candidates=recipe.memchain.max_candidates)

    @functools.lru_cache(maxsize=32)
    def open_views(bank_id: str) -> BankViews:
        return BankViews(MemoryBank.open(find_bank_dir(banks, bank_id), encoder=encoder), encoder=encoder)

    def find(task: Task) -> tuple[Candidate, ...]:
        return retrieve_candidates(task, open_views(task.bank_id), config)

    return find


def build_teacher(config: TeacherConfig) -> Teacher:
    """The teacher that a recipe names. Raises ConfigError for an unknown one, or a model that cannot be asked."""
    if config.kind == "gold":
        return GoldTeacher()
    if config.kind == "careless":
        return CarelessTeacher(rate=config.careless_rate, seed=config.seed)
    if config.kind != "openai":
        raise ConfigError.of("teacher.kind", "is not a known teacher", got=config.kind, expected="gold, careless or openai")
    client = OpenAIChat(
        model=config.model,
        base_url=config.base_url,
        api_key_env=config.api_key_env,
        timeout_s=config.timeout_s,
        max_retries=config.max_retries,
        temperature=config.temperature,
        max_concurrency=config.max_concurrency,
        cache_dir=config.cache_dir,
        cache_tag=TEACHER_VERSION,
    )
    return ModelTeacher(client=client, max_tries=config.max_tries)


def prepare_tiny(recipe: SftRecipe, taught: TaughtRows, report: Callable[[str], None]) -> Path:
    """Write the tiny policy beside the data, for `model.path: tiny`, after its reading practice; one that is there is written anew."""
    path, seed = recipe.data_dir / TINY_POLICY, recipe.verl.trainer.seed
    save_tiny_policy(path, taught.rows, max_length=recipe.agent.max_context_tokens, seed=seed)
    if recipe.practice_steps:
        from napmem_rl.backend.packet_practice_run import Practice, run_practice

        run_practice(Practice(path=path, steps=recipe.practice_steps, seed=seed, num_candidates=recipe.memchain.max_candidates), report)
    return path


def make_packet_demonstrations(recipe: SftRecipe, taught: TaughtRows, model: Path, work: Path, report: Callable[[str], None]) -> int:
    """Write the packets as tokens, and as rows for the reinforcement learning that follows; returns how many.

    Raises:
        DataError: none fits the limits.
    """
    from transformers import AutoTokenizer

    made = build_packet_demonstrations(taught.rows, AutoTokenizer.from_pretrained(model), form=build_form(recipe.memchain), agent=recipe.agent)
    save_demonstrations(work / "demonstrations.parquet", made)
    save_packet_rows(work / PACKETS_FILE, taught.rows, data_source="packets", settings=build_reward_settings(recipe.memchain))
    lengths = sorted(len(one.token_ids) for one in made)
    report(f"demonstrations: {len(made)} within the limits, {lengths[len(lengths) // 2]} tokens in the middle, {lengths[-1]} at most")
    return len(made)
