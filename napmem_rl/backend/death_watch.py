"""Notices that an actor of the job died, also while nobody waits for it: verl would wait for its work for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from typing import Any

import ray

from napmem_rl.errors import BackendError, NapMemError

CHECK_INTERVAL_S = 3.0
DEATH_NOTICE_S = 10.0  # by then Ray has failed the calls that are pending on an actor that died
NODE_NOTICE_S = 20.0  # by then Ray has noticed that a node is gone; a call to an actor there can fail earlier


class DeathWatch:
    """Keeps one small call pending on each actor; an actor that dies fails it at once, however busy it was.

    Actors that Ray restarts are merely unavailable for a while and do not count as dead.
    """

    def __init__(self) -> None:
        self._actors: dict[str, Any] = {}
        self._pending: dict[Any, str] = {}
        self._dead: dict[str, str] = {}
        self._lock = threading.Lock()

    def add(self, name: str, actor: Any) -> None:
        """Watch one more actor from now on.

        Args:
            name: for people, e.g. "learner 0".
            actor: its handle.
        """
        with self._lock:
            self._actors[name] = actor
            self._pending[_ping(actor)] = name

    def find_dead(self) -> dict[str, str]:
        """Ray's words by name of each actor that has died."""
        with self._lock:
            done = ray.wait(list(self._pending), num_returns=len(self._pending), timeout=0)[0] if self._pending else []
            for ref in done:
                name = self._pending.pop(ref)
                try:
                    ray.get(ref)
                except ray.exceptions.RayError as error:
                    if means_death(error):
                        self._dead[name] = " ".join(str(error).split())[:500]
                        continue
                self._pending[_ping(self._actors[name])] = name
            return dict(self._dead)

    def forget(self, names: Collection[str]) -> None:
        """Watch these actors no longer, since their end is wanted; one that died before stays dead."""
        self.find_dead()
        with self._lock:
            self._pending = {ref: name for ref, name in self._pending.items() if name not in names}

    def wait_for_dead(self, timeout_s: float = DEATH_NOTICE_S) -> dict[str, str]:
        """`find_dead`, as soon as it finds one; for where something failed and it is to be known why. Empty after `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        while not (dead := self.find_dead()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return dead


def means_death(error: Exception) -> bool:
    """Whether a call failed because its actor is gone. Ray has other errors for that beside `RayActorError`: of one that was killed for want of memory, or
    whose placement group or node went.

    Args:
        error: what a call raised.
    """
    alive = (ray.exceptions.ActorUnavailableError, ray.exceptions.RayTaskError)  # being restarted; the call itself failed
    return isinstance(error, ray.exceptions.RayError) and not isinstance(error, alive)


def find_origin(error: BaseException) -> BaseException:
    """What a call really raised, out of Ray's wrapping by each actor that it passed through."""
    while isinstance(error, ray.exceptions.RayTaskError) and error.cause is not None:
        error = error.cause
    return error


def describe_deaths(deaths: Mapping[str, str]) -> str:
    """Actors that died, by name with Ray's words, in one line."""
    return "; ".join(f"{name} ({words})" for name, words in deaths.items())


def list_nodes() -> dict[str, str]:
    """Address by id of each node of the cluster that is alive."""
    return {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}


def find_lost_nodes(before: Mapping[str, str], *, timeout_s: float = NODE_NOTICE_S) -> list[str]:
    """Addresses of the nodes that are no longer alive, as soon as there is one; empty where all still are after the timeout.

    Args:
        before: what `list_nodes` gave earlier.
        timeout_s: how long to wait for Ray to notice.
    """
    if len(before) < 2:
        return []  # the only node is this one
    deadline = time.monotonic() + timeout_s
    while True:
        lost = sorted(before[node_id] for node_id in before.keys() - list_nodes().keys())
        if lost or time.monotonic() > deadline:
            return lost
        time.sleep(0.5)


def name_dead(error: Exception, *, timeout_s: float = DEATH_NOTICE_S) -> NapMemError | None:
    """An error that names the actors that died, where that is what failed the trainer: Ray's own often does not say which one it was, and of a peer that lost
    its connection, or a server whose engine is gone, no error of Ray's speaks at all.

    Args:
        error: what the trainer raised.
        timeout_s: how long to wait for Ray to notice.

    Returns:
        None where no watched actor died, so that `error` says all there is, and for errors of this project, which say it better.
    """
    if isinstance(find_origin(error), NapMemError):
        return None
    dead = WATCH.wait_for_dead(timeout_s)
    if not dead:
        return None
    return BackendError.of("training job", f"lost {describe_deaths(dead)}", fix="The same command goes on from the last checkpoint.")


def _ping(actor: Any) -> Any:
    return actor.__ray_call__.remote(_answer)


def _answer(actor: Any) -> None:
    """Runs inside the actor."""


WATCH = DeathWatch()  # of the trainer's process


def report_deaths(report: Any, stop: threading.Event) -> None:
    """Body of a thread of the trainer's process: tell the control actor of each death, until `stop` is set.

    Args:
        report: called with (name, Ray's words), once for each actor.
        stop: ends the thread.
    """
    told: set[str] = set()
    while not stop.wait(CHECK_INTERVAL_S):
        for name, words in WATCH.find_dead().items():
            if name not in told:
                told.add(name)
                report(name, words)
