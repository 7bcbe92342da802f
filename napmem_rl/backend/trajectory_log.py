"""Trajectories as JSON lines, for people: one file per step and agent-loop worker, appended to as episodes end."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

from napmem_rl.schema import ScoredTrajectory, ToolResult, Turn


class TrajectoryLog:
    """Appends each episode of one worker to ``<dir>/step_<step>.worker_<n>.jsonl``, of validations to ``<dir>/val_<step>.worker_<n>.jsonl``.

    A line is written at once to a file opened for appending, so that a crash leaves whole lines only and a resumed run adds to what is there.
    """

    def __init__(self, directory: Path, *, worker_name: str, run_name: str) -> None:
        """Args:
            directory: created if missing; must be the same on every node (a shared file system) or is kept on each node.
            worker_name: part of the file name, different for each worker of the job.
            run_name: stamped on each line, different for each start of the job.
        """
        self._directory = directory
        self._worker_name = worker_name
        self._run_name = run_name
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
    ) -> None:
        """Write one episode, whatever became of it. `min_version`: the oldest weights that sampled it; `repeat`: how often the step had the task before."""
        place = {"run": self._run_name, "step": step, "sample": sample_index, "repeat": repeat}
        head = {**place, "data_source": data_source, "min_policy_version": min_version}
        line = json.dumps({**head, **render_trajectory(scored)}, ensure_ascii=False) + "\n"
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


def render_trajectory(scored: ScoredTrajectory) -> dict[str, Any]:
    """An episode as plain data: what was said, called and found, and what it earned. No token ids."""
    trajectory = scored.trajectory
    task = trajectory.task
    versions = [turn.policy_version for turn in trajectory.turns if turn.policy_version is not None]
    return {
        "task_id": task.task_id,
        "bank_id": task.bank_id,
        "category": task.category,
        "needs_memory": task.needs_memory,
        "question": task.question,
        "options": list(task.options),
        "asked_at": task.asked_at,
        "status": str(trajectory.status),
        "detail": trajectory.detail,
        "final_answer": trajectory.final_answer,
        "reward": scored.reward,
        "abstained": scored.abstained,
        "terms": dict(scored.terms),
        "judge": scored.judge,
        "policy_version": max(versions, default=None),
        "turns": [_render_turn(turn) for turn in trajectory.turns],
    }


def _render_turn(turn: Turn) -> dict[str, Any]:
    return {
        "text": turn.text,
        "error": turn.error,
        "num_prompt_tokens": len(turn.prompt_ids),
        "num_response_tokens": len(turn.response_ids),
        "calls": [_render_result(result) for result in turn.tool_results],
    }


def _render_result(result: ToolResult) -> dict[str, Any]:
    return {
        "name": result.call.name,
        "arguments": dict(result.call.arguments),
        "text": result.text,
        "is_success": result.is_success,
        "failure": result.failure,
        "level": str(result.level),
        "item_ids": list(result.item_ids),
        "message_ids": list(result.message_ids),
        "latency_s": round(result.latency_s, 6),
        "is_truncated": result.is_truncated,
    }
