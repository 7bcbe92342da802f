"""Trajectories as JSON lines, for people: one file per step and agent-loop worker, appended to as episodes end."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from napmem_rl.evals.trajectory_rows import render_trajectory
from napmem_rl.schema import ScoredTrajectory


class TrajectoryLog:
    """Appends each episode of one worker to ``<dir>/step_<step>.worker_<n>.jsonl``, of validations to ``<dir>/val_<step>.worker_<n>.jsonl``.

    A line is written at once to a file opened for appending, so that a crash leaves whole lines only and a resumed run adds to what is there.
    """

    def __init__(self, directory: Path, *, worker_name: str, run_name: str, with_token_ids: bool = True) -> None:
        """Args:
            directory: created if missing; must be the same on every node (a shared file system) or is kept on each node.
            worker_name: part of the file name, different for each worker of the job.
            run_name: stamped on each line, different for each start of the job.
            with_token_ids: write token ids too, without which an episode cannot be replayed.
        """
        self._directory = directory
        self._worker_name = worker_name
        self._run_name = run_name
        self._with_token_ids = with_token_ids
        self._lock = threading.Lock()

    def path(self, step: int, *, is_validation: bool) -> Path:
        """The file of one step."""
        return self._directory / f"{'val' if is_validation else 'step'}_{step:06d}.worker_{self._worker_name}.jsonl"

    def append(
        self,
        scored: ScoredTrajectory,
        *,
        step: int,
        sample_index: int,
        is_validation: bool,
        data_source: str,
        repeat: int = 0,
        min_version: int | None = None,
        sampling: Mapping[str, Any] | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Write one episode, whatever became of it.

        Args:
            repeat: how often the step had the task before.
            min_version: the oldest weights that sampled it.
            sampling: how its tokens were drawn: `seed` of the run, `temperature`, `top_p`, `top_k`.
            details: what the system says of the episode beside its trajectory, JSON-ready.
        """
        place = {"run": self._run_name, "step": step, "sample": sample_index, "repeat": repeat}
        head = {**place, "data_source": data_source, "min_policy_version": min_version, "sampling": None if sampling is None else dict(sampling)}
        line = json.dumps({**head, **render_episode(scored, with_token_ids=self._with_token_ids), **(details or {})}, ensure_ascii=False) + "\n"
        self._directory.mkdir(parents=True, exist_ok=True)
        with self._lock:
            file = os.open(self.path(step, is_validation=is_validation), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                _write_all(file, line.encode())
            finally:
                os.close(file)


def _write_all(file: int, content: bytes) -> None:
    """`os.write` may take less than it is given, on a full or a network file system."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]


def render_episode(scored: ScoredTrajectory, *, with_token_ids: bool) -> dict[str, Any]:
    """An episode as plain data, with what it earned."""
    earned = {"reward": scored.reward, "abstained": scored.abstained, "terms": dict(scored.terms), "judge": scored.judge}
    return {**render_trajectory(scored.trajectory, with_token_ids=with_token_ids), **earned}
