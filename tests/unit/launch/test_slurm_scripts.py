"""The SLURM scripts, run for real with stand-ins for what only a cluster has: srun, scontrol, ray and the driver record how they were called."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = sorted([*ROOT.glob("launch/**/*.sh"), *ROOT.glob("launch/**/*.sbatch")])
RECIPE = "recipes/quickstart.yaml"

STAND_INS = {
    # one process a task, each as on a node of its own
    "srun": r"""
        echo "srun $*" >>"$CALLS"
        tasks=1
        while [ "${1#--}" != "$1" ]; do case "$1" in --ntasks=*) tasks="${1#*=}" ;; esac; shift; done
        trap 'kill $(jobs -rp) 2>/dev/null; wait; exit 143' TERM
        if [ "$1" = hostname ]; then echo "${HEAD_ANSWER:-10.1.2.3}"; exit; fi
        for task in $(seq "$tasks"); do SLURM_CPUS_ON_NODE=28 "$@" & done
        wait""",
    "scontrol": r"""
        echo "scontrol $*" >>"$CALLS"
        if [ "$1 $2" = "show hostnames" ]; then printf '%s\n' n1 n2 n3 n4; fi""",
    "ray": r"""
        echo "ray $* mode=$RAY_AUTH_MODE token=$(stat -c %a "$RAY_AUTH_TOKEN_PATH"):$(wc -c <"$RAY_AUTH_TOKEN_PATH")" >>"$CALLS"
        if [ -n "${RAY_FAILS:-}" ]; then exit 1; fi
        trap 'echo "ray ended" >>"$CALLS"; exit' TERM
        while :; do sleep 0.05; done""",
    "python": r"""
        echo "python $* address=${RAY_ADDRESS:-none} wandb=$WANDB_MODE revision=$NAPMEM_REVISION" >>"$CALLS"
        if [ "$1" = launch/wait_for_nodes.py ]; then
          for try in $(seq 40); do
            if [ "$(grep -c '^ray start' "$CALLS")" -ge "$3" ]; then exit 0; fi
            sleep 0.05
          done
          exit 1
        fi
        mkdir -p "$WANDB_DIR/wandb/offline-run-1"
        if [ -n "${DRIVER_WAITS:-}" ]; then
          [ "$DRIVER_WAITS" = deaf ] || trap 'echo "driver got USR1" >>"$CALLS"; sleep 0.4; echo "driver saved" >>"$CALLS"; exit "$DRIVER_CODE"' USR1
          echo "driver ready" >>"$CALLS"
          for try in $(seq 200); do sleep 0.05; done
        fi
        exit "$DRIVER_CODE"
        """,
}


@dataclass(frozen=True)
class Cluster:
    """Stand-ins and the record of their calls."""

    directory: Path

    def calls(self, start: str = "") -> list[str]:
        """Recorded lines that begin so."""
        record = self.directory / "calls"
        return [line for line in record.read_text().splitlines() if line.startswith(start)] if record.exists() else []

    def submit(self, script: str, *, nodes: int, **env: str) -> subprocess.Popen[str]:
        """As sbatch does: the script is copied away and runs on the first node, in the directory of the submission."""
        spool = self.directory / "spool" / "slurm_script"
        spool.parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / "launch" / "slurm" / script, spool)
        slurm = {"SLURM_SUBMIT_DIR": str(ROOT), "SLURM_JOB_ID": "4711", "SLURM_JOB_NUM_NODES": str(nodes), "SLURM_JOB_NODELIST": "n[1-4]"}
        ours = {"NAPMEM_VENV": str(self.directory), "NAPMEM_SLURM_DIR": str(self.directory / "jobs"), "CALLS": str(self.directory / "calls")}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "RAY_", "NAPMEM_", "WANDB_"))}
        command = ["bash", str(spool), RECIPE, "data.dir=/d"]
        output = (self.directory / "output").open("w")
        full = {**kept, **slurm, **ours, "DRIVER_CODE": "0", "OPENAI_API_KEY": "sk-secret", **env}
        return subprocess.Popen(command, env=full, stdout=output, stderr=output, text=True, cwd=self.directory, start_new_session=True)

    def output(self) -> str:
        """What the job wrote to its log."""
        return (self.directory / "output").read_text()


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """Stand-ins, first on the PATH of the scripts."""
    (tmp_path / "bin").mkdir()
    for name, body in STAND_INS.items():
        path = tmp_path / "bin" / name
        path.write_text(f"#!/usr/bin/env bash\n{body}\n")
        path.chmod(0o755)
    return Cluster(tmp_path)


def wait_until(cluster: Cluster, line: str) -> None:
    deadline = time.monotonic() + 20
    while not cluster.calls(line):
        assert time.monotonic() < deadline, f"{line!r} did not happen: {cluster.calls()}\n{cluster.output()}"
        time.sleep(0.02)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_shellcheck_finds_nothing(path):
    done = subprocess.run(["shellcheck", "-x", str(path.relative_to(ROOT))], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("script", ["one_node.sbatch", "many_nodes.sbatch"])
def test_slurm_is_asked_to_signal_the_script_in_time_and_allowed_to_requeue(script):
    options = re.findall(r"^#SBATCH (\S+)$", (ROOT / "launch" / "slurm" / script).read_text(), re.MULTILINE)
    assert "--requeue" in options and "--open-mode=append" in options
    (seconds,) = [int(found[1]) for option in options if (found := re.fullmatch(r"--signal=B:USR1@(\d+)", option))]
    assert seconds >= 300


def test_ray_starts_on_all_nodes_with_a_token_and_the_driver_gets_the_heads_address(cluster):
    assert cluster.submit("many_nodes.sbatch", nodes=4).wait(timeout=60) == 0, cluster.output()
    head, *workers = cluster.calls("ray start")
    assert "--head --include-dashboard=false --node-ip-address=10.1.2.3 --port=24711" in head and "--num-cpus=28" in head
    assert len(workers) == 3 and all("--block" in line and "--address=10.1.2.3:24711" in line for line in workers)
    assert all(line.endswith("mode=token token=600:64") for line in (head, *workers)), "only the user may read the token"
    assert any("--nodes=1 --ntasks=1 --nodelist=n1" in line for line in cluster.calls("srun"))
    assert any("--nodes=3 --ntasks=3 --exclude=n1" in line for line in cluster.calls("srun"))
    (driver,) = cluster.calls("python launch/grpo.py")
    assert driver.startswith(f"python launch/grpo.py {RECIPE} trainer.nnodes=4 data.dir=/d address=10.1.2.3:24711 wandb=offline")
    assert re.search(r"revision=[0-9a-f]{40}(\+changes)?$", driver) or driver.endswith("revision=unknown")
    assert len(cluster.calls("ray ended")) == 4, "nothing is left running"
    assert f"wandb sync {cluster.directory}/jobs/4711/wandb/offline-run-*" in cluster.output()


def test_no_key_and_no_token_stands_on_a_command_line_or_in_the_log(cluster):
    assert cluster.submit("many_nodes.sbatch", nodes=2).wait(timeout=60) == 0
    token = (cluster.directory / "jobs" / "4711" / "auth_token").read_text()
    said = cluster.output() + "\n".join(cluster.calls())
    assert len(token) == 64 and token not in said and "sk-secret" not in said


@pytest.mark.parametrize("script", ["one_node.sbatch", "many_nodes.sbatch"])
def test_a_signal_before_the_time_limit_reaches_the_driver_and_the_job_is_requeued_once_it_has_saved(cluster, script):
    job = cluster.submit(script, nodes=2, DRIVER_WAITS="1", DRIVER_CODE="75")
    wait_until(cluster, "driver ready")
    os.kill(job.pid, signal.SIGUSR1)
    assert job.wait(timeout=60) == 0, cluster.output()
    assert cluster.calls("driver") == ["driver ready", "driver got USR1", "driver saved"]
    assert cluster.calls("scontrol requeue") == ["scontrol requeue 4711"]
    assert cluster.calls().index("driver saved") < cluster.calls().index("scontrol requeue 4711")


def test_a_driver_that_did_not_listen_yet_has_lost_nothing_and_is_requeued(cluster):
    job = cluster.submit("one_node.sbatch", nodes=1, DRIVER_WAITS="deaf")
    wait_until(cluster, "driver ready")
    os.kill(job.pid, signal.SIGUSR1)
    assert job.wait(timeout=60) == 0, cluster.output()
    assert cluster.calls("scontrol requeue") == ["scontrol requeue 4711"]


@pytest.mark.parametrize("code", [0, 2, 1, 137])
def test_another_exit_code_is_the_jobs_own_and_requeues_nothing(cluster, code):
    assert cluster.submit("one_node.sbatch", nodes=1, DRIVER_CODE=str(code)).wait(timeout=60) == code
    assert cluster.calls("scontrol requeue") == []
    assert f"ended with exit code {code}" in cluster.output()


def test_one_node_starts_no_ray_beside_the_drivers_own(cluster):
    assert cluster.submit("one_node.sbatch", nodes=1, RAY_ADDRESS="10.9.9.9:1").wait(timeout=60) == 0
    assert not cluster.calls("ray start") and not cluster.calls("srun")
    assert "address=none" in cluster.calls("python launch/grpo.py")[0]


def test_a_job_that_was_requeued_too_often_stops(cluster):
    job = cluster.submit("one_node.sbatch", nodes=1, DRIVER_CODE="75", SLURM_RESTART_COUNT="3", NAPMEM_MAX_REQUEUES="3")
    assert job.wait(timeout=60) == 75
    assert not cluster.calls("scontrol requeue") and "requeued 3 times already" in cluster.output()


def test_a_signal_while_nodes_join_requeues_without_starting_the_driver(cluster):
    job = cluster.submit("many_nodes.sbatch", nodes=5)  # n1 and four more tasks: the stand-in waits for five starts
    wait_until(cluster, "python launch/wait_for_nodes.py")
    os.kill(job.pid, signal.SIGUSR1)
    assert job.wait(timeout=60) == 0, cluster.output()
    assert not cluster.calls("python launch/grpo.py")
    assert cluster.calls("scontrol requeue") == ["scontrol requeue 4711"]


def test_nodes_that_do_not_join_end_the_job_with_the_place_of_their_logs(cluster):
    job = cluster.submit("many_nodes.sbatch", nodes=2, HEAD_ANSWER="127.0.1.1")
    assert job.wait(timeout=60) == 1
    assert "set NAPMEM_HEAD_IP" in cluster.output()
    (cluster.directory / "bin" / "ray").write_text("#!/usr/bin/env bash\nexit 1\n")
    job = cluster.submit("many_nodes.sbatch", nodes=2)
    assert job.wait(timeout=60) == 1
    assert f"error: the head did not start; see {cluster.directory}/jobs/4711/ray-*.log" in cluster.output()
    assert not cluster.calls("python launch/grpo.py") and not cluster.calls("scontrol requeue")
