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
from napmem_rl.backend.job_control import Progress
from napmem_rl.backend.stacks import collect_stacks
from napmem_rl.config.sections import JobConfig
from napmem_rl.errors import BackendError

logger = logging.getLogger(__name__)

POLL_S = 1.0
READ_INTERVAL_S = 5.0
READ_TIMEOUT_S = 30.0
DEATH_GRACE_S = 20.0  # for the trainer to fail by itself, with a better message, after an actor died
COLLECT_TIMEOUT_S = 30.0  # for a node's stacks
SHUTDOWN_TIMEOUT_S = 45.0  # of Ray, after a job that was given up
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class StopRequest:
    """Set by signals: the first asks the job to save and stop, the second to end at once. Ray would swallow an exception raised in a handler."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.exit_code: int | None = None


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Within the block SIGTERM and SIGUSR1 ask the job to save and stop; the second one of them ends this process at once.

    Outside the main thread, where Python allows no handlers, nothing changes.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def handle(number: int, frame: Any) -> None:
        if request.reason is not None:
            request.exit_code = 128 + number
        request.reason = request.reason or signal.Signals(number).name

    before = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Watchdog:
    """Waits for one job."""

    def __init__(self, control: Any, *, job: JobConfig, stacks_dir: str, run_dir: Path) -> None:
        """Args:
            control: handle of the job's `JobControl`.
            job: its timeouts.
            stacks_dir: see `napmem_rl.backend.stacks`.
            run_dir: gets stacks.txt where the job is given up.
        """
        self._control = control
        self._job = job
        self._stacks_dir = stacks_dir
        self._run_dir = run_dir
        self._death_since: float | None = None

    def wait(self, done: Any, request: StopRequest) -> None:
        """Return when the job has ended.

        Args:
            done: reference of the trainer's run.
            request: see `stop_on_signals`.

        Raises:
            SystemExit: a second signal came.
            ray.exceptions.RayError: the trainer failed.
            BackendError: the job hangs, or an actor of it died and the trainer did not notice.
        """
        is_told, next_read = False, time.monotonic() + READ_INTERVAL_S
        while not ray.wait([done], timeout=POLL_S)[0]:
            if request.exit_code is not None:
                force_exit_after(SHUTDOWN_TIMEOUT_S, request.exit_code)
                raise SystemExit(request.exit_code)
            if request.reason is not None and not is_told:
                print(f"notice: got {request.reason}: the job saves after the step it is in, and stops; a second signal ends it at once", flush=True)
                self._control.request_stop.remote(request.reason)
                is_told = True
            if time.monotonic() >= next_read:
                problem = self._find_problem()
                if problem is not None:
                    raise self._give_up(problem)
                next_read = time.monotonic() + READ_INTERVAL_S
        ray.get(done)

    def _find_problem(self) -> str | None:
        try:
            progress: Progress = ray.get(self._control.read.remote(), timeout=READ_TIMEOUT_S)
        except ray.exceptions.RayError as error:
            return f"lost its control actor ({type(error).__name__})"
        if progress.deaths:
            self._death_since = self._death_since or time.monotonic()
            if time.monotonic() - self._death_since > DEATH_GRACE_S:
                return "lost " + "; ".join(f"{name} ({words})" for name, words in progress.deaths.items())
        if not progress.is_training and progress.age_s > self._job.start_timeout_s:
            return f"did not begin its first step within {self._job.start_timeout_s:.0f} s (job.start_timeout_s)"
        if progress.is_training and progress.age_s > self._job.stall_timeout_s:
            where = f"step {progress.step}, after {progress.after}"
            return f"gave no sign of life for {self._job.stall_timeout_s:.0f} s (job.stall_timeout_s; the last: {where})"
        return None

    def _give_up(self, problem: str) -> BackendError:
        """Collect the stacks of every node, and make sure that this process ends even if Ray does not let go."""
        path = self._run_dir / "stacks.txt"
        write_file(path, "\n".join(self._collect()))
        force_exit_after(SHUTDOWN_TIMEOUT_S, 2)
        return BackendError.of("training job", problem, fix=f"Stacks of its processes: {path}")

    def _collect(self) -> list[str]:
        nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
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
    """End this process if it is still there after so many seconds."""

    def end() -> None:
        print(f"error: Ray did not shut down within {seconds:.0f} s; ending by force", flush=True)
        os._exit(exit_code)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
