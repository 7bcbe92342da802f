"""Wait until a Ray cluster has so many nodes: `python launch/wait_for_nodes.py ADDRESS NODES [--timeout S]`, on a node of the cluster.

Exit codes: 0 they are there, 1 they are not when time is up (one line on stderr says how many are).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import ray


def count_nodes(address: str) -> int:
    """Living nodes of the cluster; 0 where nobody answers yet."""
    try:
        if not ray.is_initialized():
            ray.init(address=address, logging_level="ERROR", log_to_driver=False)
        return sum(1 for node in ray.nodes() if node["Alive"])
    except (ConnectionError, RuntimeError, ray.exceptions.RaySystemError) as error:
        print(f"[nodes] no answer from {address} yet ({type(error).__name__})", file=sys.stderr, flush=True)
        return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask until there are enough, saying how many there are. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Wait until a Ray cluster has so many nodes.")
    parser.add_argument("address", help="host:port of the head")
    parser.add_argument("nodes", type=int)
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds (600)")
    options = parser.parse_args(arguments)
    started, said = time.monotonic(), -1
    while (there := count_nodes(options.address)) < options.nodes:
        if time.monotonic() - started >= options.timeout:
            print(f"error: {there} of {options.nodes} nodes joined {options.address} within {options.timeout:.0f} s", file=sys.stderr)
            return 1
        if there != said:
            print(f"[nodes] {there} of {options.nodes} nodes", file=sys.stderr, flush=True)
            said = there
        time.sleep(2.0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
