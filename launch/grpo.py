"""Train a policy with GRPO: `python launch/grpo.py RECIPE [key=value …] [--dry-run]`. The same as `napmem grpo …`.

--dry-run prints what would run (our sections, and verl's keys that differ from its defaults), checks every path, and starts nothing.
"""

from __future__ import annotations

import sys

from napmem_rl.cli import main

if __name__ == "__main__":
    sys.exit(main(["grpo", *sys.argv[1:]]))
