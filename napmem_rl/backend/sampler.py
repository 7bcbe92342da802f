"""Which rollouts a step trains on: verl's replay buffer with a short poll, clean groups, stable order and our counts.

verl builds this class from `trainer.v1.sampler.custom_sampler`. A custom sampler switches `algorithm.filter_groups` off, which
`config/refusals.py` refuses.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync

from napmem_rl.backend import metric_names as names
from napmem_rl.backend.death_watch import WATCH, describe_deaths
from napmem_rl.backend.group_facts import GroupFacts, RowFacts, compute_group_facts
from napmem_rl.backend.in_flight import NOTE_PREFIX
from napmem_rl.backend.staleness import compute_staleness
from napmem_rl.errors import BackendError, StaleWeightsError
from napmem_rl.schema import Status

logger = logging.getLogger(__name__)

POLL_INTERVAL_S = 0.05  # verl's default of 2.0 s is most of a small step
MAX_REFILLS = 3  # whole batches in a row without one usable group
EVICTED = "training/off_policy/evicted_samples"  # verl's count of prompts that it dropped as too old


class _NoRows(Exception):
    """No prompt of a batch left a row."""

    def __init__(self, uids: list[str]) -> None:
        super().__init__(f"{len(uids)} prompts without rows")
        self.uids = uids


class GroupSampler(ReplayBufferAsync):
    """Drops groups too small to compare, refuses failed groups and rows that are too old, sorts rows, and reports what it saw.

    verl's buffer for asynchronous trainers serves synchronous training as well: there all prompts of a step are of that step, so that it waits for all.
    `max_off_policy_threshold` T bounds how old prompts get; no row may then be more than T - 1 versions behind the weights it trains.

    `sampler_kwargs` of the recipe: `min_group_rows` (2 for GRPO, where a lone row would take its raw reward as advantage; 1 otherwise) and `stall_timeout_s`
    (seconds without any progress of the rollouts before the job is given up). `build_config` adds `is_sync`: every row must come from the current weights.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("poll_interval", POLL_INTERVAL_S)
        super().__init__(*args, **kwargs)
        options = dict(self.sampler_kwargs or {})
        self.min_group_rows = int(options.get("min_group_rows", 1))
        self.is_sync = bool(options.get("is_sync", True))
        self.stall_timeout_s = float(options.get("stall_timeout_s", 1800.0))
        self._last_progress: tuple[Any, float] = (None, time.monotonic())
        self._facts = GroupFacts()
        self.report_progress: Callable[[str], None] | None = None  # called with the partition whenever its rollouts got on
        self.validation_causes: Counter[str] = Counter()  # why sessions of the current validation left no row

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict[str, float]]:
        """One batch of rollouts of `batch_size` prompts.

        Args:
            global_steps: the trainer's step. Training step s updates weight version s - 1, from which its rollouts come in synchronous training, while
                asynchronous training allows older ones; a validation after step s has version s.
            partition_id: "train" or "val".
            batch_size: number of prompts.

        Returns:
            keys of the rows, sorted by task and session, and the metrics of this batch.

        Raises:
            StaleWeightsError: a row came from other weights than this step allows.
            BackendError: a session broke, rollouts stalled, or `MAX_REFILLS` batches in a row left nothing to train on.
        """
        self._last_progress = (None, time.monotonic())
        for refills in range(MAX_REFILLS + 1):
            try:
                batch, metrics = super().sample(global_steps=global_steps, partition_id=partition_id, batch_size=batch_size)
            except _NoRows as empty:
                batch, metrics = self._materialize_batch(partition_id, empty.uids, {}), {}
            if batch.keys:
                self._check_weight_versions(batch, global_steps if partition_id == "val" else global_steps - 1)
                counts = {names.REFILLED_BATCHES: float(refills), names.STALE_GROUPS: float(metrics.get(EVICTED, 0))}
                return batch, {**metrics, **self._facts.as_metrics(), **counts}
            _refuse_dead_actors(partition_id, global_steps, is_engine=self._facts.causes[Status.ERROR_LLM] > 0)
            if partition_id == "val" or refills == MAX_REFILLS:
                break
            logger.warning("Step %d: no usable group in the whole batch (%s); taking fresh prompts", global_steps, self._facts.causes)
            self.refill_fn(batch_size)
        raise BackendError.of(
            f"{partition_id} batch of step {global_steps}",
            f"no usable group after {refills} refills",
            got=dict(self._facts.causes),
            expected="at least one group with enough scored trajectories",
            fix="Look at the last lines of trajectories/ in the run directory: they name the cause of each abstention.",
        )

    def _terminal_eviction_reasons(self, global_steps: int, partition_id: str) -> tuple[set[str], set[str], set[str], Counter]:
        """As verl's, which would clear failed groups and fetch others in their place without a word."""
        reasons = super()._terminal_eviction_reasons(global_steps, partition_id)
        failed = sorted(reasons[2])
        if failed:
            self._refuse_failures(partition_id, failed, _read_notes(partition_id, failed))
        return reasons

    def _select_prompt_uids(self, partition_id: str, sampleable_keys: set[str], batch_size: int) -> tuple[list[str], dict[str, dict], dict[str, int]]:
        """As verl's, but prompts that left no row at all are ours to handle, in validation too: verl would raise, or fail on an empty batch."""
        uids, snapshot, steps = super()._select_prompt_uids(partition_id, sampleable_keys, batch_size)
        selected = set(uids)
        if not any(key.split("_")[0] in selected for key in snapshot):
            raise _NoRows(uids)
        return uids, snapshot, steps

    def _materialize_batch(self, partition_id: str, selected_prompt_uids: list[str], partition_snapshot: dict[str, dict]) -> KVBatchMeta:
        notes = _read_notes(partition_id, selected_prompt_uids)
        self._refuse_failures(partition_id, selected_prompt_uids, notes)
        batch = super()._materialize_batch(partition_id, selected_prompt_uids, partition_snapshot)
        rows = _read_rows(batch)
        min_rows = self.min_group_rows if partition_id != "val" else 1
        self._facts = compute_group_facts(rows, Counter(note["cause"] for note in notes), num_groups=len(selected_prompt_uids), min_rows=min_rows)
        if partition_id == "val":
            self.validation_causes += self._facts.causes
        if self._facts.dropped_keys:
            tq.kv_clear(keys=list(self._facts.dropped_keys), partition_id=partition_id)
        tags = dict(zip(batch.keys, batch.tags, strict=True))
        return KVBatchMeta(partition_id=partition_id, keys=list(self._facts.kept_keys), tags=[tags[key] for key in self._facts.kept_keys])

    def _refuse_failures(self, partition_id: str, uids: list[str], notes: list[dict[str, Any]]) -> None:
        """A session that raised is a defect of ours or of the engine: stop with its words instead of training on what is left."""
        failed = self.failure_keys[partition_id] & set(uids)
        if not failed:
            return
        words = [note["detail"] for note in notes if note["cause"] == "exception"]
        error = StaleWeightsError if any(word.startswith("StaleWeightsError") for word in words) else BackendError
        words = words or ["no message; see the worker logs"]
        raise error.of(f"{len(failed)} prompts of the {partition_id} batch", f"their episodes raised ({words[0]})")

    def _check_weight_versions(self, batch: KVBatchMeta, expected: int) -> None:
        versions = [(tag.get("min_global_steps"), tag.get("max_global_steps")) for tag in batch.tags]
        if self.is_sync or batch.partition_id == "val":
            found = {version for pair in versions for version in pair}
            if found != {expected}:
                raise StaleWeightsError.of("rollouts of this step", "weight version differs", got=sorted(map(str, found)), expected=f"version {expected} alone")
            self._facts.weight_version = expected
        limit = None if self.max_off_policy_threshold is None else self.max_off_policy_threshold - 1
        self._facts.staleness = compute_staleness(versions, current=expected, limit=limit)

    def _wait_for_next_poll(self, partition_id: str, last_debug_time: float) -> float:
        state = (
            len(self.partitions[partition_id]),
            *(len(keys[partition_id]) for keys in (self.pending_keys, self.running_keys, self.finished_keys, self.failure_keys)),
        )
        now = time.monotonic()
        if state != self._last_progress[0]:
            self._last_progress = (state, now)
            if self.report_progress is not None:
                self.report_progress(partition_id)
        elif now - self._last_progress[1] > self.stall_timeout_s:
            raise BackendError.of(
                f"{partition_id} rollouts",
                f"made no progress for {self.stall_timeout_s:.0f} s",
                got=f"{state[0]} rows, {state[1]} prompts pending, {state[2]} running",
                fix="A worker or rollout server probably died; look at its log, or raise trainer.v1.sampler.sampler_kwargs.stall_timeout_s.",
            )
        return super()._wait_for_next_poll(partition_id, last_debug_time)


def _refuse_dead_actors(partition_id: str, step: int, *, is_engine: bool) -> None:
    """Raise BackendError where a batch without rows has its reason in an actor that died; Ray gets time to notice where the engine failed episodes."""
    dead = WATCH.wait_for_dead() if is_engine else WATCH.find_dead()
    if dead:
        raise BackendError.of(f"{partition_id} batch of step {step}", f"has no usable group, since these died: {describe_deaths(dead)}")


def _read_notes(partition_id: str, uids: list[str]) -> list[dict[str, Any]]:
    """The notes that agent-loop workers left on the prompts of this batch."""
    tags = (tq.kv_list(partition_id) or {}).get(partition_id, {})
    return [note for uid in uids for name, note in tags.get(uid, {}).items() if name.startswith(NOTE_PREFIX) and note is not None]


def _read_rows(batch: KVBatchMeta) -> list[RowFacts]:
    """Reward and facts of each row of the queue."""
    if not batch.keys:
        return []
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["rm_scores", "extra_fields"])
    rows: list[RowFacts] = []
    for key, scores, extra in zip(batch.keys, data["rm_scores"], data["extra_fields"], strict=True):
        fields = getattr(extra, "data", extra)
        rows.append(RowFacts(key=key, task_id=fields["task_id"], reward=float(scores.sum()), facts=fields["facts"]))
    return rows
