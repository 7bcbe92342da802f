"""Run the quickstart once for each seed and put the results side by side: `python launch/reproduce.py quickstart --seeds 3 [--first-seed N] [--steps N]`."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from napmem_rl.config.recipe import load_recipe
from napmem_rl.errors import NapMemError
from napmem_rl.evals.reproduce import is_finished, load_summaries, write_reproduction

ROOT = Path(__file__).resolve().parents[1]


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What to run, which seeds and how many steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["quickstart"])
    parser.add_argument("--seeds", type=_positive, default=3, help="how many (default: 3)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=_positive, default=None, help="GRPO steps (default: the recipe's)")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not above 0")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is not finished, then write the table. Returns the exit code."""
    args = parse_arguments(arguments)
    out = ROOT / "runs" / f"reproduce-{args.what}"
    run_dirs = {seed: out / f"seed{seed}" for seed in range(args.first_seed, args.first_seed + args.seeds)}
    try:
        steps = args.steps or int(load_recipe(ROOT / "recipes" / "quickstart.yaml", [f"data.dir={out}"]).verl.trainer.total_training_steps)
        finished = {seed for seed, run_dir in run_dirs.items() if is_finished(run_dir, steps)}
        for seed, run_dir in run_dirs.items():
            if seed in finished:
                print(f"seed {seed}: {run_dir} holds a finished run, which is used as it is; remove it to run again", flush=True)
                continue
            command = [sys.executable, str(ROOT / "launch" / "quickstart.py"), "--seed", str(seed), "--run-dir", str(run_dir), "--steps", str(steps)]
            status = subprocess.run(command, check=False).returncode
            if status != 0:
                print(f"error: seed {seed} ended with exit code {status}; the table is left as it was", file=sys.stderr)
                return status
        print(write_reproduction(load_summaries(list(run_dirs.values())), json_path=out / "table.json", docs_path=ROOT / "docs" / "reproduce.md"))
    except NapMemError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
