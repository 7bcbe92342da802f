"""The hooks of verl 0.9.1 that a job of ours stands on. When the pin moves, these say what moved."""

import asyncio
import inspect
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("verl")

from rollout_queue import build_sampler, prompt, rollout
from verl.experimental.agent_loop import AgentLoopOutput
from verl.protocol import DataProto
from verl.trainer import main_ppo
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.v1 import agent_loop_tq, replay_buffer, trainer_base
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.utils import tensordict_utils as tu
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from napmem_rl.backend import agent_loop, job_runner, sampler, trainer
from napmem_rl.backend.in_flight import RepeatCounter
from napmem_rl.errors import BackendError, ConfigError, StaleWeightsError


def parameters_of(function) -> list[str]:
    """Names of a function's parameters, without those that Ray adds to the methods of actors."""
    return [name for name in inspect.signature(function).parameters if not name.startswith("_ray")]


def test_grpo_without_std_is_the_reward_minus_the_group_mean():
    rewards = torch.tensor([1.0, -1.0, -1.0, 0.5, 0.5])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 0, 1], [0, 1, 0]])
    token_rewards = torch.zeros(5, 3)
    token_rewards[:, 2] = rewards  # on the last token, as verl puts it, masked or not
    groups = np.array(["a", "a", "a", "b", "b"], dtype=object)
    advantages, _ = core_algos.compute_grpo_outcome_advantage(token_rewards, mask, groups, norm_adv_by_std_in_grpo=False)
    expected = torch.tensor([4 / 3, -2 / 3, -2 / 3, 0.0, 0.0]).unsqueeze(-1) * mask
    assert torch.allclose(advantages, expected, atol=1e-6)


def test_a_lone_row_would_take_its_raw_reward_as_advantage_which_is_why_its_group_is_dropped():
    advantages, _ = core_algos.compute_grpo_outcome_advantage(
        torch.tensor([[0.7]]), torch.ones(1, 1), np.array(["a"], dtype=object), norm_adv_by_std_in_grpo=False
    )
    assert advantages.item() == pytest.approx(0.7)


def test_every_context_of_a_sample_gets_the_advantage_of_its_last_one():
    keys = ["u_0_0", "u_0_1", "u_1_0"]
    mask = torch.ones(3, 2, dtype=torch.long)
    rewards = torch.tensor([[0.0, 9.0], [0.0, 1.0], [0.0, -1.0]])
    data = DataProto.from_dict(tensors={"token_level_rewards": rewards, "response_mask": mask}, non_tensors={"uid": np.array(["u"] * 3, dtype=object)})
    done = compute_advantage_for_multi_trajectories(data, keys, adv_estimator="grpo", norm_adv_by_std_in_grpo=False)
    assert done.batch["advantages"][:, 0].tolist() == [1.0, 1.0, -1.0]


def test_an_empty_list_of_outputs_puts_nothing_into_the_queue(monkeypatch):
    def refuse(**kwargs):
        raise AssertionError("something was put into the queue")

    monkeypatch.setattr(agent_loop_tq.tq, "async_kv_batch_put", refuse)
    worker = object.__new__(agent_loop._WorkerBase)
    assert asyncio.run(worker._agent_loop_postprocess([], False, uid="u", session_id=0)) is None


def test_the_class_behind_verls_worker_actor_has_what_ours_overrides():
    base = agent_loop._WorkerBase
    assert issubclass(agent_loop.NapMemAgentLoopWorker, base)
    assert parameters_of(base._run_agent_loop) == ["self", "sampling_params", "trajectory", "agent_name", "trace", "kwargs"]
    source = inspect.getsource(agent_loop_tq)
    assert "session_id=i" in source and "await _settle_session_tasks(tasks)" in source, "a group's status is published after all its sessions"


def build_batch(*task_ids: str, step: int, **more):
    """As verl's trainer hands prompts to the manager."""
    batch = tu.get_tensordict({"task": np.array([json.dumps({"task_id": task_id}) for task_id in task_ids], dtype=object)})
    for name, value in {"global_steps": step, **more}.items():
        tu.assign_non_tensor_data(batch, name, value)
    return batch


def test_a_task_that_a_step_has_twice_is_told_apart_by_a_column_that_workers_see_row_by_row(monkeypatch):
    handed_out = []
    monkeypatch.setattr(agent_loop_tq.AgentLoopManagerTQ, "generate_sequences", lambda self, prompts: handed_out.append(prompts))
    manager = object.__new__(agent_loop.NapMemAgentLoopManager)
    manager._repeats = RepeatCounter()
    for batch in (build_batch("a", "b", step=1), build_batch("b", "c", step=1), build_batch("b", "c", step=2), build_batch("b", "b", step=2, validate=True)):
        manager.generate_sequences(batch)
    assert [agent_loop.REPEAT in batch for batch in handed_out] == [False, True, False, False]
    assert [int(chunk[agent_loop.REPEAT][0]) for chunk in handed_out[1].chunk(2)] == [1, 0]
    assert "prompt[k] = v[i]" in inspect.getsource(agent_loop._WorkerBase.generate_sequences), "a tensor's element reaches the session"


def test_an_output_with_a_reward_is_not_scored_again():
    worker = SimpleNamespace(reward_loop_worker_handles=[])
    output = AgentLoopOutput(prompt_ids=[1], response_ids=[2], response_mask=[1], reward_score=0.25, metrics={})
    asyncio.run(agent_loop._WorkerBase._compute_score(worker, [output], kwargs={}))
    assert output.reward_score == 0.25
    scores = output.as_dict()["rm_scores"]
    assert scores.tolist() == [0.25]


def test_verls_client_lends_servers_the_way_the_batching_client_borrows_them():
    assert list(inspect.signature(LLMServerClient._acquire_server).parameters) == ["self", "request_id", "extra"]
    assert list(inspect.signature(LLMServerClient._release_server).parameters) == ["self", "server_id", "request_id"]
    assert {"token_ids", "log_probs", "stop_reason", "extra_fields"} <= set(TokenOutput.model_fields)


def test_the_replay_buffer_calls_the_methods_that_the_sampler_overrides():
    base = replay_buffer.ReplayBufferAsync
    for name in ("sample", "_terminal_eviction_reasons", "_select_prompt_uids", "_materialize_batch", "_wait_for_next_poll"):
        assert list(inspect.signature(getattr(sampler.GroupSampler, name)).parameters) == list(inspect.signature(getattr(base, name)).parameters), name
    source = inspect.getsource(base.sample) + inspect.getsource(base.wait_for_sampleable)
    for name in ("self._terminal_eviction_reasons(", "self._select_prompt_uids(", "self._materialize_batch(", "self._wait_for_next_poll("):
        assert name in source


def test_a_trainer_expects_version_s_minus_1_in_step_s_and_version_s_in_the_validation_after_it():
    fit = inspect.getsource(trainer_base.PPOTrainer.fit)
    assert fit.index("self.on_step_end()") < fit.index("val_metrics: dict = self._validate()") < fit.rindex("self.global_steps += 1")


def test_the_task_runner_behind_verls_actor_can_be_run_in_another_actor():
    runner = main_ppo.TaskRunnerV1.__ray_metadata__.modified_class.__ray_actor_class__()
    assert parameters_of(runner.run) == ["config"]
    assert "get_trainer_cls(config.trainer.v1.trainer_mode)" in inspect.getsource(main_ppo)
    assert "TaskRunnerV1" in inspect.getsource(job_runner)


def test_our_hooks_are_mixed_into_the_trainer_of_the_mode_under_its_own_name(monkeypatch):
    monkeypatch.setattr(trainer_base, "TRAINER_REGISTRY", dict(trainer_base.TRAINER_REGISTRY))
    trainer.extend_trainer("sync")
    trainer.extend_trainer("sync")
    chosen = trainer_base.get_trainer_cls("sync")
    assert chosen.__mro__[1:3] == (trainer.JobHooks, trainer.StepReports)
    assert chosen.__name__ == "NapMemPPOTrainerSync"


def test_what_our_hooks_override_is_called_where_they_expect_it():
    fit, save = inspect.getsource(trainer_base.PPOTrainer.fit), inspect.getsource(trainer_base.PPOTrainer._save_checkpoint)
    calls = ["on_step_begin()", "step(metrics, self.timing_raw)", "_save_checkpoint()", "on_step_end()", "_validate()", "logger.log("]
    places = [fit.index(f"self.{call}", fit.index("while current_epoch")) for call in calls]
    assert places == sorted(places)
    parts = ["torch.save(self.train_dataloader.state_dict()", "latest_checkpointed_iteration.txt", "async_save=False"]
    assert [save.index(part) for part in parts] == sorted(save.index(part) for part in parts), "the callback seals what is finished"
    load = inspect.getsource(trainer_base.PPOTrainer._load_checkpoint)
    assert 'resume_mode == "resume_path"' in load and "resume_from_path" in load
    setup = inspect.getsource(trainer_base.PPOTrainer._setup)
    assert "self.actor_rollout_wg" in setup and "self.llm_server_manager" in setup


def test_the_best_checkpoint_is_compared_by_the_mean_of_all_rewards_or_by_the_metric_that_is_named():
    metrics = {"val-core/a/reward/mean@1": 0.5, "val-core/b/reward/mean@1": -0.25, "val-aux/a/reward/std@1": 9.0, "val/abstained": 1.0}
    assert trainer.find_best_value(metrics, None) == ("mean of val-core/*/reward/mean@*", 0.125)
    assert trainer.find_best_value(metrics, "val/abstained") == ("val/abstained", 1.0)
    assert trainer.find_best_value({"val/abstained": 1.0}, None)[1] is None, "nothing to compare is not a zero"
    with pytest.raises(ConfigError, match="job.best_metric: is no metric of the validation; got 'val/reward'"):
        trainer.find_best_value(metrics, "val/reward")


def test_the_log_prob_gap_counts_sampled_tokens_alone():
    rollout, learner, mask = torch.tensor([-1.0, -2.0, 5.0]), torch.tensor([-1.5, -2.25, 0.0]), torch.tensor([1, 1, 0])
    assert trainer.compute_logprob_gap(rollout, learner, mask, torch.ones(3)) == {"napmem/logprob_gap_max": 0.5, "napmem/logprob_gap_mean": 0.375}


def test_the_log_prob_gap_of_rows_from_older_weights_has_a_name_of_its_own():
    rollout, learner = torch.tensor([-1.0, -1.0, -1.0]), torch.tensor([-1.5, -3.0, -2.0])
    gap = trainer.compute_logprob_gap(rollout, learner, torch.ones(3), torch.tensor([1, 0, 0]))
    assert gap.pop("napmem/logprob_gap_max") == gap.pop("napmem/logprob_gap_mean") == 0.5
    assert gap == {"napmem/stale_logprob_gap_max": 2.0, "napmem/stale_logprob_gap_mean": 1.5}


ABSTAINED = {"cause": "judge", "detail": "judge: no verdict"}


def test_abstained_sessions_are_counted_and_a_group_with_one_row_left_is_taken_out_of_the_queue(monkeypatch):
    partition = {
        "a": prompt(),
        "b": prompt(napmem_note_1=ABSTAINED),
        "a_1_0": rollout("t1", -1.0),
        "a_0_0": rollout("t1", 1.0),
        "b_0_0": rollout("t2", 1.0),
    }
    buffer, queue, _ = build_sampler(monkeypatch, partition)
    batch, metrics = buffer.sample(global_steps=3, partition_id="train", batch_size=2)
    assert batch.keys == ["a_0_0", "a_1_0"]
    assert [tag["reward"] for tag in batch.tags] == [1.0, -1.0]
    assert metrics["napmem/abstained/judge"] == 1
    assert metrics["napmem/dropped_groups"] == 1 and metrics["napmem/dropped_rows"] == 1
    assert metrics["napmem/weight_version"] == 2
    assert sorted(queue.partitions["train"]) == ["a_0_0", "a_1_0"], "nothing of the dropped group stays behind"


def test_a_batch_without_any_usable_group_is_replaced_by_fresh_prompts(monkeypatch):
    buffer, queue, refills = build_sampler(monkeypatch, {"a": prompt(napmem_note_0=ABSTAINED, napmem_note_1=ABSTAINED)})

    def refill(count: int) -> None:
        refills.append(count)
        queue.partitions["train"].update({"b": prompt(), "b_0_0": rollout("t2", 1.0), "b_1_0": rollout("t2", 0.0)})

    buffer.refill_fn = refill
    batch, metrics = buffer.sample(global_steps=3, partition_id="train", batch_size=1)
    assert refills == [1]
    assert batch.keys == ["b_0_0", "b_1_0"]
    assert metrics["napmem/refilled_batches"] == 1


def test_batches_that_stay_empty_end_the_job_with_their_cause(monkeypatch):
    buffer, queue, refills = build_sampler(monkeypatch, {"a": prompt(napmem_note_0=ABSTAINED)})
    buffer.refill_fn = lambda count: refills.append(count) or queue.partitions["train"].update({"a": prompt(napmem_note_0=ABSTAINED)})
    with pytest.raises(BackendError, match="judge"):
        buffer.sample(global_steps=3, partition_id="train", batch_size=1)
    assert len(refills) == sampler.MAX_REFILLS


def test_rows_of_other_weights_than_the_step_expects_are_an_error(monkeypatch):
    buffer, _, _ = build_sampler(monkeypatch, {"a": prompt(), "a_0_0": rollout("t1", 1.0), "a_1_0": rollout("t1", 0.0, version=1)})
    with pytest.raises(StaleWeightsError, match="version 2 alone"):
        buffer.sample(global_steps=3, partition_id="train", batch_size=1)


def test_an_episode_that_raised_stops_the_job_with_its_words(monkeypatch):
    note = {"cause": "exception", "detail": "StaleWeightsError: versions 1 to 2"}
    buffer, _, _ = build_sampler(monkeypatch, {"a": prompt("failure", napmem_note_0=note), "a_1_0": rollout("t1", 1.0)})
    with pytest.raises(StaleWeightsError, match="versions 1 to 2"):
        buffer.sample(global_steps=3, partition_id="train", batch_size=1)


def test_rollouts_that_stall_end_the_job(monkeypatch):
    buffer, _, _ = build_sampler(monkeypatch, {"a": prompt("running")}, stall_timeout_s=0.1)
    with pytest.raises(BackendError, match="no progress"):
        buffer.sample(global_steps=3, partition_id="train", batch_size=1)
