"""How old the weights are that a batch was sampled from, without Ray or verl."""

from __future__ import annotations

from collections.abc import Sequence

from napmem_rl.backend import metric_names as names
from napmem_rl.errors import StaleWeightsError

Versions = tuple[int | None, int | None]  # oldest and newest weights of one row, as trainer steps


def compute_staleness(rows: Sequence[Versions], *, current: int, limit: int | None) -> dict[str, float]:
    """Check the versions of a batch and count.

    Args:
        rows: (oldest, newest) version of each row.
        current: version of the weights that are about to be trained. A row's staleness is `current` minus its oldest version.
        limit: largest staleness allowed; None allows any.

    Returns:
        mean and largest staleness, and the share of rows that several versions sampled; {} without rows.

    Raises:
        StaleWeightsError: a row without versions, with versions that cannot be, or older than the limit.
    """
    ages: list[int] = []
    for oldest, newest in rows:
        if oldest is None or newest is None or not oldest <= newest <= current:
            raise StaleWeightsError.of("a rollout", "has impossible weight versions", got=f"{oldest} to {newest}", expected=f"at most {current}, oldest first")
        ages.append(current - oldest)
    if limit is not None and max(ages, default=0) > limit:
        raise StaleWeightsError.of(
            "a rollout", "is staler than allowed", got=f"{max(ages)} versions behind", expected=f"at most {limit} (max_off_policy_threshold - 1)"
        )
    if not ages:
        return {}
    return {
        names.STALENESS_MEAN: sum(ages) / len(ages),
        names.STALENESS_MAX: float(max(ages)),
        names.SPANNING_FRACTION: sum(oldest != newest for oldest, newest in rows) / len(rows),
    }
