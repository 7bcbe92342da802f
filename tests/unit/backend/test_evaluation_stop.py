"""A signal ends an evaluation in bounded time, also where a thread is busy that nothing can cancel."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

BUSY = """
import asyncio, threading, time
from napmem_rl.backend.evaluate import stop_on_signal

async def main():
    with stop_on_signal(print, grace_s={grace_s}) as (stop, received):
        busy = asyncio.create_task(asyncio.to_thread(time.sleep, 120))
        print("ready", flush=True)
        await stop.wait()
        busy.cancel()
    print("in order", flush=True)

asyncio.run(main())
"""


def start(grace_s: float) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", BUSY.format(grace_s=grace_s)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_signal_leaves_after_the_grace(number: signal.Signals) -> None:
    process = start(grace_s=0.5)
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.startswith("in order\n") and "what is answered is kept" in said


def test_a_second_signal_leaves_at_once() -> None:
    process = start(grace_s=300)
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None and process.stdout.readline() == "in order\n"
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=60)
    assert process.returncode in (128 + signal.SIGTERM, -signal.SIGTERM)
