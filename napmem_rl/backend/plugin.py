"""What napmem_rl adds to verl, registered in every process of a job.

verl imports this module at the end of ``import verl`` (``VERL_USE_EXTERNAL_MODULES=napmem_rl.backend.plugin``, which must stand in Ray's runtime_env
together with ``VERL_PLATFORM``: losses, engines and replicas are looked up in worker processes). It must import verl before anything else of ours, because
unpickling one of our classes in a fresh worker imports us first, and it may run twice in a process: every registration is idempotent.
"""

from __future__ import annotations

import verl  # noqa: F401  (must be first)

from napmem_rl.algos.packing import register_packed_attention
from napmem_rl.backend.rollout_transformers import register_rollout
from napmem_rl.platforms import cpu

ROLLOUT_NAME = "transformers"


def register_platform() -> None:
    """The CPU platform, its process group and its engines; the last two only where the job asks for the platform (importing cpu has entered its name)."""
    if not cpu.is_cpu_requested():
        return
    cpu.use_gloo_alone()
    from napmem_rl.platforms.cpu_engine import register_engines

    register_engines()


# --- platform, engine --------------------------------------------------------------------------------------------------------------------------------
register_platform()

# --- attention for packed batches, rollout server ----------------------------------------------------------------------------------------------------
register_packed_attention()
register_rollout()

# --- agent loop, losses ------------------------------------------------------------------------------------------------------------------------------
