"""Measure how fast questions are asked: `python launch/bench_evaluate.py [--json] [--questions N] [--concurrency N] [--latency S] [--workers N]`.

A scripted endpoint of one second stands in for the model; ideal is waiting alone, ceil(questions / concurrency) seconds. At least 90% of ideal is expected.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from pathlib import Path

from napmem_rl.errors import report_errors

MIN_SHARE = 0.9


@report_errors
def main() -> int:
    """Returns 0, 1 below 90% of ideal, or 2 with one message where something failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", default="passive_bm25", help="a recipe of recipes/eval (default: %(default)s)")
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--latency", type=float, default=1.0, help="seconds of every reply")
    parser.add_argument("--workers", type=int, default=0, help="Ray actors that ask; 0 asks from this process")
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    arguments = parser.parse_args()
    from napmem_rl.backend.evaluation_benchmark import measure_evaluation

    with tempfile.TemporaryDirectory() as directory:
        timing = measure_evaluation(
            Path(directory),
            policy=arguments.policy,
            questions=arguments.questions,
            concurrency=arguments.concurrency,
            latency_s=arguments.latency,
            workers=arguments.workers,
            report=lambda line: print(line, file=sys.stderr, flush=True),
        )
    figures = dataclasses.asdict(timing)
    print(json.dumps(figures, indent=1) if arguments.json else "\n".join(f"{name}: {value}" for name, value in figures.items()))
    return 0 if timing.share >= MIN_SHARE and not timing.errors else 1


if __name__ == "__main__":
    sys.exit(main())
