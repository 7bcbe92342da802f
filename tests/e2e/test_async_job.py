"""One real job in verl's colocate_async mode, in which episodes span weight updates; see conftest.py for its data."""

import math

import pytest

MAX_STALENESS = 2  # max_off_policy_threshold of the recipe, less one


def test_an_asynchronous_job_ends_well_with_every_step_in_the_metrics(async_job):
    assert async_job.exit_code == 0, async_job.output[-4000:]
    assert [entry["step"] for entry in async_job.metrics()] == [1, 2, 3, 4]
    assert all(math.isfinite(entry["napmem/reward"]) and -1 <= entry["napmem/reward"] <= 1 for entry in async_job.metrics())


def test_rows_get_older_than_the_weights_and_never_older_than_allowed(async_job):
    oldest = [entry["napmem/staleness_max"] for entry in async_job.metrics()]
    assert oldest[0] == 0 and 0 < max(oldest) <= MAX_STALENESS
    assert any(entry["napmem/spanning_fraction"] > 0 for entry in async_job.metrics()), "some episode went on under the next weights"
    for entry in async_job.metrics():
        assert entry["napmem/staleness_max"] == entry["training/off_policy/trajectory_staleness_worst/max"], "verl counts the same"


def test_trajectories_say_which_weights_sampled_them(async_job):
    lines = async_job.trajectories("step")
    spans = [(line["min_policy_version"], line["policy_version"]) for line in lines]
    assert all(0 <= oldest <= newest <= 4 for oldest, newest in spans), "4: prompts in flight at the end"
    assert any(oldest < newest for oldest, newest in spans)
    assert all(line["min_policy_version"] >= line["step"] - 1 for line in lines), "a prompt of step s meets weights s - 1 at the earliest"


def test_no_turn_is_cut_by_a_weight_update(async_job):
    spanning = [line for line in async_job.trajectories("step") if line["min_policy_version"] != line["policy_version"]]
    assert {line["status"] for line in async_job.trajectories("step")} & {"error_llm"} == set()
    assert any(line["status"] == "completed" for line in spanning), "an episode can be completed across an update"


def test_fresh_rows_agree_with_the_learner_and_only_older_ones_are_corrected(async_job):
    first, *later = async_job.metrics()
    assert first["napmem/logprob_gap_max"] <= 1e-4 and "napmem/stale_logprob_gap_max" not in first
    assert first["rollout_corr/rollout_is_mean"] == pytest.approx(1.0, abs=1e-4)
    for entry in later:
        assert entry.get("napmem/logprob_gap_max", 0.0) <= 1e-4
        assert 0 < entry["rollout_corr/rollout_is_max"] <= 2.0
    assert max(entry.get("napmem/stale_logprob_gap_max", 0.0) for entry in later) > 1e-3


def test_a_validation_of_an_asynchronous_job_sees_the_newest_weights_alone(async_job):
    lines = async_job.trajectories("val")
    assert len(lines) == 4 and {(line["min_policy_version"], line["policy_version"]) for line in lines} == {(4, 4)}
