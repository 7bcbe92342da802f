"""After each checkpoint: what it was made from is put beside it, its export is made loadable anywhere, and it is sealed.

verl calls this from `trainer.checkpoint_callback_class` after every save.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from verl.trainer.ppo.checkpoint_callback import CheckpointCallback

from napmem_rl.atomic import write_file
from napmem_rl.backend.run_checkpoints import seal_checkpoint, write_tracker
from napmem_rl.backend.settings import JobSettings
from napmem_rl.backend.weight_files import read_tensors

ATTENTION_KEYS = ("attn_implementation", "_attn_implementation", "_attn_implementation_internal")
DTYPE_NAMES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float64"}
SHARDS = {"model": "model", "optimizer": "optim", "extra": "extra_state"}  # of `checkpoint.save_contents`, as verl's FSDP engines name their files
PROVENANCE_FILES = ("resolved.yaml", "provenance.json")


class SealingCallback(CheckpointCallback):
    """Copies the run's resolved recipe and provenance into each checkpoint directory, cleans the exported config, and seals the whole."""

    def on_save(self, trainer: Any, global_step: int, checkpoint_dir: str, async_save: bool = False, **kwargs: Any) -> None:
        """See `CheckpointCallback.on_save`."""
        run_dir = Path(self.config.trainer.default_local_dir)
        for name in PROVENANCE_FILES:
            write_file(Path(checkpoint_dir) / name, (run_dir / name).read_text(encoding="utf-8"))
        for config in Path(checkpoint_dir).glob("*/huggingface/config.json"):
            repair_export(config)
        bank_versions = json.loads(JobSettings.from_config(self.config).bank_versions_file.read_text(encoding="utf-8"))
        seal_checkpoint(Path(checkpoint_dir), step=global_step, bank_versions=bank_versions, expected=list_shards(self.config))
        write_tracker(run_dir, global_step)


def list_shards(config: Any) -> list[str]:
    """Files that the actor's learners write into each checkpoint, one of each kind a learner, relative to it.

    Args:
        config: verl's.
    """
    actor = config.actor_rollout_ref.actor
    if not str(actor.strategy).startswith("fsdp"):
        return []
    world_size = config.trainer.nnodes * config.trainer.n_gpus_per_node
    kinds = [SHARDS[content] for content in actor.checkpoint.save_contents if content in SHARDS]
    return [f"actor/{kind}_world_size_{world_size}_rank_{rank}.pt" for kind in kinds for rank in range(world_size)]


def repair_export(path: Path) -> None:
    """Make an exported config.json say what was exported.

    verl writes `model.override_config` into the model's config, so the export would ask every reader for an attention function that only we register; and it
    names bfloat16 whatever the weights are, so that a reader would round fp32 weights without a word.

    Args:
        path: config.json, with the weights as safetensors beside it.
    """
    config = json.loads(path.read_text(encoding="utf-8"))
    repaired = {name: value for name, value in config.items() if name not in ATTENTION_KEYS}
    dtypes = {dtype for weights in path.parent.glob("*.safetensors") for dtype, _ in read_tensors(weights)}
    if len(dtypes) == 1:
        repaired["dtype"] = DTYPE_NAMES[dtypes.pop()]
    if repaired != config:
        write_file(path, json.dumps(repaired, indent=2) + "\n")
