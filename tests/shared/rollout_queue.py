"""The sampler over a queue that holds what a test says."""

import torch
from verl.trainer.ppo.v1 import replay_buffer

from napmem_rl.backend import sampler


class FakeQueue:
    """The parts of TransferQueue that a replay buffer calls."""

    def __init__(self, partition: dict[str, dict]) -> None:
        self.partitions = {"train": partition}

    def kv_list(self, partition_id=None):
        return {name: {key: dict(tags) for key, tags in items.items()} for name, items in self.partitions.items()}

    def kv_clear(self, keys, partition_id):
        for key in [keys] if isinstance(keys, str) else keys:
            self.partitions[partition_id].pop(key, None)

    def kv_batch_get(self, keys, partition_id, select_fields):
        rows = [self.partitions[partition_id][key] for key in keys]
        return {"rm_scores": [torch.tensor([0.0, row["reward"]]) for row in rows], "extra_fields": [row["extra"] for row in rows]}


def prompt(status: str = "finished", **tags) -> dict:
    return {"is_prompt": True, "status": status, "global_steps": 3, **tags}


def rollout(task: str, reward: float, version: int = 2) -> dict:
    extra = {"task_id": task, "facts": {"category": "fact", "reward": reward}}
    return {"status": "success", "min_global_steps": version, "max_global_steps": version, "reward": reward, "extra": extra}


def build_sampler(
    monkeypatch, partition: dict[str, dict], *, threshold: int | None = None, strategy: str = "drop", **options
) -> tuple[sampler.GroupSampler, FakeQueue, list[int]]:
    queue, refills = FakeQueue(partition), []
    monkeypatch.setattr(sampler, "tq", queue)
    monkeypatch.setattr(replay_buffer, "tq", queue)
    buffer = sampler.GroupSampler(
        trainer_mode="sync",
        trainer_config={},
        max_off_policy_threshold=threshold,
        max_off_policy_strategy=strategy,
        sampler_kwargs={"min_group_rows": 2, "is_sync": True, **options},
        refill_fn=refills.append,
    )
    return buffer, queue, refills
