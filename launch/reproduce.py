"""Run the quickstart once for each seed and put the results side by side: `python launch/reproduce.py quickstart --seeds 3 [--first-seed N] [--steps N]`."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from napmem_rl.errors import NapMemError
from napmem_rl.evals.reproduce import load_summaries, write_reproduction

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["quickstart"])
    parser.add_argument("--seeds", type=int, default=3, help="how many (default: 3)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=None)
    args = parser.parse_args()
    out = ROOT / "runs" / f"reproduce-{args.what}"
    run_dirs = [out / f"seed{seed}" for seed in range(args.first_seed, args.first_seed + args.seeds)]
    for seed, run_dir in enumerate(run_dirs, start=args.first_seed):
        if (run_dir / "summary.json").is_file():
            print(f"seed {seed}: {run_dir} holds a finished run, which is used as it is; remove it to run again", flush=True)
            continue
        steps = ["--steps", str(args.steps)] if args.steps else []
        command = [sys.executable, str(ROOT / "launch" / "quickstart.py"), "--seed", str(seed), "--run-dir", str(run_dir), *steps]
        status = subprocess.run(command, check=False).returncode
        if status != 0:
            print(f"error: seed {seed} ended with exit code {status}; the table is left as it was", file=sys.stderr)
            return status
    try:
        print(write_reproduction(load_summaries(run_dirs), json_path=out / "table.json", docs_path=ROOT / "docs" / "reproduce.md"))
    except NapMemError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
