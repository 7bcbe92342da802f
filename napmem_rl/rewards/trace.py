"""How well the memories that a policy cites agree with those that hold the evidence: pure functions over sets of ids."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """Precision and recall of cited ids, and their harmonic mean, all in [0, 1]."""

    precision: float
    recall: float
    f1: float


NO_AGREEMENT = Agreement(precision=0.0, recall=0.0, f1=0.0)


def compute_agreement(cited: Collection[str], references: Collection[str]) -> Agreement:
    """Agreement of cited ids with reference ids.

    Args:
        cited: ids that were put forward as evidence; repeats count once.
        references: ids that hold it; repeats count once.

    Returns:
        precision = shared / cited, recall = shared / references, f1 = 2 * shared / (cited + references). All 0 where either is empty.

    Example: ``compute_agreement(["a", "b", "c"], ["a", "d"])`` has precision 1/3, recall 1/2, f1 2/5.
    """
    cited_ids, reference_ids = frozenset(cited), frozenset(references)
    num_shared = len(cited_ids & reference_ids)
    if num_shared == 0:
        return NO_AGREEMENT
    return Agreement(
        precision=num_shared / len(cited_ids),
        recall=num_shared / len(reference_ids),
        f1=2 * num_shared / (len(cited_ids) + len(reference_ids)),
    )
