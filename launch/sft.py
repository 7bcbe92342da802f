"""Supervised training on demonstrations: `python launch/sft.py RECIPE [key=value …]`.

Demonstrations are made from the train split of data.dir with the real tools, then verl's SFT trainer runs on them. With --packets-only a MemChain recipe has
its teacher write packets and stops there: data.dir/packets.parquet holds them, and training later asks the teacher for nothing that its cache_dir has.
"""

from __future__ import annotations

import argparse
import functools
import signal
import sys

from napmem_rl.config.sft_recipe import load_sft_recipe
from napmem_rl.errors import report_errors


@report_errors
def main() -> int:
    """Exit code: 0 done, 2 the user's input cannot be used or the trainer failed."""
    parser = argparse.ArgumentParser(description="Supervised training on demonstrations.")
    parser.add_argument("recipe", help="YAML file, e.g. recipes/napmem/sft_smoke.yaml")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="override one key, e.g. demonstrations.count=16")
    parser.add_argument("--packets-only", action="store_true", help="of a MemChain recipe: write data.dir/packets.parquet and train nothing")
    options = parser.parse_intermixed_args()
    unused = ["output=none", "model.path=none"] if options.packets_only else []
    recipe = load_sft_recipe(options.recipe, [*unused, *options.overrides])
    from napmem_rl.backend.sft import run_sft  # imports what takes seconds
    from napmem_rl.backend.sft_packets import write_packets

    report = functools.partial(print, flush=True)
    print(f"packets: {write_packets(recipe, report)}" if options.packets_only else f"model: {run_sft(recipe, report)}")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that what was started here is ended too
    sys.exit(main())
