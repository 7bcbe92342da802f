"""Time the CPU path: `python launch/bench.py packing|rollout [--model DIR] [--threads N]`. Prints seconds, ratio and how far log-probs are apart."""

from __future__ import annotations

import argparse
from pathlib import Path

MIN_PACKING_RATIO = 1.3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["packing", "rollout"])
    parser.add_argument("--model", type=Path, help="a HuggingFace directory; default: a random llama of 0.93M parameters")
    parser.add_argument("--count", type=int, help="sequences or prompts")
    parser.add_argument("--longest", type=int, default=250, help="tokens of the longest one")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()

    import torch

    from napmem_rl.backend.benchmarks import compare_packing, compare_rollout

    torch.set_num_threads(arguments.threads)
    options = {"longest": arguments.longest, "repeats": arguments.repeats}
    if arguments.count:
        options["count"] = arguments.count
    if arguments.what == "rollout":
        print(compare_rollout(arguments.model, **options))
        return 0
    result = compare_packing(arguments.model, **options)
    print(f"{result}; at least {MIN_PACKING_RATIO} x is expected")
    return 0 if result.ratio >= MIN_PACKING_RATIO else 1


if __name__ == "__main__":
    raise SystemExit(main())
