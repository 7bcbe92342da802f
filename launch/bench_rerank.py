"""Time the reranker: `python launch/bench_rerank.py [--dim 1024] [--candidates 20] [--json]`. One thread, a few seconds."""

from __future__ import annotations

import argparse
import json
import os
import sys

from napmem_rl.errors import report_errors

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@report_errors
def main() -> int:
    """Prints the figures. Returns 0: a slow machine is no failure; `reached` says what was reached."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dim", type=int, default=1024, help="width of the vectors (default: %(default)s)")
    parser.add_argument("--candidates", type=int, default=20, help="of one query (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=512)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    os.environ.update(dict.fromkeys(THREADS, "1"))
    from napmem_rl.evals.rerank_benchmark import measure_reranker, render_benchmark  # loads numpy, which reads the environment once

    figures = measure_reranker(dim=arguments.dim, num_candidates=arguments.candidates, repeats=arguments.repeats)
    print(json.dumps(figures) if arguments.json else render_benchmark(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
