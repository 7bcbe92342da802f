"""Names that keep apart jobs which share a cluster or a machine: verl and TransferQueue take fixed ones, and a job would take rows or weights of another."""

from __future__ import annotations

import os
from typing import Any

JOB_VARIABLE = "NAPMEM_JOB"  # in the environment of all processes of a job: its name, new at each start


def find_job_name() -> str | None:
    """Name of the job that this process belongs to; None outside of one."""
    return os.environ.get(JOB_VARIABLE) or None


def separate_queue(interface: Any) -> None:
    """Let TransferQueue have its controller in a namespace of this job. A second call, or one outside a job, changes nothing.

    Args:
        interface: the module `transfer_queue.interface`, which creates and looks up the controller under one name for the whole cluster.
    """
    job_name = find_job_name()
    if job_name is None or isinstance(interface.ray, _JobsRay):
        return
    namespace = f"transfer_queue_{job_name}"
    interface.ray = _JobsRay(interface.ray, namespace)
    interface.TransferQueueController = _JobsActorClass(interface.TransferQueueController, namespace)


class _JobsRay:
    """The module `ray`, but actors are looked up in one namespace, whichever is asked for."""

    def __init__(self, ray: Any, namespace: str) -> None:
        self._ray = ray
        self._namespace = namespace

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ray, name)

    def get_actor(self, name: str, namespace: str | None = None) -> Any:
        """See `ray.get_actor`."""
        return self._ray.get_actor(name, namespace=self._namespace)


class _JobsActorClass:
    """An actor class, but its actors are named in one namespace, whichever is asked for."""

    def __init__(self, actor_class: Any, namespace: str) -> None:
        self._actor_class = actor_class
        self._namespace = namespace

    def __getattr__(self, name: str) -> Any:
        return getattr(self._actor_class, name)

    def options(self, **options: Any) -> Any:
        """See Ray's `ActorClass.options`."""
        return self._actor_class.options(**options | {"namespace": self._namespace})
