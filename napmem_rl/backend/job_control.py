"""What the driver and the trainer of one job tell each other: signs of life one way, the wish to stop the other."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from napmem_rl.errors import BackendError

CALL_TIMEOUT_S = 600.0  # a busy machine is no reason to end a job; an actor that is gone fails a call at once


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """The trainer's last sign of life: how long ago (seconds), at which step, after what; whether training has begun; actors that died, in Ray's words."""

    age_s: float
    step: int
    after: str
    is_training: bool
    deaths: Mapping[str, str]


class JobControl:
    """The body of a small actor. It stands beside the trainer's actor because that one is busy with training until its end."""

    def __init__(self) -> None:
        self._beat = (time.monotonic(), 0, "start")
        self._is_training = False
        self._stop_reason: str | None = None
        self._deaths: dict[str, str] = {}

    def beat(self, step: int, after: str) -> str | None:
        """A sign of life; the first one says that training has begun. Returns why the job is to stop, or None."""
        self._beat, self._is_training = (time.monotonic(), step, after), True
        return self._stop_reason

    def request_stop(self, reason: str) -> None:
        """Ask the trainer to save and stop after the step it is in."""
        self._stop_reason = self._stop_reason or reason

    def report_death(self, name: str, words: str) -> None:
        """An actor of the job died."""
        self._deaths[name] = words

    def read(self) -> Progress:
        """The last sign of life, and who died."""
        at, step, after = self._beat
        return Progress(age_s=time.monotonic() - at, step=step, after=after, is_training=self._is_training, deaths=dict(self._deaths))


def start_control(job_name: str) -> Any:
    """Start the actor on the driver's node; it dies with the driver, and with no other node.

    Args:
        job_name: keeps jobs that share a cluster apart.
    """
    here = NodeAffinitySchedulingStrategy(node_id=ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(JobControl).options(name=control_name(job_name), num_cpus=0, max_restarts=0, scheduling_strategy=here).remote()


def control_name(job_name: str) -> str:
    """Ray's name of the actor."""
    return f"napmem_control_{job_name}"


class TrainerLink:
    """The trainer's end."""

    def __init__(self, job_name: str) -> None:
        try:
            self._actor = ray.get_actor(control_name(job_name))
        except ValueError as error:
            raise BackendError.of(f"job {job_name}", "has no control actor", fix="Start the job with launch/grpo.py.") from error

    def beat(self, step: int, after: str) -> str | None:
        """See `JobControl.beat`.

        Raises:
            BackendError: the control actor, and with it the driver, is gone or does not answer.
        """
        try:
            return ray.get(self._actor.beat.remote(step, after), timeout=CALL_TIMEOUT_S)
        except ray.exceptions.GetTimeoutError as error:
            raise BackendError.of("control actor on the driver's node", f"did not answer within {CALL_TIMEOUT_S:.0f} s: training stops") from error
        except ray.exceptions.RayError as error:
            raise BackendError.of("driver", f"is gone ({type(error).__name__}): training stops") from error

    def report_death(self, name: str, words: str) -> None:
        """See `JobControl.report_death`; does not wait."""
        self._actor.report_death.remote(name, words)
