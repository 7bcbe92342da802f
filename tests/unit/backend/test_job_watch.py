"""Signals, the lock of a run directory, dead actors, and what a stop does to validations and checkpoints, without Ray."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
from omegaconf import OmegaConf

pytest.importorskip("verl")

from napmem_rl.backend import death_watch, watchdog
from napmem_rl.backend import trainer as trainer_module
from napmem_rl.backend.checkpoints import list_shards
from napmem_rl.backend.death_watch import DeathWatch, means_death
from napmem_rl.backend.run_checkpoints import Best, read_best, seal_checkpoint
from napmem_rl.backend.run_files import hold_run_dir
from napmem_rl.backend.trainer import JobHooks
from napmem_rl.backend.watchdog import keep_sigterm, stop_on_signals
from napmem_rl.errors import ConfigError, JobStopped


def test_the_same_signal_sent_twice_at_once_is_one_and_a_later_one_is_a_second(monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals() as request:
        request.raise_if_stopped()
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert request.reason == "SIGTERM" and request.exit_code is None and not request.is_settled
        with pytest.raises(JobStopped, match="stopped by SIGTERM before its first step"):
            request.raise_if_stopped()
        monkeypatch.setattr(watchdog, "REPEAT_S", 0.05)
        time.sleep(0.1)
        assert request.is_settled
        os.kill(os.getpid(), signal.SIGUSR1)
        assert (request.reason, request.exit_code) == ("SIGTERM", 128 + signal.SIGUSR1)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_handler_that_was_put_in_sigterms_place_is_taken_out_and_its_exit_means_stopped():
    before = signal.getsignal(signal.SIGTERM)
    with keep_sigterm():
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))  # as ray.init does
    assert signal.getsignal(signal.SIGTERM) == before
    with pytest.raises(JobStopped, match="while Ray started"), keep_sigterm():
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
    with pytest.raises(SystemExit), keep_sigterm():
        sys.exit(75)


def test_a_run_directory_is_one_jobs_at_a_time_and_free_when_that_job_is_killed(tmp_path):
    code = "import sys, time; from pathlib import Path; from napmem_rl.backend.run_files import hold_run_dir\n"
    code += "with hold_run_dir(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(60)"
    run_dir = tmp_path / "run"
    other = subprocess.Popen([sys.executable, "-c", code, str(run_dir)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match="is in use by another job"), hold_run_dir(run_dir):
            pass
    finally:
        other.kill()
        other.wait()
    with hold_run_dir(run_dir):
        pass
    with hold_run_dir(run_dir):
        pass


@pytest.mark.parametrize(
    ("error", "is_dead"),
    [
        (ray.exceptions.ActorDiedError(), True),
        (ray.exceptions.OutOfMemoryError("killed"), True),
        (ray.exceptions.NodeDiedError("gone"), True),
        (ray.exceptions.ActorPlacementGroupRemoved(), True),
        (ray.exceptions.ActorUnavailableError("restarting", None), False),
        (ray.exceptions.RayTaskError("f", "trace", ValueError("x")), False),
        (ValueError("x"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_which_failures_of_a_call_mean_that_its_actor_is_gone(error, is_dead):
    assert means_death(error) is is_dead


class Pings:
    """Stands in for Ray: every call to an actor is pending until the actor is in `dead`."""

    def __init__(self) -> None:
        self.dead: set[str] = set()

    def actor(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(__ray_call__=SimpleNamespace(remote=lambda function: name))

    def wait(self, refs: list[str], num_returns: int, timeout: float) -> tuple[list[str], list[str]]:
        return [ref for ref in refs if ref in self.dead], [ref for ref in refs if ref not in self.dead]

    def get(self, ref: str) -> None:
        raise ray.exceptions.ActorDiedError()


def test_actors_whose_end_is_wanted_are_watched_no_longer_and_those_that_died_before_stay_dead(monkeypatch):
    pings, watch = Pings(), DeathWatch()
    monkeypatch.setattr(death_watch, "ray", SimpleNamespace(wait=pings.wait, get=pings.get, exceptions=ray.exceptions))
    for name in ("learner 0", "controller", "unit"):
        watch.add(name, pings.actor(name))
    assert watch.find_dead() == {}
    pings.dead = {"unit"}
    watch.forget(["controller", "unit"])
    pings.dead |= {"controller", "learner 0"}
    assert set(watch.find_dead()) == {"unit", "learner 0"}


def test_the_error_of_a_peer_is_said_to_be_that_of_the_actor_that_died(monkeypatch):
    monkeypatch.setattr(death_watch.WATCH, "wait_for_dead", lambda timeout_s: {"learner 1": "killed"})
    lost = ray.exceptions.RayTaskError("update", "trace", RuntimeError("Connection closed by peer"))
    assert death_watch.name_dead(lost).message.startswith("training job: lost learner 1 (killed)")
    assert death_watch.name_dead(ray.exceptions.RayTaskError("update", "trace", ConfigError("x"))) is None, "our own errors say it better"
    monkeypatch.setattr(death_watch.WATCH, "wait_for_dead", lambda timeout_s: {})
    assert death_watch.name_dead(lost) is None


def test_a_checkpoint_waits_for_one_file_of_each_kind_from_each_learner():
    actor = {"strategy": "fsdp2", "checkpoint": {"save_contents": ["model", "extra", "hf_model"]}}
    config = OmegaConf.create({"actor_rollout_ref": {"actor": actor}, "trainer": {"nnodes": 2, "n_gpus_per_node": 1}})
    kinds = ("model", "extra_state")
    assert list_shards(config) == [f"actor/{kind}_world_size_2_rank_{rank}.pt" for kind in kinds for rank in (0, 1)]
    config.actor_rollout_ref.actor.strategy = "megatron"
    assert list_shards(config) == []


class Base:
    """Stands in for verl's trainer: writes checkpoints, validates as told, and records what was done."""

    def _validate(self) -> dict[str, float]:
        self.done.append("validate")
        return self.metrics

    def _save_checkpoint(self) -> None:
        directory = Path(self.config.trainer.default_local_dir) / f"global_step_{self.global_steps}"
        directory.mkdir()
        (directory / "data.pt").write_bytes(b"rows")
        seal_checkpoint(directory, step=self.global_steps, bank_versions={})
        self.done.append(f"save {self.global_steps}")

    def on_step_begin(self) -> None:
        self.done.append(f"step {self.global_steps}")

    def on_step_end(self) -> None:
        self.done.append("sync")


class HookedTrainer(JobHooks, Base):
    """The hooks on that base, as after `init`."""

    def __init__(self, run_dir: Path, *, step: int, mode: str = "sync") -> None:
        self.done: list[str] = []
        self.stop_reason: str | None = None
        self.metrics = {"val-core/a/reward/mean@1": 0.5}
        self.config = OmegaConf.create({"trainer": {"default_local_dir": str(run_dir), "save_freq": 100}})
        self.trainer_mode, self.global_steps, self.total_training_steps = mode, step, 10
        calls = {name: lambda *_, name=name: self.done.append(name) for name in ("sleep_replicas", "abort_replicas", "update_weights")}
        self.checkpoint_manager = SimpleNamespace(**calls)
        self.job = SimpleNamespace(job=SimpleNamespace(keep_checkpoints=None, best_metric=None))
        self._link = SimpleNamespace(beat=lambda step, after: self.stop_reason)
        self._last_report = time.monotonic()
        self._run_dir, self._saved_step, self._has_begun, self._best = run_dir, step, False, None


def test_a_stop_before_the_first_step_waits_for_no_validation(tmp_path):
    trainer = HookedTrainer(tmp_path, step=4)
    trainer.stop_reason = "SIGTERM"
    with pytest.raises(JobStopped, match="after step 4"):
        trainer._validate()
    assert trainer.done == []


def test_a_stop_ends_the_validation_before_the_first_step_and_no_other_rollouts(tmp_path, monkeypatch):
    monkeypatch.setattr(trainer_module, "PROGRESS_INTERVAL_S", 0.0)
    trainer = HookedTrainer(tmp_path, step=4)
    trainer._report_progress("val")
    trainer.stop_reason = "SIGTERM"
    with pytest.raises(JobStopped, match="after step 4"):
        trainer._report_progress("val")
    trainer._has_begun = True
    trainer._report_progress("train")


def stop_within_step(trainer: HookedTrainer, reason: str) -> HookedTrainer:
    """Train the next step; a stop is asked for on the way."""
    trainer.global_steps += 1
    trainer.on_step_begin()
    trainer.stop_reason = reason
    trainer.on_step_end()
    return trainer


def test_a_stop_saves_at_the_steps_end_passes_over_its_validation_and_ends_before_the_next(tmp_path):
    trainer = stop_within_step(HookedTrainer(tmp_path, step=4), "SIGUSR1")
    assert trainer._validate() == {}
    trainer.global_steps = 6
    with pytest.raises(JobStopped, match="stopped by SIGUSR1 after step 5"):
        trainer.on_step_begin()
    assert trainer.done == ["step 5", "save 5", "sync"]


def test_the_last_step_is_validated_even_when_a_stop_was_asked_for(tmp_path):
    trainer = stop_within_step(HookedTrainer(tmp_path, step=9), "SIGTERM")
    assert trainer._validate() == trainer.metrics


@pytest.mark.parametrize(("mode", "before"), [("sync", ["sleep_replicas"]), ("colocate_async", ["abort_replicas", "sleep_replicas"])])
def test_a_stop_that_came_after_the_step_saves_while_rollout_servers_sleep(tmp_path, mode, before):
    trainer = HookedTrainer(tmp_path, step=4, mode=mode)
    trainer.global_steps, trainer.stop_reason = 6, "SIGTERM"
    with pytest.raises(JobStopped, match="after step 5"):
        trainer.on_step_begin()
    assert trainer.done == [*before, "save 5"]


def test_the_best_is_saved_with_servers_asleep_and_they_wake_for_the_next_step(tmp_path):
    trainer = HookedTrainer(tmp_path, step=0)
    trainer.global_steps, trainer._has_begun = 3, True
    trainer._validate()
    assert trainer.done == ["validate", "sleep_replicas", "save 3", "update_weights"]
    assert read_best(tmp_path).step == 3
    trainer.done.clear()
    trainer.global_steps = 4
    trainer._validate()
    assert trainer.done == ["validate"], "no better than step 3"


def test_a_value_that_is_no_number_is_never_the_best_and_values_of_another_metric_do_not_count(tmp_path):
    trainer = HookedTrainer(tmp_path, step=0)
    trainer.global_steps, trainer._has_begun = 3, True
    trainer.metrics = {"val-core/a/reward/mean@1": float("nan")}
    trainer._validate()
    assert trainer._best is None
    trainer._best = Best(step=2, metric="val-aux/length", value=900.0)
    trainer.metrics = {"val-core/a/reward/mean@1": 0.1}
    trainer._validate()
    assert (trainer._best.step, trainer._best.value) == (3, 0.1)
