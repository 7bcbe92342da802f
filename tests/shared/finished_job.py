"""What a training job left behind, as tests read it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class FinishedJob:
    """What the job left behind."""

    run_dir: Path
    data_dir: Path
    output: str
    exit_code: int
    wall_s: float

    def metrics(self) -> list[dict[str, Any]]:
        """One mapping for each line of metrics.jsonl, with its step under "step"."""
        lines = (self.run_dir / "metrics.jsonl").read_text().splitlines()
        return [{"step": entry["step"], **entry["data"]} for entry in map(json.loads, lines)]

    def trajectories(self, kind: str) -> list[dict[str, Any]]:
        """All lines of the trajectory files, kind "step" or "val"."""
        return [json.loads(line) for path in sorted((self.run_dir / "trajectories").glob(f"{kind}_*.jsonl")) for line in path.read_text().splitlines()]
