"""Build a small world, train a small policy in it with GRPO, show before and after: `python launch/quickstart.py [--seed N] [--steps N] [--run-dir DIR]
[--rollout transformers|vllm]`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

from napmem_rl.errors import NapMemError

ROOT = Path(__file__).resolve().parents[1]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of users, demonstrations, weights and sampling (default: 0)")
    parser.add_argument("--steps", type=int, default=None, help="GRPO steps (default: what recipes/quickstart.yaml says)")
    parser.add_argument("--run-dir", type=Path, default=None, help="default: runs/quickstart-seed<N>-<time>")
    parser.add_argument("--rollout", choices=("transformers", "vllm"), default="transformers", help="the rollout server of GRPO (default: transformers)")
    args = parser.parse_args()
    if args.steps is not None and args.steps < 1:
        parser.error(f"--steps: got {args.steps}, expected at least 1")
    return args


def main() -> int:
    args = parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exit that ends the training job too
    os.environ.update({"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")})
    from napmem_rl.backend.quickstart import Quickstart, run_quickstart

    run_dir = args.run_dir or ROOT / "runs" / f"quickstart-seed{args.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    record = Path(sys.prefix) / "napmem_install.json"
    install_s = json.loads(record.read_text())["seconds"] if record.is_file() else None
    try:
        places = {"recipe_path": ROOT / "recipes" / "quickstart.yaml", "run_dir": run_dir.resolve()}
        run_quickstart(Quickstart(**places, seed=args.seed, steps=args.steps, rollout=args.rollout, install_s=install_s))
    except NapMemError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
