"""What a batch of rollouts holds, counted without Ray or verl: groups kept and dropped, zero variance, causes, means of per-trajectory facts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from napmem_rl.backend import metric_names as names
from napmem_rl.errors import BackendError
from napmem_rl.evals.metrics import Facts, aggregate

ZERO_VARIANCE_TOLERANCE = 1e-8


@dataclass(frozen=True, kw_only=True, slots=True)
class RowFacts:
    """One rollout in the queue. `key` is verl's ``{uid}_{session}_{index}``; the uid is the group. `facts` are those of `trajectory_facts`."""

    key: str
    task_id: str
    reward: float
    facts: Facts

    @property
    def group(self) -> str:
        """The prompt's uid, shared by all samples of one group."""
        return self.key.rsplit("_", 2)[0]

    @property
    def session(self) -> tuple[int, int]:
        """Sample number within the group and number of the context within the sample."""
        _, session, index = self.key.rsplit("_", 2)
        return int(session), int(index)


@dataclass(kw_only=True, slots=True)
class GroupFacts:
    """The counts of one batch."""

    kept_keys: tuple[str, ...] = ()
    dropped_keys: tuple[str, ...] = ()
    num_kept_groups: int = 0
    num_dropped_groups: int = 0
    num_zero_variance_groups: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    aggregates: dict[str, float] = field(default_factory=dict)
    weight_version: int | None = None
    staleness: dict[str, float] = field(default_factory=dict)

    def as_metrics(self) -> dict[str, float]:
        """Numbers for the logger, under `metric_names`."""
        metrics = {
            names.ABSTAINED: float(self.causes.total()),
            names.KEPT_GROUPS: float(self.num_kept_groups),
            names.DROPPED_GROUPS: float(self.num_dropped_groups),
            names.DROPPED_ROWS: float(len(self.dropped_keys)),
            names.ZERO_VARIANCE_GROUPS: float(self.num_zero_variance_groups),
            names.ZERO_VARIANCE_FRACTION: self.num_zero_variance_groups / max(self.num_kept_groups, 1),
        }
        metrics |= {names.ABSTAINED_BECAUSE.format(cause=cause): float(count) for cause, count in sorted(self.causes.items())}
        metrics |= {names.FACT.format(name=name): value for name, value in sorted(self.aggregates.items())}
        if self.weight_version is not None:
            metrics[names.WEIGHT_VERSION] = float(self.weight_version)
        return metrics | self.staleness


def compute_group_facts(rows: Sequence[RowFacts], causes: Counter[str], *, num_groups: int, min_rows: int) -> GroupFacts:
    """Split rows into kept and dropped groups and count.

    A group with fewer than `min_rows` samples is dropped whole: with one row left, verl's GRPO takes the raw reward as its advantage.

    Args:
        rows: all rows of the batch, in any order.
        causes: why sessions left no row, counted.
        num_groups: prompts of the batch, those without any row included.
        min_rows: samples that a group needs.

    Returns:
        the counts; kept keys are sorted by task, sample and context, so that equal rollouts give equal batches whatever their order of arrival.

    Raises:
        BackendError: two tasks under one group id.
    """
    groups: dict[str, list[RowFacts]] = defaultdict(list)
    for row in rows:
        groups[row.group].append(row)
    for uid, members in groups.items():
        if len({row.task_id for row in members}) != 1:
            raise BackendError.of(f"group {uid}", "holds several tasks", got=sorted({row.task_id for row in members}), expected="one task per group")
    kept = [members for members in groups.values() if len({row.session[0] for row in members}) >= min_rows]
    kept_rows = sorted((row for members in kept for row in members), key=lambda row: (row.task_id, row.session, row.group))
    kept_keys = tuple(row.key for row in kept_rows)
    return GroupFacts(
        kept_keys=kept_keys,
        dropped_keys=tuple(sorted({row.key for row in rows} - set(kept_keys))),
        num_kept_groups=len(kept),
        num_dropped_groups=num_groups - len(kept),
        num_zero_variance_groups=sum(_is_zero_variance(members) for members in kept),
        causes=causes,
        aggregates=aggregate([row.facts for row in kept_rows]) if kept_rows else {},
    )


def _is_zero_variance(members: Sequence[RowFacts]) -> bool:
    rewards = [row.reward for row in members]
    return max(rewards) - min(rewards) <= ZERO_VARIANCE_TOLERANCE
