"""Synchronous against asynchronous training under a long-tailed load: one small job in each mode on a rollout server that is made slow.

Every turn has a speed of its own, drawn from a log-normal distribution by `slow_engine`, so that each step has a few that take far longer than the rest, as
on a GPU server whose batch has room to spare. Both modes train the same number of prompts a step, with the same turns as slow.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from napmem_rl.backend import metric_names as names
from napmem_rl.backend.quickstart_world import Split, build_world
from napmem_rl.backend.slow_engine import SIGMA_VARIABLE, TOKEN_VARIABLE
from napmem_rl.backend.tiny_policy import build_model, build_tokenizer, save_policy
from napmem_rl.config.sections import MemoryConfig
from napmem_rl.data.worlds import all_words
from napmem_rl.errors import BackendError
from napmem_rl.report.run_data import METRICS_FILE

ROOT = Path(__file__).resolve().parents[2]
RECIPES = {"sync": "quickstart.yaml", "colocate_async": "quickstart_async.yaml"}
BATCH, GROUP = 8, 4  # prompts of a step, samples of a prompt
QUESTIONS_PER_USER = 12
ENV = "ray_kwargs.ray_init.runtime_env.env_vars"


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What is simulated: seconds a token of the median turn, and the spread of log speeds (1.5: one turn in a hundred is 33 times slower, none is more)."""

    token_s: float = 0.02
    sigma: float = 1.5
    steps: int = 12
    seed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ModeTiming:
    """One job, means over all its steps, in seconds."""

    mode: str
    step_s: float
    wait_s: float  # of it for rollouts
    staleness_mean: float
    staleness_max: float
    spanning_fraction: float


@dataclass(frozen=True, kw_only=True, slots=True)
class AsyncComparison:
    """Both jobs."""

    load: Load
    modes: tuple[ModeTiming, ...]

    @property
    def ratio(self) -> float:
        """How many times faster a step of the asynchronous job is."""
        sync, asynchronous = self.modes
        return sync.step_s / asynchronous.step_s

    def as_json(self) -> str:
        """Everything, in one line."""
        return json.dumps({**asdict(self), "ratio": self.ratio})

    def __str__(self) -> str:
        lines = [
            f"{one.mode:15} {one.step_s:6.2f} s a step, {one.wait_s:6.2f} s of it waiting for rollouts; staleness {one.staleness_mean:.2f}, "
            f"at most {one.staleness_max:.0f}; {one.spanning_fraction:.0%} of the rows span versions"
            for one in self.modes
        ]
        return "\n".join([*lines, f"asynchronous steps are {self.ratio:.2f} x as fast"])


def compare_async(load: Load, out_dir: Path) -> AsyncComparison:
    """Run both jobs, one after the other, into `out_dir`, which must not hold earlier ones.

    Raises:
        BackendError: a job failed; the message holds the end of its output.
    """
    data_dir = out_dir / "data"
    num_users = -(-(load.steps + 2) * BATCH // QUESTIONS_PER_USER)
    splits = [Split(name="train", num_users=num_users, num_questions=QUESTIONS_PER_USER), Split(name="dev", num_users=1, num_questions=QUESTIONS_PER_USER)]
    build_world(splits, load.seed, data_dir, MemoryConfig(encoder="none"), num_workers=2, on_progress=lambda built, total: None)
    tokenizer = build_tokenizer(all_words(), max_length=768)
    save_policy(build_model(tokenizer, seed=load.seed), tokenizer, data_dir / "model")
    return AsyncComparison(load=load, modes=tuple(_time_mode(mode, load, data_dir, out_dir / mode) for mode in RECIPES))


def _time_mode(mode: str, load: Load, data_dir: Path, run_dir: Path) -> ModeTiming:
    arguments = [
        f"data.dir={data_dir}",
        "memory.encoder=none",
        f"data.train_batch_size={BATCH}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={BATCH}",
        f"actor_rollout_ref.rollout.n={GROUP}",
        f"trainer.total_training_steps={load.steps}",
        "trainer.save_freq=-1",
        f"trainer.default_local_dir={run_dir}",
        f"{ENV}.VERL_USE_EXTERNAL_MODULES='napmem_rl.backend.plugin,napmem_rl.backend.slow_engine'",
        f"{ENV}.{TOKEN_VARIABLE}='{load.token_s}'",
        f"{ENV}.{SIGMA_VARIABLE}='{load.sigma}'",
    ]
    command = [sys.executable, str(ROOT / "launch" / "grpo.py"), str(ROOT / "recipes" / RECIPES[mode]), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=ROOT)
    if done.returncode != 0:
        raise BackendError.of(f"job {mode}", f"ended with exit code {done.returncode}", fix=f"The end of its output:\n{(done.stdout + done.stderr)[-3000:]}")
    return read_timing(mode, [json.loads(line)["data"] for line in (run_dir / METRICS_FILE).read_text(encoding="utf-8").splitlines()])


def read_timing(mode: str, steps: list[dict[str, Any]]) -> ModeTiming:
    """Means over the steps of a job; of staleness the largest of all as well."""
    return ModeTiming(
        mode=mode,
        step_s=statistics.mean(step["timing_s/step"] for step in steps),
        wait_s=statistics.mean(step["timing_s/gen"] for step in steps),
        staleness_mean=statistics.mean(step[names.STALENESS_MEAN] for step in steps),
        staleness_max=max(step[names.STALENESS_MAX] for step in steps),
        spanning_fraction=statistics.mean(step[names.SPANNING_FRACTION] for step in steps),
    )
