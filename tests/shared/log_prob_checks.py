"""What every rollout server must keep to."""

from __future__ import annotations

from typing import Any


def assert_log_probs_agree(metrics: list[dict[str, Any]]) -> None:
    """Log-probs of rollout and learner, in the two steps of a job, of which the first changed the weights."""
    first, second = metrics
    assert first["actor/grad_norm"] > 0 and first["actor/lr"] > 0, "the first step must have changed the weights"
    assert 0 < first["napmem/logprob_gap_max"] <= 1e-4
    assert 0 < second["napmem/logprob_gap_max"] <= 1e-4
