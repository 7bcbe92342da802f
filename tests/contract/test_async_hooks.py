"""What asynchronous training takes of verl: the order of its steps, its bound on old prompts, its plain client, and truncated importance sampling by hand."""

import inspect
import math

import pytest

pytest.importorskip("verl")

import torch
from omegaconf import OmegaConf
from rollout_queue import build_sampler, prompt, rollout
from verl import DataProto
from verl.trainer.ppo import core_algos, rollout_corr_helper
from verl.trainer.ppo.v1 import trainer_base, trainer_colocate_async
from verl.workers.config import FSDPActorConfig
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient
from verl.workers.utils.padding import response_to_nested

from napmem_rl.errors import BackendError, StaleWeightsError


def group(uid: str, step: int, *rewards: float, versions: tuple[int, int] = (2, 2)) -> dict[str, dict]:
    """A finished prompt that was handed out in `step`, and its rows."""
    rows = {f"{uid}_{index}_0": {**rollout(f"task-{uid}", reward), "min_global_steps": versions[0]} for index, reward in enumerate(rewards)}
    return {uid: {**prompt(), "global_steps": step}} | {key: {**row, "max_global_steps": versions[1]} for key, row in rows.items()}


def test_the_trainer_aborts_after_sampling_and_resumes_under_the_new_weights():
    cls = trainer_colocate_async.PPOTrainerColocateAsync
    assert "self.checkpoint_manager.abort_replicas()" in inspect.getsource(cls.on_sample_end)
    end = inspect.getsource(cls.on_step_end)
    assert end.index("update_weights(self.global_steps)") < end.index("resume_generation_replicas()")
    assert "num_warmup_batches" in inspect.getsource(cls.on_train_begin)


def test_a_resumed_trainer_hands_prompts_in_flight_out_again_with_the_notes_of_their_first_attempt():
    source = inspect.getsource(trainer_base.PPOTrainer._reissue_inflight_prompts)
    assert '("pending", "running")' in source and '"status": "pending", "global_steps": self.global_steps}' in source, "other tags stay: ours are taken off"
    fit = inspect.getsource(trainer_base.PPOTrainer.fit)
    assert fit.index("self._reissue_inflight_prompts()") < fit.index("self.on_train_begin()"), "before fresh prompts"
    assert fit.index("self._save_checkpoint()") < fit.index("tq.kv_clear("), "a checkpoint holds the rows that it was trained on"


def test_verls_plain_client_hands_an_aborted_turn_on_and_the_resuming_one_builds_on_it():
    assert issubclass(FullyAsyncLLMServerClient, LLMServerClient)
    assert "await super().generate(" in inspect.getsource(FullyAsyncLLMServerClient.generate)
    assert "abort" not in inspect.getsource(LLMServerClient.generate)


def test_rows_of_older_weights_are_counted_in_asynchronous_training(monkeypatch):
    partition = group("a", 2, 1.0, 0.0, versions=(1, 2)) | group("b", 3, 1.0, 0.0)
    buffer, _, _ = build_sampler(monkeypatch, partition, threshold=2, strategy="wait", is_sync=False)
    batch, metrics = buffer.sample(global_steps=3, partition_id="train", batch_size=2)
    assert len(batch.keys) == 4
    assert (metrics["napmem/staleness_mean"], metrics["napmem/staleness_max"], metrics["napmem/spanning_fraction"]) == (0.5, 1.0, 0.5)
    assert "napmem/weight_version" not in metrics, "there is no one version"


def test_a_row_older_than_the_threshold_allows_is_an_error_whatever_the_age_of_its_prompt(monkeypatch):
    buffer, _, _ = build_sampler(monkeypatch, group("a", 3, 1.0, 0.0, versions=(0, 2)), threshold=2, strategy="wait", is_sync=False)
    with pytest.raises(StaleWeightsError, match="2 versions behind.*at most 1"):
        buffer.sample(global_steps=3, partition_id="train", batch_size=1)


def test_prompts_that_are_too_old_are_dropped_counted_and_replaced(monkeypatch):
    partition = group("old", 1, 1.0, 0.0, versions=(0, 0))
    buffer, queue, refills = build_sampler(monkeypatch, partition, threshold=2, strategy="drop", is_sync=False)
    buffer.refill_fn = lambda count: refills.append(count) or queue.partitions["train"].update(group("new", 3, 1.0, 0.0))
    batch, metrics = buffer.sample(global_steps=3, partition_id="train", batch_size=1)
    assert batch.keys == ["new_0_0", "new_1_0"] and refills == [1]
    assert metrics["napmem/stale_groups"] == 1 and metrics["napmem/staleness_max"] == 0
    assert sorted(queue.partitions["train"]) == ["new_0_0", "new_1_0"], "nothing of the dropped group stays behind"


def test_waiting_holds_the_batch_until_the_oldest_prompt_has_ended_and_takes_it_first(monkeypatch):
    partition = group("young", 3, 1.0, 0.0) | {"old": {**prompt("running"), "global_steps": 2}}
    buffer, queue, _ = build_sampler(monkeypatch, partition, threshold=2, strategy="wait", is_sync=False)
    polls = []

    def finish(*args):
        polls.append(args)
        queue.partitions["train"].update(group("old", 2, 1.0, 0.0, versions=(1, 2)))
        return 0.0

    monkeypatch.setattr(buffer, "_wait_for_next_poll", finish)
    batch, _ = buffer.sample(global_steps=3, partition_id="train", batch_size=1)
    assert len(polls) == 1 and batch.keys == ["old_0_0", "old_1_0"]


def test_an_episode_that_raised_stops_an_asynchronous_job_too_where_verl_would_fetch_another_prompt(monkeypatch):
    note = {"cause": "exception", "detail": "KeyError: 'x'"}
    buffer, _, refills = build_sampler(monkeypatch, {"a": prompt("failure", napmem_note_0=note)}, threshold=2, is_sync=False)
    with pytest.raises(BackendError, match="KeyError: 'x'"):
        buffer.sample(global_steps=3, partition_id="train", batch_size=1)
    assert refills == []


def test_a_validation_of_an_asynchronous_job_must_come_from_one_version(monkeypatch):
    buffer, queue, _ = build_sampler(monkeypatch, {}, threshold=2, is_sync=False)
    queue.partitions["val"] = group("a", 3, 1.0, versions=(2, 3))
    with pytest.raises(StaleWeightsError, match="version 3 alone"):
        buffer.sample(global_steps=3, partition_id="val", batch_size=1)


# Two rows: prompt left out, then sampled tokens, a tool result (mask 0) between the turns of the first, padding (mask 0) behind the second.
MASK = torch.tensor([[1, 1, 0, 0, 1], [1, 1, 0, 0, 0]])
OLD = torch.tensor([[-1.0, -0.5, -9.0, -9.0, -2.0], [-0.2, -1.0, 0.0, 0.0, 0.0]])  # the learner's, before the update
ROLLOUT = torch.tensor([[-1.0, -2.0, 0.0, 0.0, -1.5], [-0.2 + math.log(2), -1.3, 0.0, 0.0, 0.0]])  # of the weights that sampled each token
WEIGHTS = [1.0, 2.0, 0.0, 0.0, math.exp(-0.5), 0.5, math.exp(0.3), 0.0, 0.0, 0.0]  # exp(old - rollout), at most 2, nothing where nothing was sampled


def correct() -> tuple[torch.Tensor, dict[str, float], torch.Tensor]:
    config = OmegaConf.create({"rollout_is": "token", "rollout_is_threshold": 2.0})
    data = DataProto.from_dict(tensors={"old_log_probs": OLD, "rollout_log_probs": ROLLOUT, "response_mask": MASK})
    corrected, metrics = rollout_corr_helper.compute_rollout_correction_and_add_to_batch(data, config)
    return corrected.batch["rollout_is_weights"], metrics, corrected.batch["response_mask"]


def test_truncated_importance_weights_are_those_worked_by_hand():
    weights, metrics, mask = correct()
    assert weights.flatten().tolist() == pytest.approx(WEIGHTS, abs=1e-6)
    assert torch.equal(mask, MASK), "nothing is rejected"
    assert metrics["rollout_corr/rollout_is_mean"] == pytest.approx(sum(WEIGHTS) / 5, abs=1e-5)
    assert metrics["rollout_corr/rollout_is_ratio_fraction_high"] == pytest.approx(1 / 5), "one of five sampled tokens was cut"


def test_the_weights_reach_a_packed_learner_as_one_list_per_row():
    weights, _, mask = correct()
    rows = response_to_nested(weights, torch.nested.as_nested_tensor([torch.tensor([1, 1, 0, 0, 1]), torch.tensor([1, 1])], layout=torch.jagged)).unbind()
    assert [row.tolist() for row in rows] == [pytest.approx(WEIGHTS[:5], abs=1e-6), pytest.approx(WEIGHTS[5:7], abs=1e-6)]
    source = inspect.getsource(trainer_base.PPOTrainer._compute_advantage)
    assert "compute_rollout_correction_and_add_to_batch(data, rollout_corr_config)" in source and 'fields.append("rollout_is_weights")' in source


def test_each_tokens_loss_is_multiplied_by_its_weight_and_the_weight_has_no_gradient():
    weights, _, mask = correct()
    log_prob = OLD.clone().requires_grad_()
    advantages = torch.tensor([[1.0], [-1.0]]).expand(2, 5)
    config = FSDPActorConfig(strategy="fsdp2", rollout_n=2, ppo_micro_batch_size_per_gpu=1, clip_ratio=0.2, clip_ratio_low=0.2, clip_ratio_high=0.2)
    loss, _ = core_algos.compute_policy_loss_vanilla(OLD, log_prob, advantages, mask, "token-mean", config=config, rollout_is_weights=weights)
    by_hand = (-(1.0 + 2.0 + math.exp(-0.5)) + (0.5 + math.exp(0.3))) / 5
    assert loss.item() == pytest.approx(by_hand, abs=1e-6)
    loss.backward()
    assert log_prob.grad.flatten().tolist() == pytest.approx([*(-w / 5 for w in WEIGHTS[:5]), *(w / 5 for w in WEIGHTS[5:])], abs=1e-6)
    assert not weights.requires_grad
