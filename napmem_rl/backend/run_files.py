"""Files of a run directory: one job at a time, and what a new start moves aside so that nothing is lost and nothing is there twice."""

from __future__ import annotations

import fcntl
import logging
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from napmem_rl.errors import ConfigError

logger = logging.getLogger(__name__)

LOCK = ".lock"
_OF_A_STEP = re.compile(r"(?:step|val)_(\d+)\..*jsonl")


@contextmanager
def hold_run_dir(run_dir: Path, *, other: str = "another trainer.default_local_dir") -> Iterator[None]:
    """Keep other jobs out of a run directory within the block: a second one would take a checkpoint that is being written for a broken one, and move it.

    The lock is the operating system's and ends with this process, however that ends. Where a file system knows no locks, the block runs without.

    Args:
        run_dir: the directory.
        other: what to give in its place, for the message.

    Raises:
        ConfigError: another job holds it.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    with (run_dir / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            fix = f"Wait until it has ended, or give {other}."
            raise ConfigError.of(f"run directory {run_dir}", "is in use by another job", fix=fix) from error
        except OSError as error:
            logger.warning("run directory %s cannot be locked (%s): see that no other job uses it", run_dir, error)
        yield


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
    aside = make_aside(directory)
    for path in later:
        shutil.move(path, aside / path.name)


def make_aside(directory: Path) -> Path:
    """Create the next ``<directory>/aside.<n>/``."""
    number = 1
    while (aside := directory / f"aside.{number}").exists():
        number += 1
    aside.mkdir()
    return aside
