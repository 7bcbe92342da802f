"""Train a policy with GRPO: `python launch/grpo.py RECIPE [key=value …] [--dry-run]`.

--dry-run prints what would run (our sections, and verl's keys that differ from its defaults), checks every path, and starts nothing.
Exit codes: 0 done; 2 what the user gave cannot be used, or the job failed (one line on stderr says what and why); 75 stopped by SIGTERM or SIGUSR1 with
everything saved: run the same command again to go on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from napmem_rl.backend.launcher import launch_training, leave_on_signals


def main(arguments: Sequence[str] | None = None) -> int:
    """Load, check, and train or only show. Returns the exit code."""
    return launch_training(arguments, description="Train a policy with GRPO.")


if __name__ == "__main__":
    leave_on_signals()
    sys.exit(main())
