"""Files of a run directory: what a new start moves aside so that nothing is lost and nothing is there twice."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

_OF_A_STEP = re.compile(r"(?:step|val)_(\d+)\..*jsonl")


def keep_previous(path: Path) -> None:
    """Move a file of an earlier start aside as ``<stem>.<n><suffix>``, because verl's file logger begins anew."""
    if not path.exists():
        return
    number = 1
    while (aside := path.with_name(f"{path.stem}.{number}{path.suffix}")).exists():
        number += 1
    shutil.move(path, aside)


def set_aside_later_steps(directory: Path, step: int) -> None:
    """Move trajectory files of steps after `step`, which are about to run again, into ``<directory>/aside.<n>/``."""
    later = [path for path in directory.glob("*.jsonl") if (match := _OF_A_STEP.fullmatch(path.name)) and int(match[1]) > step]
    if not later:
        return
    number = 1
    while (aside := directory / f"aside.{number}").exists():
        number += 1
    aside.mkdir()
    for path in later:
        shutil.move(path, aside / path.name)
