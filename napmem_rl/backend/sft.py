"""Supervised training on demonstrations: make them, have them trained on (`sft_training.py`), hand over a Hugging Face directory."""

from __future__ import annotations

import functools
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from napmem_rl.backend.bank_search import build_search
from napmem_rl.backend.checkpoints import repair_export
from napmem_rl.backend.sft_packets import make_packet_demonstrations, prepare_tiny, teach_rows
from napmem_rl.backend.sft_training import DEMONSTRATIONS, train
from napmem_rl.backend.smollm2 import convert_smollm2
from napmem_rl.config.recipe import Recipe
from napmem_rl.config.sft_recipe import TINY, SftRecipe, load_sft_recipe
from napmem_rl.data.demonstrations import build_demonstrations, save_demonstrations
from napmem_rl.data.overlap import check_training_data, keep_training_fingerprints
from napmem_rl.data.packet_demonstrations import TaughtRows
from napmem_rl.data.rows import load_rows
from napmem_rl.data.splits import check_data_dir
from napmem_rl.errors import ConfigError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.storage import find_bank_dir
from napmem_rl.retrieval.encoder import load_encoder

SMOLLM2 = "smollm2"


def run_sft(recipe: SftRecipe, report: Callable[[str], None] = print) -> Path:
    """Train and write `recipe.output`; where anything fails, nothing is left behind.

    Returns:
        the directory of the trained model.
    Raises:
        ConfigError: the output exists, the model is missing, fewer demonstrations than a batch.
        DataError: the data directory cannot be used, or is of a benchmark.
        BackendError: the trainer failed; what it said stands above.
    """
    if recipe.output.exists():
        raise ConfigError.of(f"output {recipe.output}", "exists", expected="a new directory", fix="Remove it, or give another: output=DIR")
    check_data_dir(recipe.data_dir)
    rows = recipe.data_dir / "train.parquet"
    fingerprints = check_training_data([rows], load_rows(rows) if rows.exists() else [], held_out=())
    taught = teach_rows(recipe, report) if recipe.system == "memchain" else None
    model = _prepare_model(recipe, taught, report)
    recipe.output.parent.mkdir(parents=True, exist_ok=True)
    work = recipe.output.with_name(f".{recipe.output.name}.{os.getpid()}.tmp")
    try:
        work.mkdir()
        count = _make_demonstrations(recipe, taught, model, work, report)
        trained, seconds = train(recipe, model, work, report)
        repair_export(trained / "config.json")
        facts = {"recipe": str(recipe.path), "base": str(recipe.verl.model.path), "demonstrations": count, "train_s": round(seconds, 1)}
        (trained / "sft.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        keep_training_fingerprints(trained, fingerprints, base=Path(str(recipe.verl.model.path)))
        for made in work.glob("*.parquet"):
            os.rename(made, trained / made.name)
        os.rename(trained, recipe.output)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return recipe.output


def train_cold_start(recipe: Recipe, report: Callable[[str], None] = print) -> Path:
    """Make the policy that a training recipe starts from, by its `cold_start`. Returns the model's directory. Raises as `run_sft` does."""
    assert recipe.cold_start is not None, "train_cold_start: the recipe names none"
    if recipe.data_dir is None:
        raise ConfigError.of(f"recipe {recipe.path}, key cold_start", "needs data to train on", fix="Give data.dir=DIR.")
    return run_sft(load_sft_recipe(recipe.cold_start, [f"data.dir={recipe.data_dir}", f"output={recipe.model_path}"]), report)


def _prepare_model(recipe: SftRecipe, taught: TaughtRows | None, report: Callable[[str], None]) -> Path:
    if recipe.verl.model.path == TINY and taught is not None:
        return prepare_tiny(recipe, taught, report)
    if recipe.verl.model.path == SMOLLM2:
        path = recipe.data_dir / SMOLLM2
        report(f"model: SmolLM2-135M-Instruct in {path}")
        return convert_smollm2(path)
    path = Path(recipe.verl.model.path).expanduser().absolute()
    if not (path / "config.json").is_file():
        raise ConfigError.of(f"model {path}", "is not a model directory", expected=f"a config.json, or model.path={SMOLLM2}")
    return path


def _make_demonstrations(recipe: SftRecipe, taught: TaughtRows | None, model: Path, work: Path, report: Callable[[str], None]) -> int:
    """Demonstrate questions of the train split and store them; returns how many."""
    count = _demonstrate(recipe, model, work, report) if taught is None else make_packet_demonstrations(recipe, taught, model, work, report)
    if count < recipe.verl.data.train_batch_size:
        got, expected = f"{count} demonstrations", f"at least data.train_batch_size={recipe.verl.data.train_batch_size}"
        raise ConfigError.of(f"recipe {recipe.path}", "too few demonstrations for one batch", got=got, expected=expected)
    return count


def _demonstrate(recipe: SftRecipe, model: Path, work: Path, report: Callable[[str], None]) -> int:
    from transformers import AutoTokenizer

    started = time.perf_counter()
    encoder = load_encoder(recipe.memory.encoder, device=recipe.memory.encoder_device)
    banks = Path(recipe.memory.banks) if recipe.memory.banks else recipe.data_dir / "banks"
    search = build_search(recipe.memory, encoder)
    open_bank = functools.cache(lambda bank_id: MemoryBank.open(find_bank_dir(banks, bank_id), **search))
    pairs = load_rows(recipe.data_dir / "train.parquet")
    tokenizer = AutoTokenizer.from_pretrained(model)
    made = build_demonstrations(pairs, open_bank, tokenizer, agent=recipe.agent, memory=recipe.memory, count=recipe.count)
    save_demonstrations(work / DEMONSTRATIONS, made)
    lengths = sorted(len(demonstration.token_ids) for demonstration in made)
    longest = f"{lengths[len(lengths) // 2]} tokens in the middle, {lengths[-1]} at most"
    report(f"demonstrations: {len(made)} of {len(pairs)} train questions, {longest}, {time.perf_counter() - started:.1f} s")
    return len(made)
