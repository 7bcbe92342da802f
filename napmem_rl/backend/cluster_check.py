"""Preflight on the cluster: after Ray is joined and before anything is placed, everything that a job would otherwise miss or wait for without a word.

Two parts. Room: does the cluster have what the recipe asks for (`cluster_needs`)? Where the job has joined a cluster, nodes may still be on their way, so
this is asked again until it fits or time is up. Sight: one small actor on each node looks at banks, model, data, run directory, disk, package versions, the
judge's endpoint, and whether another node can be reached on a fresh port (`node_facts`). All that is wrong comes back in one error, by node.
"""

from __future__ import annotations

import json
import math
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray
from omegaconf import DictConfig, OmegaConf
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from napmem_rl.backend import node_facts
from napmem_rl.backend.cluster_needs import GIB, Needs, NodeRoom, compute_needs, find_shortages
from napmem_rl.backend.node_facts import NodeFacts, Question
from napmem_rl.backend.settings import JobSettings
from napmem_rl.config.recipe import PATHS_OR_NAMES
from napmem_rl.errors import ConfigError

ANSWER_TIMEOUT_S = 300.0  # for a node to look at everything: it may have to hash banks over a network file system
POLL_S = 2.0
REPORT_EVERY_S = 15.0
SMALL_SHM_BYTES = GIB
RAY_COPIES = "working_dir_files"  # where Ray unpacks the working directories of submitted jobs


class NodeProbe:
    """The actor's body, one on each node."""

    def look(self, question: Question) -> NodeFacts:
        """See `node_facts.look`."""
        return node_facts.look(question)

    def listen(self) -> tuple[str, int]:
        """Accept connections on a free port of this node's address, for as long as the actor lives. Returns address and port."""
        address = ray.util.get_node_ip_address()
        listener = node_facts.open_listener(address)
        threading.Thread(target=_accept_forever, args=(listener,), daemon=True).start()
        return address, listener.getsockname()[1]

    def reach(self, address: str, port: int) -> str | None:
        """See `node_facts.reach`."""
        return node_facts.reach(address, port)


def _accept_forever(listener: socket.socket) -> None:
    while True:
        listener.accept()[0].close()


def check_cluster(
    config: DictConfig, *, num_steps: int, wait_s: float, answer_s: float = ANSWER_TIMEOUT_S, poll: Callable[[], None] = lambda: None
) -> None:
    """Look at the whole cluster before the trainer is placed on it.

    Args:
        config: verl's config with our sub-tree, as the trainer will get it; the run directory holds what `run_grpo` writes first.
        num_steps: that the job trains in all.
        wait_s: how long to wait for nodes that have not joined yet, or are busy. A Ray that this process started itself is not waited for.
        answer_s: how long each node may take to look.
        poll: called while waiting for room; what it raises ends the check.

    Raises:
        ConfigError: the cluster does not fit the recipe, or a node does not see what it needs; the message holds every point.
    """
    needs = compute_needs(config, num_steps=num_steps)
    problems = wait_for_room(needs, wait_s=0.0 if _is_own_ray() else wait_s, poll=poll)
    found, notices = check_nodes(config, needs, answer_s=answer_s)
    for notice in notices:
        _say(f"notice: {notice}")
    problems += [*found, *_find_lost_run_dir(config)]
    if problems:
        points = "".join(f"\n  - {problem}" for problem in problems)
        raise ConfigError(f"cluster: {len(problems)} point(s) keep this job from running:{points}")


def _find_lost_run_dir(config: DictConfig) -> list[str]:
    """A job sent with --working-dir runs in a copy of the code that Ray removes: nothing may be written there."""
    run_dir = JobSettings.from_config(config).run_dir
    if RAY_COPIES not in run_dir.split("/"):
        return []
    return [f"run directory {run_dir}: lies in this job's copy of the code, which Ray removes; give trainer.default_local_dir as an absolute path"]


def wait_for_room(needs: Needs, *, wait_s: float, list_rooms: Callable[[], list[NodeRoom]] | None = None, poll: Callable[[], None] = lambda: None) -> list[str]:
    """Wait until the job fits, saying what is missing. Returns what is still missing when time is up; empty where it fits.

    Args:
        needs: of the job.
        wait_s: seconds.
        list_rooms: asks the cluster; Ray unless given.
        poll: called between two looks; what it raises ends the waiting.
    """
    started, said = time.monotonic(), -math.inf
    while problems := find_shortages(needs, (list_rooms or list_node_rooms)()):
        poll()
        waited = time.monotonic() - started
        if waited >= wait_s:
            return [f"{problem} (after {waited:.0f} s)" for problem in problems] if wait_s else problems
        if time.monotonic() - said >= REPORT_EVERY_S:
            _say(f"waiting for the cluster, {waited:.0f} of {wait_s:.0f} s: " + "; ".join(problems))
            said = time.monotonic()
        time.sleep(min(POLL_S, max(wait_s - waited, 0.0)))
    return []


def list_node_rooms() -> list[NodeRoom]:
    """What Ray's living nodes have, in Ray's order; free amounts as verl asks for them."""
    free = ray._private.state.available_resources_per_node()
    rooms = []
    for node in _living_nodes():
        total, now = node["Resources"], free.get(node["NodeID"], {})
        room = NodeRoom(
            name=name_node(node),
            cpus=now.get("CPU", 0),
            gpus=now.get("GPU", 0),
            total_cpus=total.get("CPU", 0),
            total_gpus=total.get("GPU", 0),
            object_store_bytes=total.get("object_store_memory", 0),
        )
        rooms.append(room)
    return rooms


def check_nodes(config: DictConfig, needs: Needs, *, answer_s: float) -> tuple[list[str], list[str]]:
    """Have every node with CPUs look. Returns (problems, notices), each beginning with the node's name."""
    settings = JobSettings.from_config(config)
    bank_versions = json.loads(settings.bank_versions_file.read_text(encoding="utf-8"))
    nodes = [node for node in _living_nodes() if node["Resources"].get("CPU", 0) > 0]
    judges = {node["NodeID"] for node in nodes[: settings.reward.num_workers]} if settings.judge.kind == "openai" else set()
    reference = node_facts.look(_build_question(config, settings, (), asks_judge=False))
    probes = {node["NodeID"]: _start_probe(node["NodeID"]) for node in nodes}
    asked = {}
    for node_id, probe in probes.items():
        asked[node_id] = probe.look.remote(_build_question(config, settings, tuple(bank_versions), asks_judge=node_id in judges))
    facts, problems = _gather(asked, _names(nodes), answer_s, "look at its inputs")
    notices: list[str] = []
    for node in nodes:
        if node["NodeID"] in facts:
            found, noticed = _judge_node(reference, facts[node["NodeID"]], needs, bank_versions)
            problems += [f"{name_node(node)}: {problem}" for problem in found]
            notices += [f"{name_node(node)}: {notice}" for notice in noticed]
    return problems + _check_reach({node_id: probes[node_id] for node_id in facts}, _names(nodes), answer_s), notices


def _judge_node(reference: NodeFacts, facts: NodeFacts, needs: Needs, bank_versions: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Returns (problems, notices) of one node's answer."""
    disk, notice = node_facts.find_disk_problem(facts, checkpoint_bytes=needs.checkpoint_bytes, kept=needs.kept_checkpoints)
    problems = node_facts.find_differences(reference, facts, bank_versions) + [text for text in (disk, facts.judge_problem) if text]
    notices = [notice] if notice else []
    if facts.free_shm_bytes < SMALL_SHM_BYTES:
        notices.append(f"/dev/shm has {facts.free_shm_bytes / GIB:.2f} GiB free; Ray's object store and NCCL want more (containers: --shm-size, an emptyDir)")
    return problems, notices


def _build_question(config: DictConfig, settings: JobSettings, bank_ids: tuple[str, ...], *, asks_judge: bool) -> Question:
    judge = settings.judge
    return Question(
        banks_dir=settings.banks_dir,
        bank_ids=bank_ids,
        paths=find_paths(config, settings),
        run_dir=settings.run_dir,
        shared_file=settings.bank_versions_file.name,
        judge_url=(judge.base_url or "https://api.openai.com/v1") if asks_judge else None,
        judge_key=judge.api_key_env or None,
    )


def find_paths(config: DictConfig, settings: JobSettings) -> dict[str, str]:
    """Files and directories that every node must see, by key of the recipe. Names of a hub or of our encoders are left out."""
    paths = {key: OmegaConf.select(config, key) for key in PATHS_OR_NAMES} | {"memory.encoder": settings.memory.encoder}
    for key in ("data.train_files", "data.val_files"):
        value = OmegaConf.select(config, key)
        names = [value] if isinstance(value, str) else list(value or [])
        paths |= {key if len(names) == 1 else f"{key}[{index}]": name for index, name in enumerate(names)}
    return {key: path for key, path in paths.items() if isinstance(path, str) and path[:1] in ("/", ".", "~")}


def _check_reach(probes: Mapping[str, Any], names: Mapping[str, str], answer_s: float) -> list[str]:
    """Each node opens a port that the next one connects to, as torch's rendezvous will."""
    if len(probes) < 2:
        return []
    listeners, problems = _gather({node_id: probe.listen.remote() for node_id, probe in probes.items()}, names, answer_s, "open a port")
    ring = list(listeners)
    following = dict(zip(ring, ring[1:] + ring[:1], strict=True))
    calls = {node_id: probes[node_id].reach.remote(*listeners[following[node_id]]) for node_id in ring}
    answers, silent = _gather(calls, names, answer_s, "connect to another node")
    blocked = []
    for node_id, problem in answers.items():
        if problem:
            where = f"{names[following[node_id]]} on port {listeners[following[node_id]][1]}"
            blocked.append(f"{names[node_id]}: cannot reach {where} ({problem}); open the nodes' ports to each other")
    return problems + silent + blocked


def _gather(calls: Mapping[str, Any], names: Mapping[str, str], timeout_s: float, what: str) -> tuple[dict[str, Any], list[str]]:
    """Answers by node id, and a sentence for each node that gave none in time."""
    done = set(ray.wait(list(calls.values()), num_returns=len(calls), timeout=timeout_s)[0]) if calls else set()
    answers, problems = {}, []
    for node_id, call in calls.items():
        if call not in done:
            problems.append(f"{names[node_id]}: did not {what} within {timeout_s:.0f} s")
            continue
        try:
            answers[node_id] = ray.get(call)
        except (ray.exceptions.RayError, OSError) as error:
            problems.append(f"{names[node_id]}: could not {what} ({type(error).__name__}: {_first_line(error)})")
    return answers, problems


def _first_line(error: BaseException) -> str:
    """Of what a worker raised, without Ray's trace before it."""
    return (str(getattr(error, "cause", None) or error).strip().splitlines() or [""])[0]


def _start_probe(node_id: str) -> Any:
    strategy = NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)
    return ray.remote(NodeProbe).options(num_cpus=0, scheduling_strategy=strategy).remote()


def _living_nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def name_node(node: Mapping[str, Any]) -> str:
    """How messages call a node: host, address, and the beginning of Ray's id, which `ray list nodes` shows too."""
    return f"node {node['NodeManagerHostname']} ({node['NodeManagerAddress']}, {node['NodeID'][:8]})"


def _names(nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {node["NodeID"]: name_node(node) for node in nodes}


def _is_own_ray() -> bool:
    """Whether this process started Ray itself: then no other node will ever join."""
    node = ray._private.worker._global_node
    return node is not None and node.is_head()


def _say(text: str) -> None:
    print(f"[cluster] {text}", file=sys.stderr, flush=True)
