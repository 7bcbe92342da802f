"""Train a policy with GRPO: `python launch/grpo.py RECIPE [key=value …] [--dry-run]`.

--dry-run prints what would run (our sections, and verl's keys that differ from its defaults), checks every path, and starts nothing.
Exit codes: 0 done; 2 what the user gave cannot be used, or the job failed (one line on stderr says what and why); 75 stopped by SIGTERM or SIGUSR1 with
everything saved: run the same command again to go on.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

from napmem_rl.config.recipe import load_recipe
from napmem_rl.errors import JobStopped, report_errors

EXIT_AGAIN = 75  # EX_TEMPFAIL


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Recipe, overrides and the dry-run switch, in any order."""
    parser = argparse.ArgumentParser(description="Train a policy with GRPO.", epilog="Recipes that ship with the project lie in recipes/.")
    parser.add_argument("recipe", help="YAML file, e.g. recipes/quickstart.yaml")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="override one key, e.g. trainer.total_training_steps=2")
    parser.add_argument("--dry-run", action="store_true", help="print the resolved configuration, check paths, start nothing")
    return parser.parse_intermixed_args(arguments)


@report_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Load, check, and train or only show. Returns the exit code."""
    options = parse_arguments(arguments)
    try:
        recipe = load_recipe(options.recipe, options.overrides)
        for notice in recipe.notices:
            print(f"notice: {notice}", file=sys.stderr)
        if options.dry_run:
            print(recipe.summary_yaml())
        recipe.check_paths()
        if recipe.needs_cold_start():
            print(f"notice: {recipe.model_path} does not exist; {recipe.cold_start} makes it first", file=sys.stderr)
        if not options.dry_run:
            from napmem_rl.backend.train import run_recipe  # imports Ray, which takes seconds

            print(f"run directory: {run_recipe(recipe)}")
    except JobStopped as stopped:
        print(f"stopped: {stopped}", file=sys.stderr)
        return EXIT_AGAIN
    return 0


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGUSR1):  # before training begins there is nothing to save, and what was started here is ended too
        signal.signal(number, lambda *_: sys.exit(EXIT_AGAIN))
    sys.exit(main())
