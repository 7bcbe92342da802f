"""A CPU platform for verl: the trainer of the GPU recipes on a machine without an accelerator.

Opt-in: verl takes it only where the environment says ``VERL_PLATFORM=cpu``. `CPUPlatform.is_platform_available` is False otherwise, so that verl's own
probing on a CPU-only head node of a GPU cluster never finds it. Ray's placement works unchanged on logical GPU slots (``ray_init.num_gpus``).

verl builds its process group with the backend string ``cpu:gloo,<device>:<backend>``; with the device "cpu" torch refuses it as a duplicate. That is the
one thing that must be replaced (`use_gloo_alone`); the engine's other need stands in `napmem_rl.platforms.cpu_engine`. Loaded by
`napmem_rl.backend.plugin`, never before it.
"""

from __future__ import annotations

import os
import resource
import types
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import verl.utils.distributed as verl_distributed
from verl.plugin.platform import PlatformBase, PlatformRegistry

PLATFORM_NAME = "cpu"
GLOO_BACKEND = "cpu:gloo"


def is_cpu_requested() -> bool:
    """True where the environment asks for this platform by name."""
    return os.environ.get("VERL_PLATFORM", "").strip().lower() == PLATFORM_NAME


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _free_and_total_bytes() -> tuple[int, int]:
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


def _build_device_module() -> types.ModuleType:
    """What verl reaches for in ``torch.<device>``. `is_available` is False so that verl's cache clearing returns at once; memory is the process's."""
    module = types.ModuleType("napmem_rl_cpu_device")
    for name in ("current_stream", "stream", "Stream", "StreamContext"):
        setattr(module, name, getattr(torch.cpu, name))
    for name in ("set_device", "synchronize", "empty_cache", "ipc_collect", "reset_peak_memory_stats", "set_per_process_memory_fraction"):
        setattr(module, name, lambda *args, **kwargs: None)
    module.is_available = lambda: False
    module.current_device = lambda: torch.device("cpu")
    module.device_count = lambda: 1
    module.get_device_name = lambda *args: "CPU"
    module.memory_allocated = module.memory_reserved = lambda *args: _resident_bytes()
    module.max_memory_allocated = module.max_memory_reserved = lambda *args: _peak_bytes()
    module.mem_get_info = lambda *args: _free_and_total_bytes()
    module.get_rng_state = lambda *args: torch.get_rng_state()
    module.set_rng_state = lambda state, *args: torch.set_rng_state(state)
    module.manual_seed = module.manual_seed_all = torch.manual_seed
    return module


_DEVICE_MODULE = _build_device_module()


@PlatformRegistry.register(platform=PLATFORM_NAME)
class CPUPlatform(PlatformBase):
    """verl's `PlatformBase` on plain torch. Collectives run over gloo, weights travel through Ray's object store."""

    @property
    def device_name(self) -> str:
        return PLATFORM_NAME

    @property
    def vendor_name(self) -> str:
        return PLATFORM_NAME

    @property
    def device_module(self) -> types.ModuleType:
        return _DEVICE_MODULE

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        """False unless asked for by name: auto-detection must never pick the CPU."""
        return is_cpu_requested()

    def current_device(self) -> torch.device:
        """A device, not an index: verl passes it to ``tensor.to``, where an integer would mean an accelerator."""
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        pass

    def synchronize(self, device_index: int | None = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        pass

    def profiler_stop(self) -> None:
        pass

    def ray_resource_name(self) -> str:
        """Logical GPU slots, declared when Ray starts; verl's placement groups ask for them by this name."""
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> Any:
        return None


def _initialize_process_group(timeout_second: int = 36000) -> tuple[int, int, int]:
    """verl's `initialize_global_process_group` (torchrun jobs: SFT) over gloo alone. Returns (local rank, rank, world size)."""
    torch.distributed.init_process_group(backend=GLOO_BACKEND, timeout=timedelta(seconds=timeout_second), init_method=os.environ.get("DIST_INIT_METHOD"))
    return int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def use_gloo_alone() -> None:
    """Replace the backend string of verl's two process-group starters. Call before anything imports them by name; a second call changes nothing."""
    original = verl_distributed.initialize_global_process_group_ray
    if getattr(original, "is_gloo_alone", False):
        return

    def initialize_global_process_group_ray(timeout_second: int | None = None, backend: str | None = None) -> None:
        original(timeout_second, backend or GLOO_BACKEND)

    initialize_global_process_group_ray.is_gloo_alone = True
    verl_distributed.initialize_global_process_group_ray = initialize_global_process_group_ray
    verl_distributed.initialize_global_process_group = _initialize_process_group
