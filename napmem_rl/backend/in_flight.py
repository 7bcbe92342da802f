"""Prompts that are handed out: tasks that come twice in a step, and what a resumed asynchronous job finds of those in flight. Without Ray or verl."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from napmem_rl.atomic import write_file
from napmem_rl.backend.run_files import make_aside

NOTE_PREFIX = "napmem_note_"  # tags on a prompt key: why one of its sessions left no row


class RepeatCounter:
    """Numbers the hand-outs of one task within a step: an epoch may end within it, and prompts in flight may be handed out again. Steps never go back."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._seen: Counter[str] = Counter()

    def count(self, step: int, task_ids: Sequence[str]) -> list[int]:
        """For each task how often this step had it before; 0 for all where none comes twice."""
        if step != self._step:
            self._step, self._seen = step, Counter()
        repeats = []
        for task_id in task_ids:
            repeats.append(self._seen[task_id])
            self._seen[task_id] += 1
        return repeats


@dataclass(frozen=True, kw_only=True, slots=True)
class Leftovers:
    """What a checkpoint's queue holds beside finished groups.

    `orphans` are rows without their prompt: trained in the step of the checkpoint, which was saved before they were removed. `in_flight` maps the uid of each
    prompt that is to be handed out again to the step it was handed out in; `old_notes` maps them to their notes, each set to None.
    """

    orphans: tuple[str, ...]
    in_flight: Mapping[str, int]
    old_notes: Mapping[str, Mapping[str, None]]


def find_leftovers(tags: Mapping[str, Mapping[str, Any]]) -> Leftovers:
    """Look through one partition.

    Args:
        tags: by key, of prompts (`is_prompt`) and of rows (``{uid}_{session}_{index}``).
    """
    prompts = {key: tag for key, tag in tags.items() if tag.get("is_prompt")}
    in_flight = {uid: tag for uid, tag in prompts.items() if tag["status"] in ("pending", "running")}
    notes = {uid: {name: None for name in tag if name.startswith(NOTE_PREFIX)} for uid, tag in in_flight.items()}
    return Leftovers(
        orphans=tuple(sorted(key for key in tags if key not in prompts and key.split("_")[0] not in prompts)),
        in_flight={uid: int(tag["global_steps"]) for uid, tag in in_flight.items()},
        old_notes={uid: names for uid, names in notes.items() if names},
    )


def set_aside_episodes(directory: Path, tasks: Sequence[tuple[int, str]]) -> int:
    """Move the episodes of tasks that run again out of the trajectory files, so that none is there twice, into ``<directory>/aside.<n>/``.

    Args:
        directory: of the trajectories; files that another node keeps for itself are not seen.
        tasks: the step that each was handed out in, and its id.

    Returns:
        the number of episodes.
    """
    by_step: dict[int, set[str]] = defaultdict(set)
    for step, task_id in tasks:
        by_step[step].add(task_id)
    aside: Path | None = None
    moved = 0
    for step, task_ids in sorted(by_step.items()):
        for path in sorted(directory.glob(f"step_{step:06d}.*jsonl")):
            kept, taken = [], []
            for line in path.read_bytes().splitlines(keepends=True):
                (taken if _read_task_id(line) in task_ids else kept).append(line)
            if taken:
                aside = aside or make_aside(directory)
                write_file(aside / path.name, b"".join(taken))
                write_file(path, b"".join(kept))
                moved += len(taken)
    return moved


def _read_task_id(line: bytes) -> str | None:
    """None for a line that a crash cut short."""
    try:
        return json.loads(line)["task_id"]
    except (ValueError, KeyError, TypeError):
        return None
