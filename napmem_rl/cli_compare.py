"""The `napmem compare` command."""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def add_compare_command(areas: argparse._SubParsersAction) -> None:
    """Add `compare` to the areas of `napmem`."""
    compare = areas.add_parser("compare", help="two evaluations question by question: differences, intervals, p-values, and what is not shared")
    compare.add_argument("a", type=Path, metavar="A", help="directory that launch/evaluate.py has written")
    compare.add_argument("b", type=Path, metavar="B", help="another one, on the same questions")
    compare.add_argument("--metric", action="append", default=[], metavar="NAME", help="only this metric; may be repeated")
    compare.add_argument("--seed", type=int, default=0, help="of the intervals' bootstrap (default: %(default)s)")
    compare.add_argument("--json", action="store_true", help="JSON on stdout instead of tables")
    compare.set_defaults(run=run_compare)


def run_compare(args: argparse.Namespace) -> int:
    """Print the comparison of two evaluations."""
    from napmem_rl.evals.comparison import compare_evaluations, render_comparison  # numpy is not needed by other commands

    comparison = compare_evaluations(args.a, args.b, metrics=args.metric, seed=args.seed)
    print(json.dumps(comparison.as_json(), indent=1, ensure_ascii=False) if args.json else render_comparison(comparison))
    return 0
