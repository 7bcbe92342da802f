"""What stands in weight files, without reading the weights."""

from __future__ import annotations

from pathlib import Path


def read_tensors(path: Path) -> list[tuple[str, tuple[int, ...]]]:
    """Dtype, as the file names it ("F32"), and shape of each tensor of a safetensors file."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        slices = [file.get_slice(name) for name in file.keys()]  # noqa: SIM118 (not a mapping)
        return [(one.get_dtype(), tuple(one.get_shape())) for one in slices]
