"""What can be refused before Ray starts: one clear error instead of a stack of worker traces a minute later."""

from __future__ import annotations

import asyncio
import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from napmem_rl.backend.served_model import check_served
from napmem_rl.backend.vllm_cpu_name import check_vllm_cpu
from napmem_rl.config.recipe import Recipe
from napmem_rl.data.overlap import FINGERPRINTS, check_training_data
from napmem_rl.data.rows import load_rows
from napmem_rl.data.splits import Pairs, check_job_splits
from napmem_rl.errors import BankError, ConfigError, DataError
from napmem_rl.llm.served import SERVED
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.storage import find_bank_dir
from napmem_rl.retrieval.encoder import ENCODER_NAMES, check_encoder
from napmem_rl.rewards.judge import build_judge
from napmem_rl.rewards.judge import check_judge as check_judge_model
from napmem_rl.schema import Task
from napmem_rl.systems.memchain.answer_models import build_answer_model
from napmem_rl.systems.memchain.answer_models import check_answer_model as ask_answer_model
from napmem_rl.systems.memchain.candidate_file import find_candidates, load_candidates

CHAT_TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json")


@dataclass(frozen=True, kw_only=True, slots=True)
class JobInputs:
    """What a job was found to read: content versions by bank id, numbers of rows, and what its training rows' users said (None where that is not known)."""

    bank_versions: Mapping[str, str]
    num_train_rows: int
    num_val_rows: int
    training_fingerprints: Mapping[int, str] | None = None


def check_inputs(recipe: Recipe) -> JobInputs:
    """Read every row, verify every bank that a row names, look at the model and ask the judge.

    Raises:
        ConfigError: a path is missing, the model has no chat template, the rollout server cannot run here, there is no such encoder, there are fewer rows
            than a batch holds or than the steps take, or the judge cannot be used.
        DataError: a row cannot be used, training and validation share a conversation, or training rows are of a benchmark or share messages with one.
        BankError: a bank is missing, broken or of another user.
    """
    recipe.check_paths()
    _check_model(recipe)
    _check_rollout(recipe)
    check_served(recipe)
    _check_encoder(recipe)
    train, val = _load_pairs(recipe, "data.train_files"), _load_pairs(recipe, "data.val_files")
    if recipe.data_dir is not None:
        check_job_splits(recipe.data_dir, {"data.train_files": train, "data.val_files": val})
    train_files, val_files = _list_files(recipe, "data.train_files"), _list_files(recipe, "data.val_files")
    others = [directory for directory in dict.fromkeys(file.parent for file in val_files) if directory not in {file.parent for file in train_files}]
    others = [directory for directory in others if (directory / FINGERPRINTS).exists()]
    fingerprints = check_training_data(train_files, train, held_out=[*recipe.held_out, *others])
    batch_size = OmegaConf.select(recipe.verl, "data.train_batch_size")
    if len(train) < batch_size:
        what = f"recipe {recipe.path}, key data.train_batch_size"
        raise ConfigError.of(what, "is larger than the training set", got=batch_size, expected=f"at most {len(train)}")
    check_steps(recipe, num_rows=len(train))
    versions = {bank_id: _verify_bank(recipe, bank_id) for bank_id in sorted({task.bank_id for task, _ in (*train, *val)})}
    check_judge(recipe)
    if recipe.system == "memchain":
        check_answer_model(recipe)
        _check_candidates(recipe, [task for task, _ in (*train, *val)])
    return JobInputs(bank_versions=versions, num_train_rows=len(train), num_val_rows=len(val), training_fingerprints=fingerprints)


def check_steps(recipe: Recipe, *, num_rows: int) -> None:
    """Raise ConfigError where the epochs end before `trainer.total_training_steps`: verl would stop there, with exit code 0 and without a last checkpoint."""
    steps, epochs = recipe.verl.trainer.total_training_steps, recipe.verl.trainer.total_epochs
    used, batch_size = _count_used_rows(recipe.verl, num_rows), recipe.verl.data.train_batch_size
    per_epoch = used // batch_size
    if steps is None or steps <= per_epoch * epochs:
        return
    what = f"recipe {recipe.path}, key trainer.total_training_steps"
    problem = f"is more than {epochs} epochs of {per_epoch} steps ({used} rows, {batch_size} a step)"
    fix = f"Set trainer.total_epochs={-(-steps // per_epoch)}." if per_epoch else "Raise data.train_max_samples."
    raise ConfigError.of(what, problem, got=steps, expected=f"at most {per_epoch * epochs}", fix=fix)


def count_steps(config: DictConfig, *, num_rows: int) -> int:
    """Steps that verl trains: `trainer.total_training_steps`, or where that is null all of its epochs.

    Args:
        config: verl's.
        num_rows: of the training files.
    """
    trainer = config.trainer
    return trainer.total_training_steps or _count_used_rows(config, num_rows) // config.data.train_batch_size * trainer.total_epochs


def _count_used_rows(config: DictConfig, num_rows: int) -> int:
    limit = OmegaConf.select(config, "data.train_max_samples")
    return min(num_rows, limit) if limit is not None and limit > 0 else num_rows


def check_judge(recipe: Recipe) -> None:
    """Build the judge and, where it is an endpoint, grade one plain example. One that is served beside training is asked once it is there.

    Raises:
        ConfigError: it cannot be used.
    """
    if recipe.judge.kind != SERVED:
        asyncio.run(check_judge_model(build_judge(recipe.judge)))


def check_answer_model(recipe: Recipe) -> None:
    """The same for MemChain's answer model, which is asked for one short reply. Raises ConfigError where it cannot be used."""
    if recipe.answerer.kind != SERVED:
        asyncio.run(ask_answer_model(build_answer_model(recipe.answerer)))


def _check_candidates(recipe: Recipe, tasks: Sequence[Task]) -> None:
    """Raise DataError where the file of candidates cannot be used, lacks a task of the rows, or holds something later than its question."""
    if recipe.memchain.candidates is None:
        return
    path = Path(recipe.memchain.candidates)
    found = load_candidates(path)
    for task in tasks:
        find_candidates(found, task, path=path)


def _load_pairs(recipe: Recipe, dotted: str) -> Pairs:
    """The rows of the files under one key."""
    return [pair for file in _list_files(recipe, dotted) for pair in load_rows(file)]


def _list_files(recipe: Recipe, dotted: str) -> list[Path]:
    value = OmegaConf.select(recipe.verl, dotted)
    if not value:
        raise ConfigError.of(f"recipe {recipe.path}, key {dotted}", "names no file", fix="Give data.dir, or the file itself.")
    return [Path(name).expanduser() for name in ([value] if isinstance(value, str) else list(value))]


def _verify_bank(recipe: Recipe, bank_id: str) -> str:
    if recipe.memory.banks is None:
        raise ConfigError.of(f"recipe {recipe.path}, key memory.banks", "is not given", fix="Give data.dir, or memory.banks itself.")
    bank = MemoryBank.open(find_bank_dir(Path(recipe.memory.banks), bank_id))
    if bank.bank_id != bank_id:
        raise BankError.of(f"bank {bank.path}", "is that of another user", got=bank.bank_id, expected=repr(bank_id), fix="Build it again under its own id.")
    return bank.version


def _check_model(recipe: Recipe) -> None:
    """A local model must hold a config and a chat template. (Names of a hub are left to transformers.)"""
    name = str(OmegaConf.select(recipe.verl, "actor_rollout_ref.model.path"))
    if name[:1] not in "/.~":
        return
    path = Path(name).expanduser()
    if not (path / "config.json").is_file():
        raise ConfigError.of(f"model {path}", "holds no config.json", expected="a directory in the format of transformers")
    if any((path / file).is_file() for file in CHAT_TEMPLATE_FILES) or _read_json(path / "tokenizer_config.json").get("chat_template"):
        return
    raise ConfigError.of(f"model {path}", "has no chat template", fix="Use an instruction-tuned model, or add chat_template.jinja to the directory.")


def _check_rollout(recipe: Recipe) -> None:
    """See `check_vllm_cpu`."""
    if recipe.platform != "cpu" or OmegaConf.select(recipe.verl, "actor_rollout_ref.rollout.name") != "vllm":
        return
    path = Path(str(OmegaConf.select(recipe.verl, "actor_rollout_ref.model.path"))).expanduser()
    check_vllm_cpu(_read_json(path / "config.json") if path.is_dir() else {})


def _check_encoder(recipe: Recipe) -> None:
    """See `check_encoder`; where a name comes near, it is named."""
    try:
        check_encoder(recipe.memory.encoder)
    except ConfigError as error:
        nearest = difflib.get_close_matches(recipe.memory.encoder, ENCODER_NAMES, n=1)
        hint = f" Did you mean {nearest[0]}?" if nearest and nearest[0] != recipe.memory.encoder else ""
        raise ConfigError(f"recipe {recipe.path}, key memory.encoder: {error.message}{hint}") from error


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ConfigError.of(f"model {path.parent}", f"holds no {path.name}")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError.of(f"model file {path}", f"is not JSON ({error})") from error
