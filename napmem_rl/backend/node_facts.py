"""What one node of a cluster sees of a job's inputs. `look` runs on each node; `find_differences` compares its answer with the driver's."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import napmem_rl
from napmem_rl.backend.bank_cache import find_banks_dir
from napmem_rl.backend.cluster_needs import GIB
from napmem_rl.config.provenance import find_versions
from napmem_rl.errors import BankError
from napmem_rl.memory.bank_store import compute_stored_version
from napmem_rl.memory.storage import find_bank_dir

MAX_HASHED_BYTES = 64 << 20  # larger files (weights) are compared by size
REACH_TIMEOUT_S = 10.0
MAX_NAMED = 5  # banks and files that one sentence names


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What a node is to look at. `paths`: what the recipe points to, by key; `judge_url` is None for a judge without an endpoint."""

    banks_dir: str
    bank_ids: tuple[str, ...]
    paths: Mapping[str, str]
    run_dir: str
    shared_file: str  # of the run directory, written by the driver
    judge_url: str | None
    judge_key: str | None  # NAME of the environment variable with the key


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFacts:
    """What a node found. `banks`: version by bank id, or what is wrong, in words; `files`: digest or size by file name, by key of the recipe."""

    versions: Mapping[str, str]
    code: str  # digest of this package's files
    code_path: str
    banks_dir: str
    banks: Mapping[str, str]
    files: Mapping[str, Mapping[str, str]]
    run_dir_problem: str | None
    free_disk_bytes: int
    free_shm_bytes: int
    judge_problem: str | None


def look(question: Question) -> NodeFacts:
    """Look at everything the question names, from this node and with this process's environment. Nothing raises: what is wrong becomes words."""
    banks_dir = find_banks_dir(question.banks_dir)
    return NodeFacts(
        versions=find_versions(),
        code=compute_code_version(),
        code_path=str(Path(napmem_rl.__file__).parent),
        banks_dir=str(banks_dir),
        banks={bank_id: read_bank_version(find_bank_dir(banks_dir, bank_id)) for bank_id in question.bank_ids},
        files={key: fingerprint(Path(path).expanduser()) for key, path in question.paths.items()},
        run_dir_problem=check_run_dir(Path(question.run_dir), question.shared_file),
        free_disk_bytes=_free_bytes(Path(question.run_dir)),
        free_shm_bytes=_free_bytes(Path("/dev/shm")),
        judge_problem=check_endpoint(question.judge_url, question.judge_key) if question.judge_url else None,
    )


def find_differences(reference: NodeFacts, facts: NodeFacts, bank_versions: Mapping[str, str]) -> list[str]:
    """How a node differs from where the job was checked, one sentence each.

    Args:
        reference: what the driver found.
        facts: what the node found.
        bank_versions: content version that each bank must have.
    """
    problems = []
    for package in sorted({*reference.versions, *facts.versions}):
        here, there = reference.versions.get(package, "absent"), facts.versions.get(package, "absent")
        if here != there:
            problems.append(f"{package}: {there} here, {here} where the job was started")
    if facts.code != reference.code:
        problems.append(f"code of napmem_rl: {facts.code_path} here is not what {reference.code_path} was where the job was started")
    problems += _compare_banks(facts, bank_versions)
    for key, files in reference.files.items():
        problems += [f"{key}: {problem}" for problem in _compare_files(files, facts.files.get(key, {}))]
    if facts.run_dir_problem:
        problems.append(facts.run_dir_problem)
    return problems


def _compare_banks(facts: NodeFacts, wanted: Mapping[str, str]) -> list[str]:
    missing = [bank_id for bank_id in wanted if facts.banks.get(bank_id) == "missing"]
    broken = [f"{bank_id} ({found})" for bank_id in wanted if (found := facts.banks.get(bank_id, "missing")).startswith("unreadable")]
    rest = [bank_id for bank_id in wanted if bank_id not in missing and not facts.banks.get(bank_id, "").startswith("unreadable")]
    other = [f"{bank_id} ({facts.banks[bank_id]}, expected {wanted[bank_id]})" for bank_id in rest if facts.banks[bank_id] != wanted[bank_id]]
    kinds = (("missing", missing), ("unreadable", broken), ("of another content", other))
    return [f"banks in {facts.banks_dir}: {len(names)} of {len(wanted)} {what}: {_some(names)}" for what, names in kinds if names]


def _compare_files(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    missing = [name for name in wanted if name not in found]
    other = [name for name in wanted if name in found and found[name] != wanted[name]]
    return [f"{what}: {_some(names)}" for what, names in (("missing", missing), ("differs", other)) if names]


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:MAX_NAMED])
    return shown if len(names) <= MAX_NAMED else f"{shown} and {len(names) - MAX_NAMED} more"


def read_bank_version(path: Path) -> str:
    """Content version of a bank by the bytes that are there; "missing", or "unreadable: why". Hashes alone: what a bank says is checked on the driver."""
    if not path.is_dir():
        return "missing"
    try:
        return compute_stored_version(path)
    except OSError as error:
        return f"unreadable: {Path(error.filename or path).name}: {error.strerror or error}"
    except BankError as error:
        return f"unreadable: {error.message}"


def compute_code_version() -> str:
    """Twelve hex digits over the files of this package, so that an old checkout on one node is seen."""
    root = Path(napmem_rl.__file__).parent
    digest = hashlib.sha256()
    for path in sorted([*root.rglob("*.py"), *root.rglob("*.yaml")]):
        digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def fingerprint(path: Path) -> dict[str, str]:
    """A digest (small files) or size (large ones) of a file, or of each file of a directory, by name; empty where nothing is there."""
    if path.is_file():
        return {str(path): _digest(path)}
    return {str(file): _digest(file) for file in sorted(path.glob("*")) if file.is_file()}


def _digest(path: Path) -> str:
    try:
        size = path.stat().st_size
        return f"{size} bytes" if size > MAX_HASHED_BYTES else hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        return f"unreadable: {error.strerror}"


def check_run_dir(run_dir: Path, shared_file: str) -> str | None:
    """What keeps this node from reading what the driver wrote into the run directory, or from writing there; None where nothing does."""
    if not (run_dir / shared_file).is_file():
        return f"run directory {run_dir}: {shared_file}, written by the driver, is not seen here; put trainer.default_local_dir on a path that all nodes share"
    probe = run_dir / f".probe-{uuid.uuid4().hex}"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        return f"run directory {run_dir}: cannot be written from here ({error.strerror})"
    return None


def check_endpoint(url: str, key: str | None) -> str | None:
    """Whether an HTTP endpoint answers at all, with whatever status, through the proxies that this process is told of; None where it does."""
    if key and not os.environ.get(key):
        return f"judge: the environment variable {key} with its key is not set here"
    try:
        with urllib.request.urlopen(url, timeout=REACH_TIMEOUT_S):
            return None
    except urllib.error.HTTPError:
        return None
    except (OSError, ValueError) as error:
        return f"judge: {url} is not reachable from here ({getattr(error, 'reason', error)})"


def find_disk_problem(facts: NodeFacts, *, checkpoint_bytes: int, kept: int) -> tuple[str | None, str | None]:
    """Returns (problem, notice): no room for one checkpoint, or none for all that will be kept."""
    free = facts.free_disk_bytes
    sizes = f"{free / GIB:.1f} GiB free, one checkpoint takes about {checkpoint_bytes / GIB:.1f} GiB"
    if checkpoint_bytes and free < checkpoint_bytes:
        return f"run directory: {sizes}", None
    if free < checkpoint_bytes * kept:
        return None, f"run directory: {sizes}, and {kept} are kept; see job.keep_checkpoints"
    return None, None


def _free_bytes(path: Path) -> int:
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def open_listener(address: str) -> socket.socket:
    """A socket that listens on a free port of `address`, as torch's rendezvous will."""
    return socket.create_server((address, 0))


def reach(address: str, port: int, timeout_s: float = REACH_TIMEOUT_S) -> str | None:
    """None where a connection opens, else why not."""
    try:
        socket.create_connection((address, port), timeout=timeout_s).close()
    except OSError as error:
        return str(error)
    return None
