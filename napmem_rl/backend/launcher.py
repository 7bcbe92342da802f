"""What launch/grpo.py and launch/tmpo.py share: parse, load, check, train or only show. Imports nothing heavy before training begins."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

from napmem_rl.config.recipe import Recipe, load_recipe
from napmem_rl.errors import ConfigError, JobStopped, report_errors

EXIT_AGAIN = 75  # EX_TEMPFAIL


def parse_arguments(arguments: Sequence[str] | None, *, description: str) -> argparse.Namespace:
    """Recipe, overrides and the dry-run switch, in any order."""
    parser = argparse.ArgumentParser(description=description, epilog="Recipes that ship with the project lie in recipes/.")
    parser.add_argument("recipe", help="YAML file, e.g. recipes/quickstart.yaml")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="override one key, e.g. trainer.total_training_steps=2")
    parser.add_argument("--dry-run", action="store_true", help="print the resolved configuration, check paths, start nothing")
    return parser.parse_intermixed_args(arguments)


@report_errors
def launch_training(arguments: Sequence[str] | None, *, description: str, system: str | None = None) -> int:
    """Load, check, and train or only show. Returns the exit code.

    Args:
        arguments: of the command line; None takes the process's own.
        description: for --help.
        system: the only one whose recipes are taken; None takes all.
    """
    options = parse_arguments(arguments, description=description)
    try:
        recipe = load_recipe(options.recipe, options.overrides)
        _check_system(recipe, system)
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


def _check_system(recipe: Recipe, system: str | None) -> None:
    if system is not None and recipe.system != system:
        fix = "Recipes of other systems are for launch/grpo.py."
        raise ConfigError.of(f"recipe {recipe.path}, key system", "is not what this command trains", got=recipe.system, expected=system, fix=fix)


def leave_on_signals() -> None:
    """Before training begins there is nothing to save: SIGTERM and SIGUSR1 end the process, and what was started here is ended too."""
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda *_: sys.exit(EXIT_AGAIN))
