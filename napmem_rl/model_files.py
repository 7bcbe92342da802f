"""Which model lies in a directory, told by the edges of its weight files: sizes, and the first and last megabyte of each. It takes no time with large models.

What changes in the middle of a file alone, at the same size, is not seen: training changes all of a file.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

_WEIGHTS = ("*.safetensors", "*.bin")
_SHARDS = "model_world_size_*.pt"  # verl's checkpoints
_EDGE_BYTES = 1 << 20


def fingerprint_weights(model: str | None) -> str | None:
    """64 hex digits that change with the weights anywhere below a directory, by which an evaluation knows its model again.

    Of a run directory all checkpoints count: one more is another model. None where there is no directory.
    """
    directory = Path(model).expanduser() if model else None
    if directory is None or not directory.is_dir():
        return None
    digest = hashlib.sha256()
    for path in sorted(path for pattern in (*_WEIGHTS, _SHARDS) for path in directory.rglob(pattern)):
        digest.update(f"{path.relative_to(directory)} {path.stat().st_size}\n".encode())
        digest.update(_read_edges(path))
    return digest.hexdigest()


def fingerprint_model(directory: Path) -> str:
    """Twelve hex digits that change with configuration and weights of a HuggingFace directory; part of the names of vectors and metrics."""
    digest = hashlib.sha256((directory / "config.json").read_bytes())
    for path in (path for pattern in _WEIGHTS for path in sorted(directory.glob(pattern))):
        digest.update(f"{path.name} {path.stat().st_size}".encode())
        digest.update(_read_edges(path))
    return digest.hexdigest()[:12]


def _read_edges(path: Path) -> bytes:
    """The first and the last megabyte of a file; a shorter file stands there twice."""
    with path.open("rb") as file:
        first = file.read(_EDGE_BYTES)
        file.seek(max(0, path.stat().st_size - _EDGE_BYTES))
        return first + file.read(_EDGE_BYTES)
