"""A checkpoint of a run as a HuggingFace directory: what is evaluated, served, or trained on.

A checkpoint that holds the whole model already (`hf_model` among `actor.checkpoint.save_contents`) is copied as it is. From the shards alone verl's merger
makes it, in bfloat16 whatever they are.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

from napmem_rl.atomic import swap_directories, write_file
from napmem_rl.backend.checkpoints import PROVENANCE_FILES, repair_export
from napmem_rl.backend.run_checkpoints import Checkpoint, choose_checkpoint
from napmem_rl.errors import BackendError, ConfigError


def export_checkpoint(run_dir: Path, out: Path, *, step: int | None = None, is_best: bool = False) -> Checkpoint:
    """Write model, tokenizer and provenance of one checkpoint of `run_dir` to `out`, all of it or nothing.

    Args:
        run_dir: a run directory.
        out: directory to write; must not exist.
        step: of the checkpoint; the latest unless given.
        is_best: take the best validated step instead.

    Returns:
        the checkpoint that was exported.

    Raises:
        CheckpointError: there is no such checkpoint, or it is broken.
        ConfigError: `out` exists.
        BackendError: verl's merger failed.
    """
    if out.exists():
        raise ConfigError.of(f"directory {out}", "exists already", fix="Give another, or remove it.")
    checkpoint = choose_checkpoint(run_dir, step=step, is_best=is_best)
    out.parent.mkdir(parents=True, exist_ok=True)
    fresh = out.parent / f".{out.name}.{uuid.uuid4().hex}.tmp"
    try:
        whole = checkpoint.path / "actor" / "huggingface"
        if any(whole.glob("*.safetensors")):
            shutil.copytree(whole, fresh)
        else:
            merge_shards(checkpoint.path / "actor", fresh)
        repair_export(fresh / "config.json")
        for name in PROVENANCE_FILES:
            write_file(fresh / name, (checkpoint.path / name).read_bytes())
        swap_directories(fresh, out)
    finally:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(fresh)
    return checkpoint


def merge_shards(shards: Path, target: Path) -> None:
    """Have verl's merger write the shards of a checkpoint as a HuggingFace directory in bfloat16, adapters below it in `lora_adapter/`.

    In a process of its own: the merger reads verl's platform at import and holds the whole model. Raises BackendError where it fails.
    """
    command = [sys.executable, "-m", "verl.model_merger", "merge", "--backend", "fsdp", "--local_dir", str(shards), "--target_dir", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    if done.returncode or not (target / "config.json").is_file():
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise BackendError.of(f"verl's merger of {shards}", f"ended with exit code {done.returncode} ({last})")
