"""RMM: live through users' sessions, `python launch/rmm.py RECIPE [key=value …]`, or learn from a run that is finished, `… RECIPE --from RUN [key=value …]`.

RUN is the directory of a training run (GRPO, MemChain) or of an evaluation whose banks lie in data.dir: search results that were opened or cited later count as
cited. See recipes/rmm/ and napmem_rl/systems/rmm/README.md.

Exit codes: 0 done; 1 some users could not be finished (the same command goes on with them); 2 something cannot be used.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from pathlib import Path

from napmem_rl.config.rmm_recipe import load_rmm_recipe
from napmem_rl.errors import report_errors


@report_errors
def main() -> int:
    """Load, check, run, print the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", help="YAML file, e.g. recipes/rmm/smoke.yaml")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="override one key, e.g. data.dir=DIR")
    parser.add_argument("--from", dest="run", type=Path, metavar="RUN", help="learn from this finished run instead")
    arguments = parser.parse_intermixed_args()
    recipe = load_rmm_recipe(arguments.recipe, arguments.overrides)
    report = functools.partial(print, file=sys.stderr, flush=True)
    if arguments.run is not None:
        from napmem_rl.backend.rmm_trajectories import learn_from_run  # imports what takes seconds

        print(json.dumps(learn_from_run(recipe, arguments.run, report=report), indent=2))
        return 0
    from napmem_rl.backend.rmm_online import run_online

    summary = run_online(recipe, report=report)
    print(json.dumps(summary, indent=2))
    return 1 if summary["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
