"""Names of what the training loop logs each step beside verl's own metrics.

Facts of trajectories keep the names of `napmem_rl.evals.metrics`, below `FACT`; what only a training batch has is named here.
"""

from __future__ import annotations

FACT = "napmem/{name}"  # aggregate of the trained rows of a step, e.g. napmem/correctness
ABSTAINED = "napmem/abstained"  # sessions without an honest reward: the judge gave none, or the failure was ours
ABSTAINED_BECAUSE = "napmem/abstained/{cause}"  # by cause: judge, answer_model, error_tool, error_llm, reward_worker, no_tokens
KEPT_GROUPS = "napmem/kept_groups"
DROPPED_GROUPS = "napmem/dropped_groups"  # groups left with too few rows to compare
DROPPED_ROWS = "napmem/dropped_rows"  # rows of those groups, themselves fine
ZERO_VARIANCE_GROUPS = "napmem/zero_variance_groups"  # groups whose rewards are all equal: no gradient
ZERO_VARIANCE_FRACTION = "napmem/zero_variance_fraction"  # of the kept groups
REFILLED_BATCHES = "napmem/refilled_batches"  # whole batches without one usable group, replaced by fresh prompts
WEIGHT_VERSION = "napmem/weight_version"  # of the rollouts of this step; synchronous training alone, where it is one
STALENESS_MEAN = "napmem/staleness_mean"  # weight versions between a row's oldest token and the weights that are trained on it
STALENESS_MAX = "napmem/staleness_max"
SPANNING_FRACTION = "napmem/spanning_fraction"  # of the trained rows: sampled by more than one version of the weights
STALE_GROUPS = "napmem/stale_groups"  # groups dropped since they were too old (max_off_policy_strategy: drop)
LOGPROB_GAP_MAX = "napmem/logprob_gap_max"  # of fresh rows: largest |learner - rollout| of a sampled token before the update, in nats; fp32: 1e-4
LOGPROB_GAP_MEAN = "napmem/logprob_gap_mean"
STALE_LOGPROB_GAP_MAX = "napmem/stale_logprob_gap_max"  # the same of rows from older weights, where it shows how far the policy has moved
STALE_LOGPROB_GAP_MEAN = "napmem/stale_logprob_gap_mean"
VAL_ABSTAINED = "val/abstained"  # sessions of a validation that left no row
VAL_ABSTAINED_BECAUSE = "val/abstained/{cause}"
