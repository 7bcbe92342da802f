"""Train a MemChain policy with TMPO: `python launch/tmpo.py RECIPE [key=value …] [--dry-run]`, e.g. recipes/memchain/smoke.yaml.

--dry-run prints what would run and checks every path, and starts nothing. Exit codes: 0 done; 2 what the user gave cannot be used, or the job failed;
75 stopped by SIGTERM or SIGUSR1 with everything saved: run the same command again to go on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from napmem_rl.backend.launcher import launch_training, leave_on_signals


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    return launch_training(arguments, description="Train a MemChain policy with TMPO.", system="memchain")


if __name__ == "__main__":
    leave_on_signals()
    sys.exit(main())
