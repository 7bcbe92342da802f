"""Write a checkpoint as a HuggingFace directory: `python launch/export.py RUN_DIR --out DIR [--step N | --best]` (the latest checkpoint unless told)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from napmem_rl.errors import report_errors


@report_errors
def main() -> int:
    """Returns 0, or 2 with one message where it cannot be done."""
    parser = argparse.ArgumentParser(description="Write a checkpoint of a run as a HuggingFace directory.")
    parser.add_argument("run_dir", type=Path, help="the run directory, which holds global_step_*/")
    parser.add_argument("--out", type=Path, required=True, help="directory to write; must not exist")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--step", type=int, help="of the checkpoint; default: the latest")
    which.add_argument("--best", action="store_true", help="the step that validated best (best.json)")
    arguments = parser.parse_args()
    from napmem_rl.backend.export import export_checkpoint  # imports verl, which takes seconds

    checkpoint = export_checkpoint(arguments.run_dir, arguments.out, step=arguments.step, is_best=arguments.best)
    print(f"step {checkpoint.step} of {arguments.run_dir}: exported to {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
