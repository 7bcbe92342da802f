"""Files of a run directory."""

from __future__ import annotations

import shutil
from pathlib import Path


def find_last_export(run_dir: Path) -> Path | None:
    """The newest complete export in the format of transformers (`hf_model` in `checkpoint.save_contents`), or None."""
    exports = [path for path in run_dir.glob("global_step_*/actor/huggingface") if list(path.glob("*.safetensors"))]
    return max(exports, key=lambda path: int(path.parents[1].name.rsplit("_", 1)[1]), default=None)


def keep_previous(path: Path) -> None:
    """Move a file of an earlier start aside as ``<stem>.<n><suffix>``, because verl's file logger begins anew."""
    if not path.exists():
        return
    number = 1
    while (aside := path.with_name(f"{path.stem}.{number}{path.suffix}")).exists():
        number += 1
    shutil.move(path, aside)
