"""Measure a memory: `python launch/bench_memory.py --locomo FILE [--json] [--parts coverage,recall,latency,scale,storage]`. About ten minutes on two cores."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from napmem_rl.errors import report_errors
from napmem_rl.evals.memory_benchmark import DEFAULT_SIZES, PARTS, BenchmarkRun, render_figures


@report_errors
def main() -> int:
    """Returns 0, or 2 with one message where something cannot be used; an absent part is no failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--locomo", type=Path, metavar="FILE", help="LoCoMo as published; without it coverage, recall and storage are absent")
    parser.add_argument("--split", type=Path, metavar="FILE", help="a split file: each split is reported by itself")
    parser.add_argument("--encoder", default="minilm", help="minilm, hashing, none, or a model directory (default: %(default)s)")
    parser.add_argument("--parts", default=",".join(PARTS), help="which to measure (default: all)")
    parser.add_argument("--sizes", default=",".join(map(str, DEFAULT_SIZES)), help="messages of the banks of scale and latency (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="for the encoder")
    parser.add_argument("--json", action="store_true", help="JSON on stdout instead of tables")
    arguments = parser.parse_args()

    import torch

    torch.set_num_threads(arguments.threads)
    run = BenchmarkRun(
        locomo=arguments.locomo,
        split=arguments.split,
        encoder_name=arguments.encoder,
        sizes=[int(size) for size in arguments.sizes.split(",")],
        report=lambda line: print(line, file=sys.stderr, flush=True),
    )
    figures = run.measure(arguments.parts.split(","))
    print(json.dumps(figures, indent=2) if arguments.json else render_figures(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
