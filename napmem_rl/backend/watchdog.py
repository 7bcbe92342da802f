"""The driver's wait for its job: passes on the wish to stop, and gives up a job that hangs or lost an actor, with the stacks of what is left."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from napmem_rl.atomic import write_file
from napmem_rl.backend.death_watch import describe_deaths, list_nodes
from napmem_rl.backend.job_control import Progress
from napmem_rl.backend.stacks import collect_stacks
from napmem_rl.config.sections import JobConfig
from napmem_rl.errors import BackendError, JobStopped

logger = logging.getLogger(__name__)

POLL_S = 1.0
READ_INTERVAL_S = 5.0
READ_TIMEOUT_S = 30.0
SILENCE_TIMEOUT_S = 600.0  # of a control actor that lives but does not answer: a busy machine is no reason to end a job
REPEAT_S = 1.0  # signals within it are one: `timeout` and others send a process and its group the same signal
DEATH_GRACE_S = 20.0  # for the trainer to fail by itself, with a better message, after an actor died
COLLECT_TIMEOUT_S = 30.0  # for a node's stacks
SHUTDOWN_TIMEOUT_S = 45.0  # of Ray, after a job that was given up
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class StopRequest:
    """Set by signals: the first asks the job to save and stop, the second to end at once. Ray would swallow an exception raised in a handler."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.exit_code: int | None = None
        self._since = 0.0

    def take(self, number: int) -> None:
        """A signal came."""
        if self.reason is None:
            self.reason, self._since = signal.Signals(number).name, time.monotonic()
        elif self.is_settled:
            self.exit_code = 128 + number

    @property
    def is_settled(self) -> bool:
        """Whether a signal came, and another one would be a second."""
        return self.reason is not None and time.monotonic() - self._since >= REPEAT_S

    def raise_if_stopped(self) -> None:
        """For the time before the trainer exists: nothing is there that could be saved.

        Raises:
            JobStopped: a signal came.
        """
        if self.reason is not None:
            raise JobStopped.of("job", f"stopped by {self.reason} before its first step", fix="The same command starts it again.")


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Within the block SIGTERM and SIGUSR1 ask the job to save and stop; the second one of them ends this process at once.

    Outside the main thread, where Python allows no handlers, nothing changes.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    before = {number: signal.signal(number, lambda number, _: request.take(number)) for number in STOP_SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def keep_sigterm() -> Iterator[None]:
    """Around `ray.init`, which puts a handler in the place of SIGTERM's that ends the process with exit code 15: afterwards the old one is back.

    Raises:
        JobStopped: SIGTERM came meanwhile.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit as stopped:
        if stopped.code != signal.SIGTERM:
            raise
        raise JobStopped.of("job", "stopped by SIGTERM while Ray started", fix="The same command starts it again.") from None
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


class Watchdog:
    """Waits for one job."""

    def __init__(self, control: Any, *, job: JobConfig, stacks_dir: str, run_dir: Path, may_force: bool = True) -> None:
        """Args:
            control: handle of the job's `JobControl`.
            job: its timeouts.
            stacks_dir: see `napmem_rl.backend.stacks`.
            run_dir: gets stacks.txt where the job is given up.
            may_force: end this process where Ray does not shut down; False where Ray belongs to the caller and is left running.
        """
        self._control = control
        self._job = job
        self._stacks_dir = stacks_dir
        self._run_dir = run_dir
        self._may_force = may_force
        self._death_since: float | None = None
        self._heard = time.monotonic()

    def wait(self, done: Any, request: StopRequest) -> None:
        """Return when the job has ended.

        Args:
            done: reference of the trainer's run.
            request: see `stop_on_signals`.

        Raises:
            SystemExit: a second signal came.
            JobStopped: a signal came before the first step.
            ray.exceptions.RayError: the trainer failed.
            BackendError: the job hangs, or an actor of it died and the trainer did not notice.
        """
        is_told, next_read = False, time.monotonic() + READ_INTERVAL_S
        while not ray.wait([done], timeout=POLL_S)[0]:
            if request.exit_code is not None:
                self._force_exit_after(SHUTDOWN_TIMEOUT_S, request.exit_code)
                raise SystemExit(request.exit_code)
            if request.is_settled and not is_told:
                self._pass_on(request)
                is_told = True
            if time.monotonic() >= next_read:
                problem = self._find_problem()
                if problem is not None:
                    raise self._give_up(problem)
                next_read = time.monotonic() + READ_INTERVAL_S
        ray.get(done)

    def _pass_on(self, request: StopRequest) -> None:
        progress = self._read()
        if progress is not None and not progress.is_training:
            request.raise_if_stopped()
        print(f"notice: got {request.reason}: the job saves after the step it is in, and stops; a second signal ends it at once", flush=True)
        self._control.request_stop.remote(request.reason)

    def _read(self) -> Progress | None:
        """The trainer's progress; None where the control actor is too busy to answer. Raises RayError where it is gone."""
        try:
            progress: Progress = ray.get(self._control.read.remote(), timeout=READ_TIMEOUT_S)
        except ray.exceptions.GetTimeoutError:
            return None
        self._heard = time.monotonic()
        return progress

    def _find_problem(self) -> str | None:
        try:
            progress = self._read()
        except ray.exceptions.RayError as error:
            return f"lost its control actor ({type(error).__name__})"
        if progress is None:
            silence = time.monotonic() - self._heard
            return f"got no answer from its control actor for {silence:.0f} s" if silence > SILENCE_TIMEOUT_S else None
        if progress.deaths:
            self._death_since = self._death_since or time.monotonic()
            if time.monotonic() - self._death_since > DEATH_GRACE_S:
                return f"lost {describe_deaths(progress.deaths)}"
        if not progress.is_training and progress.age_s > self._job.start_timeout_s:
            return f"did not begin its first step within {self._job.start_timeout_s:.0f} s (job.start_timeout_s)"
        if progress.is_training and progress.age_s > self._job.stall_timeout_s:
            where = f"step {progress.step}, after {progress.after}"
            return f"gave no sign of life for {self._job.stall_timeout_s:.0f} s (job.stall_timeout_s; the last: {where})"
        return None

    def _give_up(self, problem: str) -> BackendError:
        """Collect the stacks of every node, and make sure that this process ends even if Ray or the disk does not let go."""
        print(f"notice: the job {problem}: giving it up, and collecting the stacks of its processes", flush=True)
        self._force_exit_after(COLLECT_TIMEOUT_S + SHUTDOWN_TIMEOUT_S, 2)
        path = self._run_dir / "stacks.txt"
        try:
            write_file(path, "\n".join(self._collect()))
        except (OSError, RuntimeError, ray.exceptions.RayError) as error:
            return BackendError.of("training job", problem, fix=f"The stacks of its processes could not be collected ({type(error).__name__}: {error}).")
        return BackendError.of("training job", problem, fix=f"Stacks of its processes: {path}")

    def _force_exit_after(self, seconds: float, exit_code: int) -> None:
        if self._may_force:
            force_exit_after(seconds, exit_code)

    def _collect(self) -> list[str]:
        nodes = list_nodes()
        collect = ray.remote(num_cpus=0, max_retries=0)(collect_stacks)
        refs = {
            collect.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)).remote(self._stacks_dir): node_id
            for node_id in nodes
        }
        ready, late = ray.wait(list(refs), num_returns=len(refs), timeout=COLLECT_TIMEOUT_S)
        lines = [f"node {nodes[refs[ref]]}: did not answer within {COLLECT_TIMEOUT_S:.0f} s\n" for ref in late]
        for ref in ready:
            try:
                stacks = ray.get(ref)
            except ray.exceptions.RayError as error:
                lines.append(f"node {nodes[refs[ref]]}: {type(error).__name__}: {error}\n")
                continue
            lines += [f"node {nodes[refs[ref]]}, process {name}\n{stack}\n" for name, stack in stacks.items()]
        return lines


def force_exit_after(seconds: float, exit_code: int) -> None:
    """End this process if it still holds on to Ray after so many seconds."""

    def end() -> None:
        if not ray.is_initialized():
            return  # Ray did shut down; the caller goes on
        print(f"error: Ray did not shut down within {seconds:.0f} s; ending by force", flush=True)
        os._exit(exit_code)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
