"""launch/grpo.py, or another script of launch/, as a user starts it: the command and the environment of a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def build_launch(*arguments: str, script: str = "grpo.py", **env: str) -> dict[str, Any]:
    """Arguments of `subprocess.run` or `Popen`; `env` adds to this process's environment."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JUDGE_KEY": "secret", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", **env}
    return {"args": [sys.executable, str(ROOT / "launch" / script), *arguments], "env": environment, "cwd": ROOT}
