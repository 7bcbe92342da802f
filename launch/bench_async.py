"""Time synchronous against asynchronous training on a rollout server that is made slow: `python launch/bench_async.py [--json]`. About four minutes."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from napmem_rl.errors import report_errors


@report_errors
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--token-s", type=float, default=0.02, help="seconds a token of the median turn")
    parser.add_argument("--sigma", type=float, default=1.5, help="spread of the turns' log speeds; 0: all are equally fast")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a new directory to keep both runs in")
    arguments = parser.parse_args()

    from napmem_rl.backend.async_benchmark import Load, compare_async

    load = Load(token_s=arguments.token_s, sigma=arguments.sigma, steps=arguments.steps, seed=arguments.seed)
    with tempfile.TemporaryDirectory() as scratch:
        result = compare_async(load, arguments.out or Path(scratch))
    print(result.as_json() if arguments.json else result)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
