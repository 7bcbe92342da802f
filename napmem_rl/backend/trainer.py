"""What verl's trainers do not report: how far rollout and learner log-probs differ, and what a validation abstained from."""

from __future__ import annotations

from typing import Any

import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import trainer_base

from napmem_rl.backend import metric_names as names


class StepReports:
    """Mixed into one of verl's trainers; reads the queue and changes nothing."""

    config: Any
    replay_buffer: Any

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        batch = super()._compute_old_log_prob(batch, metrics=metrics)  # type: ignore[misc]
        correction = self.config.algorithm.get("rollout_correction")
        if not (correction and correction.get("bypass_mode")):  # there the learner's log-probs are not computed before the update
            metrics.update(_read_logprob_gap(batch))
        return batch

    def _validate(self) -> dict[str, float]:
        self.replay_buffer.validation_causes.clear()
        metrics = super()._validate()  # type: ignore[misc]
        causes = self.replay_buffer.validation_causes
        counts = {names.VAL_ABSTAINED_BECAUSE.format(cause=cause): float(count) for cause, count in sorted(causes.items())}
        return {**metrics, names.VAL_ABSTAINED: float(causes.total()), **counts}


def install_step_reports(mode: str) -> None:
    """Let verl's trainer of this mode report more, in this process only.

    Args:
        mode: `trainer.v1.trainer_mode`. The registered name stays as it is, because verl decides by it what is synchronous.
    """
    base = trainer_base.get_trainer_cls(mode)
    if not issubclass(base, StepReports):
        trainer_base.TRAINER_REGISTRY[mode] = type(f"Reporting{base.__name__}", (StepReports, base), {})


def _read_logprob_gap(batch: KVBatchMeta) -> dict[str, float]:
    fields = ["rollout_log_probs", "old_log_probs", "response_mask"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    return compute_logprob_gap(*(torch.cat([row.flatten() for row in data[field]]) for field in fields))


def compute_logprob_gap(rollout: torch.Tensor, learner: torch.Tensor, mask: torch.Tensor) -> dict[str, float]:
    """Largest and mean absolute difference where the policy sampled.

    Args:
        rollout, learner: log-probs [N] of the same tokens.
        mask: [N], 1 where the policy sampled.
    """
    gap = (rollout.float() - learner.float()).abs()[mask.bool()]
    if not gap.numel():
        return {}
    return {names.LOGPROB_GAP_MAX: gap.max().item(), names.LOGPROB_GAP_MEAN: gap.mean().item()}
