"""Checkpoints of a run directory: which are whole, which one a job goes on from, which are kept. Knows neither Ray nor verl.

verl writes ``global_step_<N>/`` file by file and then a tracker, ``latest_checkpointed_iteration.txt``, which is not written atomically. A job that dies on
the way leaves a part. So each finished checkpoint is sealed: ``checkpoint.json`` in it lists every file with its size, written last and as a whole. Only a
sealed checkpoint whose files are all there is ever resumed from; the tracker is never trusted, and is set right.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from napmem_rl.atomic import sync_path, write_file
from napmem_rl.errors import BankError, CheckpointError, ConfigError

logger = logging.getLogger(__name__)

SEAL = "checkpoint.json"
TRACKER = "latest_checkpointed_iteration.txt"  # verl's name
BEST = "best.json"
SEE_TIMEOUT_S = 90.0  # for files of other nodes to be seen here: NFS keeps listings of directories for up to a minute
KEEP_BROKEN = 2
_STEP_DIR = re.compile(r"global_step_(\d+)")
_SHARD = re.compile(r"model_world_size_(\d+)_rank_(\d+)\.pt")


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """One ``global_step_<N>``. `problem` says why it cannot be used; None where it can. `bank_versions` are those the job ran with."""

    path: Path
    step: int
    problem: str | None = None
    bank_versions: Mapping[str, str] | None = None
    world_size: int | None = None


def seal_checkpoint(
    directory: Path, *, step: int, bank_versions: Mapping[str, str], expected: Sequence[str] = (), see_timeout_s: float = SEE_TIMEOUT_S
) -> None:
    """Declare a checkpoint finished: its files are flushed to disk, then listed in `SEAL`.

    Args:
        directory: the checkpoint.
        step: of the trainer.
        bank_versions: content versions that the job runs with.
        expected: files that must be there, relative to `directory`: learners on other nodes wrote some of them.
        see_timeout_s: how long to wait until they are seen.

    Raises:
        CheckpointError: an expected file is not there. The checkpoint stays unsealed.
        OSError: the disk is full or fails; the same.
    """
    _wait_for_files(directory, expected, see_timeout_s)
    files = {str(path.relative_to(directory)): path for path in sorted(directory.rglob("*")) if path.is_file() and path.name != SEAL}
    for path in [*files.values(), *{path.parent for path in files.values()}, directory]:
        sync_path(path)
    seal = {"step": step, "bank_versions": dict(bank_versions), "files": {name: path.stat().st_size for name, path in files.items()}}
    write_file(directory / SEAL, json.dumps(seal, indent=1) + "\n")


def _wait_for_files(directory: Path, names: Sequence[str], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while missing := [name for name in names if not (directory / name).is_file()]:
        if time.monotonic() >= deadline:
            fix = "Put trainer.default_local_dir on a path that all nodes share."
            problem = f"{len(missing)} of {len(names)} files of its learners are not seen here"
            raise CheckpointError.of(f"checkpoint {directory}", problem, got=missing[:3], fix=fix)
        time.sleep(min(0.5, timeout_s))


def write_tracker(run_dir: Path, step: int) -> None:
    """Let verl's tracker name this step, as a whole or not at all."""
    write_file(run_dir / TRACKER, str(step))


def find_checkpoints(run_dir: Path) -> list[Checkpoint]:
    """All checkpoints of a run directory by step, the unusable ones with their problem."""
    found = [(int(match[1]), path) for path in run_dir.glob("global_step_*") if path.is_dir() and (match := _STEP_DIR.fullmatch(path.name))]
    return [_inspect(path, step) for step, path in sorted(found)]


def _inspect(path: Path, step: int) -> Checkpoint:
    seal = path / SEAL
    if not seal.is_file():
        return Checkpoint(path=path, step=step, problem=f"was never finished (no {SEAL})")
    try:
        content = json.loads(seal.read_text(encoding="utf-8"))
        sizes, versions = dict(content["files"]), dict(content["bank_versions"])
    except (ValueError, KeyError, TypeError) as error:
        return Checkpoint(path=path, step=step, problem=f"has an unreadable {SEAL} ({type(error).__name__}: {error})")
    for name, size in sizes.items():
        file = path / name
        if not file.is_file():
            return Checkpoint(path=path, step=step, problem=f"lacks {name}")
        if file.stat().st_size != size:
            return Checkpoint(path=path, step=step, problem=f"has a torn {name} ({file.stat().st_size} of {size} bytes)")
    shards = [match for name in sizes if (match := _SHARD.fullmatch(Path(name).name))]
    return Checkpoint(path=path, step=step, bank_versions=versions, world_size=int(shards[0][1]) if shards else None)


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumePoint:
    """Where a job begins. `checkpoint` is None for a start from the beginning; `notices` are sentences for the user."""

    checkpoint: Checkpoint | None
    notices: tuple[str, ...] = ()


def prepare_resume(run_dir: Path, *, bank_versions: Mapping[str, str], world_size: int) -> ResumePoint:
    """Find the last whole checkpoint, move broken ones after it aside, and set the tracker right.

    Args:
        run_dir: the run directory; need not exist.
        bank_versions: content versions of the banks as they are now.
        world_size: learners of the job about to start.

    Raises:
        BankError: the banks changed since the checkpoint.
        ConfigError: the checkpoint is that of another number of learners.
    """
    notices: list[str] = []
    checkpoints = find_checkpoints(run_dir)
    whole = [checkpoint for checkpoint in checkpoints if checkpoint.problem is None]
    last = whole[-1] if whole else None
    if last is not None:
        _check_banks(last, bank_versions)
        _check_world(last, world_size)
    for checkpoint in checkpoints:
        if checkpoint.problem is not None:
            aside = _move_aside(checkpoint.path)
            notices.append(f"checkpoint {checkpoint.path} {checkpoint.problem}; moved to {aside.name}, remove it when you need the space")
    notices += _prune_broken(run_dir)
    notices += _repair_tracker(run_dir, last)
    if last is not None:
        notices.append(f"resuming from {last.path}")
    elif checkpoints:
        notices.append(f"run directory {run_dir} holds no whole checkpoint: starting from the beginning")
    return ResumePoint(checkpoint=last, notices=tuple(notices))


def check_resume_path(run_dir: Path, path: Path, *, bank_versions: Mapping[str, str], world_size: int) -> Checkpoint:
    """The checkpoint that `trainer.resume_mode=resume_path` begins from.

    Args:
        run_dir: of the job about to start. It must hold no checkpoint that the job would write over: a job that died meanwhile would leave a mixture of both.
        path: `trainer.resume_from_path`.
        bank_versions, world_size: see `prepare_resume`.

    Raises:
        CheckpointError: it is none, or is broken.
        BankError, ConfigError: see `prepare_resume`, and for a run directory that holds others.
    """
    match = _STEP_DIR.fullmatch(path.name)
    if match is None or not path.is_dir():
        raise CheckpointError.of("key trainer.resume_from_path", "is no checkpoint", got=str(path), expected="a directory called global_step_<N>")
    checkpoint = _inspect(path, int(match[1]))
    if checkpoint.problem is not None:
        raise CheckpointError.of(f"checkpoint {path}", checkpoint.problem, fix="Give another in trainer.resume_from_path.")
    _check_banks(checkpoint, bank_versions)
    _check_world(checkpoint, world_size)
    is_own = path.resolve().parent == run_dir.resolve()
    others = [found.step for found in find_checkpoints(run_dir) if not is_own or found.step > checkpoint.step]
    if others:
        fix = "Give another trainer.default_local_dir, move them away, or go on from the latest with trainer.resume_mode=auto."
        problem = f"holds checkpoints that a run from {path.name} of {path.parent} would write over"
        raise ConfigError.of(f"run directory {run_dir}", problem, got=others, fix=fix)
    return checkpoint


def refuse_old_checkpoints(run_dir: Path) -> None:
    """Raise ConfigError where a job that must not resume would write over checkpoints of an earlier one."""
    steps = [checkpoint.step for checkpoint in find_checkpoints(run_dir)]
    if steps:
        fix = "Remove it, give another trainer.default_local_dir, or go on from them with trainer.resume_mode=auto."
        raise ConfigError.of(f"run directory {run_dir}", "holds checkpoints of an earlier run, and trainer.resume_mode is disable", got=steps, fix=fix)


def _check_banks(checkpoint: Checkpoint, now: Mapping[str, str]) -> None:
    """A resumed job must see the memories of the one it continues."""
    then = checkpoint.bank_versions or {}
    changed = sorted(bank_id for bank_id in {*then, *now} if then.get(bank_id) != now.get(bank_id))
    if changed:
        fix = "Put the banks back, or start anew in another trainer.default_local_dir (or with trainer.resume_mode=disable)."
        problem = f"{len(changed)} banks are not those it was made with"
        raise BankError.of(f"checkpoint {checkpoint.path}", problem, got=changed[:3], expected=str({name: then.get(name) for name in changed[:3]}), fix=fix)


def _check_world(checkpoint: Checkpoint, world_size: int) -> None:
    if checkpoint.world_size not in (None, world_size):
        fix = f"Take {checkpoint.world_size} again, or export it (launch/export.py) and start a new run from the export."
        problem = "was written by another number of learners"
        raise ConfigError.of(f"checkpoint {checkpoint.path}", problem, got=world_size, expected=str(checkpoint.world_size), fix=fix)


def _repair_tracker(run_dir: Path, last: Checkpoint | None) -> list[str]:
    tracker = run_dir / TRACKER
    said = tracker.read_bytes().decode(errors="replace").strip() if tracker.is_file() else None
    wanted = str(last.step) if last is not None else None
    if said == wanted:
        return []
    if last is None:
        tracker.unlink()
    else:
        write_tracker(run_dir, last.step)
    return [f"{tracker} named {said!r}; {'removed' if last is None else f'set to {wanted}'}"] if said is not None else []


def _move_aside(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"broken_{path.name}.{number}")).exists():
        number += 1
    os.rename(path, aside)
    return aside


def _prune_broken(run_dir: Path) -> list[str]:
    """Delete all broken checkpoints but the latest `KEEP_BROKEN`: a job that dies at each save must not fill the disk. Returns sentences for the user."""
    broken = sorted((path for path in run_dir.glob("broken_global_step_*") if path.is_dir()), key=lambda path: (path.stat().st_mtime, path.name))
    return [f"removed {path}, one of more than {KEEP_BROKEN} broken checkpoints" for path in broken[:-KEEP_BROKEN] if _remove(path)]


def prune_checkpoints(run_dir: Path, *, keep: int | None, spare: Sequence[int] = ()) -> list[Path]:
    """Delete all whole checkpoints but the latest `keep` and those of the steps `spare`; returns what was deleted. None keeps all.

    One that cannot be deleted (somebody reads it over NFS) is a warning: the checkpoint that was just written is none the worse.
    """
    if keep is None:
        return []
    whole = [checkpoint for checkpoint in find_checkpoints(run_dir) if checkpoint.problem is None]
    doomed = [checkpoint.path for checkpoint in whole[: max(0, len(whole) - keep)] if checkpoint.step not in spare]
    return [path for path in doomed if _delete(path)]


def _delete(path: Path) -> bool:
    try:
        (path / SEAL).unlink()  # first: a removal cut short must not leave something that looks whole
    except OSError as error:
        logger.warning("checkpoint %s could not be deleted (%s): remove it when nobody reads it", path, error)
        return False
    return _remove(path)


def _remove(path: Path) -> bool:
    try:
        shutil.rmtree(path)
    except OSError as error:
        logger.warning("checkpoint %s could not be deleted (%s): remove it when nobody reads it", path, error)
        return False
    return True


@dataclass(frozen=True, kw_only=True, slots=True)
class Best:
    """The best validated step so far."""

    step: int
    metric: str
    value: float


def read_best(run_dir: Path) -> Best | None:
    """What `BEST` says, where its checkpoint is there and whole; None otherwise.

    Raises:
        CheckpointError: the file is not what this project writes.
    """
    path = run_dir / BEST
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        best = Best(step=int(content["step"]), metric=str(content["metric"]), value=float(content["value"]))
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError.of(f"file {path}", f"cannot be read ({type(error).__name__}: {error})", fix="Remove it.") from error
    is_whole = any(checkpoint.step == best.step and checkpoint.problem is None for checkpoint in find_checkpoints(run_dir))
    return best if is_whole else None


def write_best(run_dir: Path, best: Best) -> None:
    """Name the best step, as a whole or not at all."""
    content = {"step": best.step, "metric": best.metric, "value": best.value, "checkpoint": f"global_step_{best.step}"}
    write_file(run_dir / BEST, json.dumps(content, indent=1) + "\n")


def choose_checkpoint(run_dir: Path, *, step: int | None = None, is_best: bool = False) -> Checkpoint:
    """The whole checkpoint of a step, the best, or the latest.

    Raises:
        CheckpointError: there is none, or it is broken.
    """
    checkpoints = {checkpoint.step: checkpoint for checkpoint in find_checkpoints(run_dir)}
    if is_best:
        best = read_best(run_dir)
        if best is None:
            fix = "Validate while training (trainer.test_freq), or give a step."
            raise CheckpointError.of(f"run directory {run_dir}", f"names no best checkpoint in {BEST}", fix=fix)
        step = best.step
    whole = sorted(number for number, checkpoint in checkpoints.items() if checkpoint.problem is None)
    if step is None and whole:
        step = whole[-1]
    if step not in whole:
        problem = checkpoints[step].problem if step in checkpoints else "holds no such checkpoint"
        raise CheckpointError.of(f"run directory {run_dir}, step {step}", str(problem), got=step, expected=f"one of {whole}")
    return checkpoints[step]
