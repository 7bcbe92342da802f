"""Repeat a measured result: `python launch/reproduce.py quickstart [--seeds N] [--first-seed N] [--steps N]`, or `evaluation`, `rmm`, `rmm-rows`, `memchain`.

quickstart and memchain train once a seed. evaluation measures baselines on LoCoMo and LongMemEval, rmm what a reranker learns there, rmm-rows what RMM finds;
NAPMEM_DATA names their directory. All write below runs/reproduce-<what> and their table in docs/reproduce.md, and go on where an earlier run was stopped."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from napmem_rl.backend.reproduction import print_memchain, reproduce_evaluation, reproduce_quickstart
from napmem_rl.errors import NapMemError
from napmem_rl.evals.reproduce_rmm import print_rmm, print_rows

ROOT = Path(__file__).resolve().parents[1]


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What to run, which seeds and how many steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["quickstart", "evaluation", "rmm", "rmm-rows", "memchain"])
    parser.add_argument("--seeds", type=_positive, default=3, help="all but evaluation: how many (default: 3)")
    parser.add_argument("--first-seed", type=int, default=0, help="all but evaluation: the first one")
    parser.add_argument("--steps", type=_positive, default=None, help="quickstart: GRPO steps (default: the recipe's)")
    parser.add_argument("--json", action="store_true", help="rmm, rmm-rows, memchain: the table as JSON, progress on stderr")
    parser.add_argument("--ablations", action="store_true", help="memchain: the variants of the paper's Table 5 beside the whole method")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not above 0")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is not finished, then write the table. Returns the exit code."""
    args = parse_arguments(arguments)
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exit that ends a training job too
    try:
        if args.what == "evaluation":
            return reproduce_evaluation(ROOT)
        if args.what in ("rmm", "rmm-rows"):
            return print_rmm(ROOT, seeds, as_json=args.json) if args.what == "rmm" else print_rows(ROOT, as_json=args.json)
        if args.what == "memchain":
            return print_memchain(ROOT, seeds, as_json=args.json, ablations=args.ablations)
        return reproduce_quickstart(ROOT, seeds, steps=args.steps)
    except NapMemError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
