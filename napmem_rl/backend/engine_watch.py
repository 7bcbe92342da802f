"""Notices that vLLM's engine process died. Its server, a Ray actor beside it, would live on, and whoever sends it weights would wait for ever."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

CHECK_INTERVAL_S = 1.0


def watch_engine(server: Any) -> bool:
    """Let a rollout server end with its engine, as a dead actor, which `death_watch` sees. Runs inside the server's actor; works with verl's own server too.

    Args:
        server: the actor's instance.

    Returns:
        whether it has an engine of vLLM to watch: the transformers server computes in its own process, and of a replica over several nodes one has it.
    """
    engine = getattr(server, "engine", None)
    if not hasattr(type(engine), "errored"):
        return False
    threading.Thread(target=_end_with, args=(engine,), name="engine_watch", daemon=True).start()
    return True


def _end_with(engine: Any) -> None:
    while not engine.errored:
        time.sleep(CHECK_INTERVAL_S)
    print("error: the engine process of this rollout server died: the server ends too", flush=True)
    os._exit(1)
