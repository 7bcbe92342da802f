"""Time verdicts that are in the cache: `python launch/bench_judge.py [--json] [--count N] [--dir DIR]`. A few seconds; exit code 1 where a hit takes 1 ms."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from napmem_rl.errors import report_errors
from napmem_rl.evals.judge_benchmark import as_json, measure_hits, render_hits

MAX_MS = 1.0  # of a hit, one after the other, at the median


@report_errors
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="cached verdicts (default: %(default)s)")
    parser.add_argument("--concurrency", type=int, default=64, help="hits in flight, beside one at a time (default: %(default)s)")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="file system that the cache is to lie on; default: the temporary directory's")
    parser.add_argument("--json", action="store_true", help="JSON on stdout instead of a table")
    arguments = parser.parse_args()
    times = measure_hits(count=arguments.count, concurrency=arguments.concurrency, directory=arguments.dir)
    print(json.dumps(as_json(times)) if arguments.json else render_hits(times))
    return 1 if any(one.p50_ms >= MAX_MS for one in times if one.concurrency == 1) else 0


if __name__ == "__main__":
    raise SystemExit(main())
