"""What a job takes from a cluster, and what of it is not there. Arithmetic alone: `napmem_rl.backend.cluster_check` asks Ray.

verl takes one placement group per node: `trainer.n_gpus_per_node` bundles of one GPU and three CPUs, all on one node. Around it stand actors that hold a CPU
each (job runner, TransferQueue's controller and storage units) and actors that need a free CPU for a moment, while they are placed (rollout servers,
agent-loop workers). Storage units are pinned: Ray's nodes in turn, whatever a node has, so that a node without CPUs leaves one pending for good.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from napmem_rl.backend.encoder_service import needs_service
from napmem_rl.backend.settings import JobSettings
from napmem_rl.backend.weight_files import read_tensors

CPUS_PER_GPU = 3  # verl's ResourcePoolManager.max_colocate_count
HOLDING_CPUS = 2  # job runner, TransferQueue's controller
BYTES_PER_PARAMETER = {"model": 4, "optimizer": 8, "hf_model": 4, "extra": 0}  # of `actor.checkpoint.save_contents`: fp32, Adam's two moments
GIB = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Needs:
    """What the recipe asks for. `encoder_nodes` nodes give one GPU more each, to an encoder."""

    num_nodes: int
    gpus_per_node: int
    storage_units: int
    encoder_nodes: int
    object_store_bytes: int
    checkpoint_bytes: int  # of one checkpoint; 0 where none is written or the model's size cannot be told
    kept_checkpoints: int  # with the best one
    served_nodes: int = 0  # of the pool of a model that is served beside training
    served_gpus: int = 0  # on each of them


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeRoom:
    """What one node has free now, and in all."""

    name: str
    cpus: float
    gpus: float
    total_cpus: float
    total_gpus: float
    object_store_bytes: float

    def describe(self) -> str:
        """One line for people."""
        return f"{self.name}: {self.gpus:g} of {self.total_gpus:g} GPUs free, {self.cpus:g} of {self.total_cpus:g} CPUs free"


def compute_needs(config: DictConfig, *, num_steps: int) -> Needs:
    """Read a job's needs out of verl's config with our sub-tree (see `build_config`).

    Args:
        config: of the job.
        num_steps: that it trains from its beginning to its end.
    """
    settings = JobSettings.from_config(config)
    trainer, rollout = config.trainer, config.actor_rollout_ref.rollout
    on_gpu = needs_service(settings.memory.encoder) and settings.memory.encoder_device == "cuda"
    # on the CPU, weights go to the rollout servers through the object store: one bucket is written while another is read
    bucket = rollout.checkpoint_engine.update_weights_bucket_megabytes << 20 if trainer.device == "cpu" else 0
    saves = math.ceil(num_steps / trainer.save_freq) if trainer.save_freq > 0 else 0  # the last step is saved whenever it comes
    kept = settings.job.keep_checkpoints
    served = config.reward.reward_model if config.reward.reward_model.enable_resource_pool else None
    return Needs(
        num_nodes=trainer.nnodes,
        gpus_per_node=trainer.n_gpus_per_node,
        storage_units=config.transfer_queue.backend.SimpleStorage.num_data_storage_units,
        encoder_nodes=rollout.agent.num_workers if on_gpu else 0,
        object_store_bytes=2 * bucket,
        checkpoint_bytes=compute_checkpoint_bytes(config) if saves else 0,
        kept_checkpoints=min(saves, kept + 1) if kept else saves,
        served_nodes=served.nnodes if served else 0,
        served_gpus=served.n_gpus_per_node if served else 0,
    )


def find_shortages(needs: Needs, nodes: Sequence[NodeRoom]) -> list[str]:
    """What is missing, one sentence each; empty where the job can be placed.

    Args:
        needs: of the job.
        nodes: that are alive, in Ray's order.
    """
    problems = []
    units = math.ceil(needs.storage_units / len(nodes)) if nodes else 0
    for node in nodes:
        if node.total_cpus < units:
            problem = f"has {node.total_cpus:g} CPUs, but TransferQueue pins {units} storage unit(s) of one CPU each to every node, also to a head without work"
            problems.append(f"{node.name}: {problem}; start it with more CPUs, or lower transfer_queue.backend.SimpleStorage.num_data_storage_units")
        if node.object_store_bytes < needs.object_store_bytes:
            problem = f"object store of {node.object_store_bytes / GIB:.2f} GiB, weights travel in buckets that take {needs.object_store_bytes / GIB:.2f} GiB"
            problems.append(f"{node.name}: {problem}; start Ray with a larger --object-store-memory")
    groups = [_count_groups(needs, node, units, index) for index, node in enumerate(nodes)]
    there = "; ".join(node.describe() for node in nodes) or "no node is alive"
    if sum(groups) < needs.num_nodes:
        asked = f"trainer.nnodes={needs.num_nodes} groups of trainer.n_gpus_per_node={needs.gpus_per_node} GPUs, each on one node"
        cpus = f"{CPUS_PER_GPU} CPUs a GPU, {units} for storage units and one to place a rollout server"
        problems.append(f"placement: asked for {asked} (with {cpus}{_encoder_words(needs)}); room for {sum(groups)}. {there}")
    elif needs.served_nodes:
        problems += _find_served_shortage(needs, nodes, units, there)
    num_gpus = needs.gpus_per_node * needs.num_nodes + needs.served_gpus * needs.served_nodes
    cpus = CPUS_PER_GPU * num_gpus + needs.storage_units + HOLDING_CPUS + 1
    free = sum(node.cpus for node in nodes)
    if free < cpus:
        what = "GPU" if needs.served_nodes else "learner"
        parts = f"{CPUS_PER_GPU} a {what}, {needs.storage_units} storage units, {HOLDING_CPUS} for job runner and queue, one to place workers"
        problems.append(f"CPUs: asked for {cpus} in all ({parts}), {free:g} are free. {there}")
    return problems


def _find_served_shortage(needs: Needs, nodes: Sequence[NodeRoom], units: int, there: str) -> list[str]:
    """The pool of a served model is placed after the learners', into what they leave."""
    left, room = needs.num_nodes, 0
    for index, node in enumerate(nodes):
        taken = min(left, _count_groups(needs, node, units, index))
        left -= taken
        gpus = node.gpus - (1 if index < needs.encoder_nodes else 0) - taken * needs.gpus_per_node
        cpus = node.cpus - units - 1 - taken * CPUS_PER_GPU * needs.gpus_per_node
        room += max(0, int(min(gpus // needs.served_gpus, cpus // (CPUS_PER_GPU * needs.served_gpus))))
    if room >= needs.served_nodes:
        return []
    asked = f"reward.reward_model.nnodes={needs.served_nodes} groups of n_gpus_per_node={needs.served_gpus} GPUs beside the learners'"
    return [f"served model: asked for {asked} (with {CPUS_PER_GPU} CPUs a GPU); room for {room}. {there}"]


def _encoder_words(needs: Needs) -> str:
    return ", and a GPU more on each node with an agent-loop worker for the encoder (memory.encoder_device=cuda)" if needs.encoder_nodes else ""


def _count_groups(needs: Needs, node: NodeRoom, units: int, index: int) -> int:
    """How many placement groups of verl fit on this node."""
    gpus = node.gpus - (1 if index < needs.encoder_nodes else 0)
    cpus = node.cpus - units - 1
    return max(0, int(min(gpus // needs.gpus_per_node, cpus // (CPUS_PER_GPU * needs.gpus_per_node))))


def compute_checkpoint_bytes(config: DictConfig) -> int:
    """Size of one checkpoint of the actor as verl writes it, by the number of parameters of the model; 0 where that cannot be told."""
    contents = OmegaConf.to_container(config.actor_rollout_ref.actor.checkpoint.save_contents)
    return count_parameters(Path(config.actor_rollout_ref.model.path).expanduser()) * sum(BYTES_PER_PARAMETER.get(name, 0) for name in contents)


def count_parameters(model: Path) -> int:
    """Number of parameters by the headers of a model's safetensors files, or by half the bytes of other weight files; 0 for none."""
    weights = sorted(model.glob("*.safetensors"))
    if weights:
        return sum(math.prod(shape) for path in weights for _, shape in read_tensors(path))
    return sum(path.stat().st_size for path in model.glob("pytorch_model*.bin")) // 2
