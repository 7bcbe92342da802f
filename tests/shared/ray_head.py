"""A cluster as `ray start --head` makes it, with token authentication, and its `ray` command."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from grpo_launch import ROOT


@dataclass(frozen=True)
class Head:
    """A running head: what its clients must know."""

    gcs_port: int
    dashboard: str
    env: dict[str, str] = field(repr=False)

    def ray(self, *arguments: str, timeout_s: float = 400, **env: str) -> subprocess.CompletedProcess[str]:
        """A `ray` command as a user of the cluster types it."""
        command = [str(Path(sys.executable).with_name("ray")), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env={**self.env, **env}, cwd=ROOT)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@contextlib.contextmanager
def start_head() -> Iterator[Head]:
    """`ray start --head` on ports and a directory of its own, ended as a process group."""
    directory = Path(tempfile.mkdtemp(prefix="nm", dir="/tmp"))  # short: paths of sockets have at most 107 characters
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "NAPMEM_")) and name != "PYTHONPATH"}
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(directory / "auth_token")}
    env = {**kept, **token, "PATH": f"{Path(sys.executable).parent}:{kept['PATH']}", "RAY_TMPDIR": str(directory), "JUDGE_KEY": "secret"}
    (directory / "auth_token").write_text(os.urandom(32).hex())
    (directory / "auth_token").chmod(0o600)
    gcs, dashboard, agent, client = free_ports(4)
    ports = [f"--port={gcs}", f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}", f"--ray-client-server-port={client}"]
    size = ["--num-cpus=16", "--num-gpus=2", "--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1", "--disable-usage-stats"]
    log = (directory / "head.log").open("w")
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", *ports, *size]
    process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True, cwd=ROOT)
    try:
        running = Head(gcs, f"http://127.0.0.1:{dashboard}", env)
        wait_for_dashboard(running, process, directory / "head.log")
        yield running
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=60)
        finally:
            with contextlib.suppress(ProcessLookupError):  # nobody of the group is left
                os.killpg(process.pid, signal.SIGKILL)
        shutil.rmtree(directory, ignore_errors=True)


def wait_for_dashboard(head: Head, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until jobs can be submitted."""
    deadline = time.monotonic() + 90
    while head.ray("job", "list", "--address", head.dashboard).returncode != 0:
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(1)
