"""Beside each checkpoint: what it was made from. verl calls this from `trainer.checkpoint_callback_class` after every save."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verl.trainer.ppo.checkpoint_callback import CheckpointCallback

from napmem_rl.config.provenance import write_atomically

PROVENANCE_FILES = ("resolved.yaml", "provenance.json")


class ProvenanceCallback(CheckpointCallback):
    """Copies the run's resolved recipe and provenance into each checkpoint directory."""

    def on_save(self, trainer: Any, global_step: int, checkpoint_dir: str, async_save: bool = False, **kwargs: Any) -> None:
        """See `CheckpointCallback.on_save`."""
        run_dir = Path(self.config.trainer.default_local_dir)
        for name in PROVENANCE_FILES:
            write_atomically(Path(checkpoint_dir) / name, (run_dir / name).read_text(encoding="utf-8"))
