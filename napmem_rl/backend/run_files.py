"""Files of a run directory."""

from __future__ import annotations

import shutil
from pathlib import Path


def keep_previous(path: Path) -> None:
    """Move a file of an earlier start aside as ``<stem>.<n><suffix>``, because verl's file logger begins anew."""
    if not path.exists():
        return
    number = 1
    while (aside := path.with_name(f"{path.stem}.{number}{path.suffix}")).exists():
        number += 1
    shutil.move(path, aside)
