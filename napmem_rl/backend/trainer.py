"""What verl's trainers lack: reports of log-prob differences and abstentions, signs of life, a stop that saves first, and the best checkpoint."""

from __future__ import annotations

import json
import math
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import ray
import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from transfer_queue import interface as queue_interface
from verl.trainer.ppo.v1 import trainer_base
from verl.utils.tracking import Tracking

from napmem_rl.backend import metric_names as names
from napmem_rl.backend.death_watch import WATCH, report_deaths
from napmem_rl.backend.engine_watch import watch_engine
from napmem_rl.backend.in_flight import find_leftovers, set_aside_episodes
from napmem_rl.backend.job_control import CALL_TIMEOUT_S, TrainerLink
from napmem_rl.backend.run_checkpoints import Best, prune_checkpoints, read_best, write_best
from napmem_rl.backend.served_model import publish_served
from napmem_rl.backend.settings import JobSettings
from napmem_rl.backend.wandb_tables import log_trajectory_table
from napmem_rl.errors import CheckpointError, ConfigError, JobStopped
from napmem_rl.masking import mask_settings

PROGRESS_INTERVAL_S = 30.0


class MaskedTracking(Tracking):
    """What verl hands its whole configuration to, for W&B and the like: they get it without keys and passwords."""

    def __init__(self, *args: Any, config: Any = None, **options: Any) -> None:
        super().__init__(*args, config=mask_settings(config), **options)


trainer_base.Tracking = MaskedTracking


class StepReports:
    """Mixed into one of verl's trainers; reads the queue and changes nothing."""

    config: Any
    global_steps: int
    replay_buffer: Any

    def fit(self, agent_loop_manager: Any) -> None:
        is_stopped = False
        try:
            super().fit(agent_loop_manager)  # type: ignore[misc]
        except JobStopped:
            is_stopped = True  # time is short, and the run goes on
            raise
        finally:  # here the W&B run of verl's logger is still open
            if not is_stopped:
                log_trajectory_table(JobSettings.from_config(self.config), step=self.global_steps)

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        batch = super()._compute_old_log_prob(batch, metrics=metrics)  # type: ignore[misc]
        correction = self.config.algorithm.get("rollout_correction")
        if not (correction and correction.get("bypass_mode")):  # there the learner's log-probs are not computed before the update
            metrics.update(_read_logprob_gap(batch, version=self.global_steps - 1))
        return batch

    def _validate(self) -> dict[str, float]:
        self.replay_buffer.validation_causes.clear()
        metrics = super()._validate()  # type: ignore[misc]
        causes = self.replay_buffer.validation_causes
        log_trajectory_table(JobSettings.from_config(self.config), step=self.global_steps, is_validation=True)
        counts = {names.VAL_ABSTAINED_BECAUSE.format(cause=cause): float(count) for cause, count in sorted(causes.items())}
        return {**metrics, names.VAL_ABSTAINED: float(causes.total()), **counts}


class JobHooks:
    """Mixed into one of verl's trainers: tells the driver that it lives, saves and stops when asked to, keeps the best checkpoint."""

    config: Any
    global_steps: int
    total_training_steps: int
    trainer_mode: str
    replay_buffer: Any
    checkpoint_manager: Any
    reward_loop_manager: Any

    def init(self) -> None:
        self.job = JobSettings.from_config(self.config)
        self._run_dir = Path(self.config.trainer.default_local_dir)
        self._saved_step = 0
        self._has_begun = False
        self._link = TrainerLink(self.job.job_name)
        self._last_report = time.monotonic()
        self.replay_buffer.report_progress = self._report_progress
        threading.Thread(target=report_deaths, args=(self._link.report_death, threading.Event()), name="death_watch", daemon=True).start()
        super().init()  # type: ignore[misc]
        publish_served(self.config, self.reward_loop_manager.reward_model_manager)
        self._saved_step = self.global_steps  # where a checkpoint was loaded
        self._watch_actors()
        self._best = read_best(self._run_dir)

    def _watch_actors(self) -> None:
        """All whose death would leave somebody waiting. (Agent-loop workers and encoders are added where they start; reward workers start again.)"""
        for index, worker in enumerate(self.actor_rollout_wg.workers):  # type: ignore[attr-defined]
            WATCH.add(f"learner {index}", worker)
        for replica in self.llm_server_manager.get_replicas():  # type: ignore[attr-defined]
            for index, server in enumerate(replica.servers):
                WATCH.add(f"rollout server {replica.replica_rank}.{index}", server)
            ray.get([server.__ray_call__.remote(watch_engine) for server in replica.servers], timeout=CALL_TIMEOUT_S)
        WATCH.add("load balancer of the rollout servers", self.llm_server_manager.global_load_balancer)  # type: ignore[attr-defined]
        served = self.reward_loop_manager.reward_model_manager
        for replica in served.rollout_replicas if served is not None else ():
            for index, server in enumerate(replica.servers):
                WATCH.add(f"served model {replica.replica_rank}.{index} (reward.reward_model)", server)
            ray.get([server.__ray_call__.remote(watch_engine) for server in replica.servers], timeout=CALL_TIMEOUT_S)

    def fit(self, agent_loop_manager: Any) -> None:
        """As verl's; while it lasts the queue's actors are watched too, which verl ends right after it."""
        units = (queue_interface._TQ_STORAGE or {}).get("SimpleStorage", {})
        queue = {"controller of the TransferQueue": queue_interface._TQ_CONTROLLER, **units}
        for name, actor in queue.items():
            WATCH.add(name, actor)
        try:
            super().fit(agent_loop_manager)  # type: ignore[misc]
        finally:
            WATCH.forget(queue)

    def on_step_begin(self) -> None:
        reason = self._link.beat(self.global_steps, "begin")
        if reason is not None:
            self._stop(reason, done=self.global_steps - 1)
        self._has_begun = True
        super().on_step_begin()  # type: ignore[misc]

    def on_sample_end(self) -> None:
        self._link.beat(self.global_steps, "rollouts")
        super().on_sample_end()  # type: ignore[misc]

    def on_step_end(self) -> None:
        if self._link.beat(self.global_steps, "update") is not None and self._saved_step != self.global_steps:
            self._save_checkpoint()  # at once: a validation may come between here and the next step
        super().on_step_end()  # type: ignore[misc]

    def _report_progress(self, partition_id: str) -> None:
        """Rollouts of a large step, or of a validation, may take longer than `job.stall_timeout_s` in all."""
        if time.monotonic() - self._last_report >= PROGRESS_INTERVAL_S:
            self._last_report = time.monotonic()
            reason = self._link.beat(self.global_steps, f"rollouts of {partition_id}")
            if reason is not None and not self._has_begun:  # the validation before the first step: nothing is lost
                self._stop(reason, done=self.global_steps)

    def _validate(self) -> dict[str, float]:
        """As verl's, but a job that is to stop has no time for it, unless training is over."""
        reason = self._link.beat(self.global_steps, "begin of validation")
        if reason is not None and not self._has_begun:
            self._stop(reason, done=self.global_steps)
        if reason is not None and self.global_steps < self.total_training_steps:
            return {}  # the next `on_step_begin` stops
        metrics = super()._validate()  # type: ignore[misc]
        self._link.beat(self.global_steps, "validation")
        if self.global_steps > 0 and self.config.trainer.save_freq > 0:
            self._keep_best(metrics)
        return metrics

    def _reissue_inflight_prompts(self, partition_id: str = "train") -> int:
        """As verl's: a resumed asynchronous job hands out again what was in flight. What their first attempt left behind goes before."""
        if self.trainer_mode != "sync":
            drop_leftovers(partition_id, self.job.trajectories_dir)
        return super()._reissue_inflight_prompts(partition_id)  # type: ignore[misc]

    def _save_checkpoint(self) -> None:
        self._link.beat(self.global_steps, "begin of a save")
        try:
            super()._save_checkpoint()  # type: ignore[misc]
        except ray.exceptions.RayActorError:
            raise  # a learner died; Ray says which, and why
        except Exception as error:  # boundary: torch and Ray wrap a full disk in many ways
            words = " ".join(str(error).split())
            free = shutil.disk_usage(self._run_dir).free
            fix = "What was saved before is untouched: free some space, then give the same command again."
            what = f"checkpoint of step {self.global_steps} in {self._run_dir}"
            raise CheckpointError.of(what, f"could not be written ({type(error).__name__}: {words[-300:]})", got=f"{free >> 20} MiB free", fix=fix) from error
        self._saved_step = self.global_steps
        prune_checkpoints(self._run_dir, keep=self.job.job.keep_checkpoints, spare=[self._best.step] if self._best else [])
        self._link.beat(self.global_steps, "a save")

    def _save_between_steps(self) -> None:
        """On GPUs a save takes memory that rollout servers hold while they are awake; within a step verl saves while they sleep."""
        if self.trainer_mode != "sync":
            self.checkpoint_manager.abort_replicas()
        self.checkpoint_manager.sleep_replicas()
        self._save_checkpoint()

    def _stop(self, reason: str, *, done: int) -> None:
        """Between two steps: save what is not saved, and leave. `done` is the last step that was trained."""
        if self._saved_step != done:
            self.global_steps = done
            self._save_between_steps()
        fix = "Its checkpoint is saved; the same command goes on from there." if done else "The same command starts it again."
        raise JobStopped.of("job", f"stopped by {reason} after step {done}", fix=fix)

    def _keep_best(self, metrics: dict[str, float]) -> None:
        """Save and name this step if no validation before was as good. Asynchronous trainers save when it is their time, so only a saved step counts."""
        metric, value = find_best_value(metrics, self.job.job.best_metric)
        if value is None or not math.isfinite(value):
            return
        if self._best is not None and self._best.metric == metric and value <= self._best.value:
            return
        if self._saved_step != self.global_steps:
            if self.trainer_mode != "sync":
                return
            self._save_between_steps()
            self.checkpoint_manager.update_weights(self.global_steps)  # wakes them
        self._best = Best(step=self.global_steps, metric=metric, value=value)
        write_best(self._run_dir, self._best)


def find_best_value(metrics: dict[str, float], name: str | None) -> tuple[str, float | None]:
    """The metric that checkpoints are compared by, more being better.

    Args:
        metrics: of one validation.
        name: `job.best_metric`; None takes the mean over data sets of verl's main reward.

    Returns:
        the metric's name, and its value or None where there is none.

    Raises:
        ConfigError: a metric was named that the validation does not report.
    """
    if name is not None:
        if name not in metrics:
            raise ConfigError.of("key job.best_metric", "is no metric of the validation", got=name, expected=f"one of {sorted(metrics)}")
        return name, float(metrics[name])
    rewards = [value for key, value in metrics.items() if key.startswith("val-core/") and "/reward/mean@" in key]
    return "mean of val-core/*/reward/mean@*", sum(map(float, rewards)) / len(rewards) if rewards else None


def extend_trainer(mode: str) -> None:
    """Let verl's trainer of this mode report, stop and keep more, in this process only.

    Args:
        mode: `trainer.v1.trainer_mode`. The registered name stays as it is, because verl decides by it what is synchronous.
    """
    base = trainer_base.get_trainer_cls(mode)
    if not issubclass(base, JobHooks):
        trainer_base.TRAINER_REGISTRY[mode] = type(f"NapMem{base.__name__}", (JobHooks, StepReports, base), {})


def drop_leftovers(partition_id: str, trajectories_dir: Path) -> None:
    """Take from a restored queue what would be counted twice: rows that are trained already, and notes and episodes of prompts that are handed out again."""
    left = find_leftovers((tq.kv_list(partition_id) or {}).get(partition_id, {}))
    if left.orphans:
        tq.kv_clear(keys=list(left.orphans), partition_id=partition_id)
    if left.old_notes:
        tq.kv_batch_put(keys=list(left.old_notes), partition_id=partition_id, tags=[dict(notes) for notes in left.old_notes.values()])
    if left.in_flight:
        rows = tq.kv_batch_get(keys=list(left.in_flight), partition_id=partition_id, select_fields=["task"])
        tasks = [json.loads(task)["task_id"] for task in rows["task"]]
        set_aside_episodes(trajectories_dir, list(zip(left.in_flight.values(), tasks, strict=True)))


def _read_logprob_gap(batch: KVBatchMeta, *, version: int) -> dict[str, float]:
    fields = ["rollout_log_probs", "old_log_probs", "response_mask"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    rollout, learner, mask = ([row.flatten() for row in data[field]] for field in fields)
    fresh = torch.cat([torch.full_like(row, tag["min_global_steps"] == version) for row, tag in zip(mask, batch.tags, strict=True)])
    return compute_logprob_gap(torch.cat(rollout), torch.cat(learner), torch.cat(mask), fresh)


def compute_logprob_gap(rollout: torch.Tensor, learner: torch.Tensor, mask: torch.Tensor, fresh: torch.Tensor) -> dict[str, float]:
    """Largest and mean absolute difference where the policy sampled. Only fresh rows tell whether engine and learner agree: older ones should differ.

    Args:
        rollout, learner: log-probs [N] of the same tokens.
        mask: [N], 1 where the policy sampled.
        fresh: [N], 1 in rows of the learner's own weights.
    """
    gap = (rollout.float() - learner.float()).abs()
    metrics: dict[str, float] = {}
    kinds = ((fresh.bool(), names.LOGPROB_GAP_MAX, names.LOGPROB_GAP_MEAN), (~fresh.bool(), names.STALE_LOGPROB_GAP_MAX, names.STALE_LOGPROB_GAP_MEAN))
    for chosen, max_name, mean_name in kinds:
        some = gap[mask.bool() & chosen]
        if some.numel():
            metrics |= {max_name: some.max().item(), mean_name: some.mean().item()}
    return metrics
