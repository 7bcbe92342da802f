"""Evaluate a policy on benchmarks: `python launch/evaluate.py POLICY|RECIPE --on BENCH[,BENCH] [--out DIR] [key=value …]`.

POLICY is a recipe file, the name of one in recipes/eval (no_memory, passive_rrf, oracle, navigate, …), or a directory: a HuggingFace model, a checkpoint or a
run. BENCH is a directory that launch/prepare_data.py has written (DIR or DIR:split; test, else dev), or a name under the recipe's `benchmarks`.
"""

from __future__ import annotations

import argparse
import functools
import signal
import sys
from pathlib import Path

from napmem_rl.config.evaluation_recipe import load_evaluation_recipe
from napmem_rl.errors import report_errors


@report_errors
def main() -> int:
    """Exit code: 0 complete, 1 some attempts have no answer, 2 something cannot be used, 130 interrupted. After 1 and 130 the same command goes on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy", metavar="POLICY|RECIPE", help="who is evaluated")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="override one key, e.g. policy.model=NAME policy.base_url=URL")
    parser.add_argument("--on", default="", metavar="BENCH[,BENCH]", help="benchmarks; without it, all that the recipe names")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where results go; an earlier run there is gone on with (default: below runs/evaluate)")
    arguments = parser.parse_intermixed_args()
    recipe = load_evaluation_recipe(arguments.policy, arguments.overrides)
    wanted = [name for name in arguments.on.split(",") if name]
    if not wanted and not recipe.benchmarks:
        parser.error("name a benchmark: --on DIR")
    from napmem_rl.backend.evaluate import evaluate  # imports what takes seconds

    return evaluate(recipe, wanted, out=arguments.out, report=functools.partial(print, flush=True))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that what was started here is ended too
    sys.exit(main())
