"""The quickstart: build a small world, cold-start a policy, train it with GRPO through verl, and show before and after on users nobody trained on.

Four phases, each timed: banks, sft, grpo, eval. Everything lands in the run directory; `summary.json` and `table.txt` are written last, as a whole.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from napmem_rl.backend.local_policy import build_token_counter, evaluate_checkpoint
from napmem_rl.backend.quickstart_sft import ColdStart, run_cold_starts
from napmem_rl.backend.quickstart_world import Split, World, build_world, generate_split
from napmem_rl.config.recipe import Recipe, load_recipe
from napmem_rl.data.world_demos import CLEAN, SLOPPY
from napmem_rl.errors import BackendError
from napmem_rl.evals.metrics import Facts
from napmem_rl.evals.report import MODES, BeforeAfter, Reference, build_summary, render_table, render_transcript
from napmem_rl.evals.scripts import SCRIPTS, choose_best_script, run_script
from napmem_rl.memory.storage import write_file
from napmem_rl.retrieval.encoder import Encoder, load_encoder
from napmem_rl.rewards.judge import LexicalJudge
from napmem_rl.schema import ScoredTrajectory

TRAIN = Split(name="train", num_users=64, num_questions=24)
DEV = Split(name="dev", num_users=8, num_questions=12)
TEST = Split(name="test", num_users=48, num_questions=12)
SFT_STEPS, NUM_DEMONSTRATIONS = 700, 4000
TEMPERATURES = {"sampled": 1.0, "greedy": 0.0}
CONTROL = "control"


@dataclass(frozen=True, kw_only=True, slots=True)
class Quickstart:
    """One quickstart: where its recipe and its run directory are, the seed of everything, and the length of training (None: the recipe's)."""

    recipe_path: Path
    run_dir: Path
    seed: int
    steps: int | None = None
    install_s: float | None = None

    @property
    def data_dir(self) -> Path:
        """Banks, rows and the cold-started policy."""
        return self.run_dir / "data"

    @property
    def grpo_dir(self) -> Path:
        """What the trainer writes."""
        return self.run_dir / "grpo"

    def overrides(self) -> list[str]:
        """Arguments of launch/grpo.py for this run."""
        steps = [f"trainer.total_training_steps={self.steps}", f"trainer.save_freq={self.steps}"] if self.steps else []
        seeds = [f"data.seed={self.seed}", f"actor_rollout_ref.actor.data_loader_seed={self.seed}"]
        return [f"data.dir={self.data_dir}", f"trainer.default_local_dir={self.grpo_dir}", *seeds, *steps]


class Clock:
    """Seconds by phase, each announced when it starts and when it ends."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str, what: str) -> Iterator[None]:
        """Time a phase."""
        print(f"== {name}: {what}", flush=True)
        started = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - started, 1)
        print(f"== {name} done in {self.seconds[name]:.0f} s", flush=True)


def run_quickstart(job: Quickstart) -> dict[str, Any]:
    """Run all phases and return what summary.json holds."""
    load = os.getloadavg()[0]
    job.data_dir.mkdir(parents=True, exist_ok=True)
    recipe = load_recipe(job.recipe_path, job.overrides())
    steps = int(recipe.verl.trainer.total_training_steps)
    clock = Clock()
    splits = (TRAIN, DEV, TEST)
    with clock.phase("banks", f"{sum(split.num_users for split in splits)} synthetic users, four levels of memory each"):
        build_world(splits, job.seed, job.data_dir, recipe.memory, num_workers=os.cpu_count() or 1, on_progress=_print_banks())
    with clock.phase("sft", "two cold starts side by side: sloppy demonstrations (where GRPO begins) and clean ones (for reference)"):
        run_cold_starts(_cold_starts(job, recipe), on_wait=_follow_sft(job))
    with clock.phase("grpo", f"{steps} steps through verl: rollout server, agent loops, reward workers, two FSDP2 learners"):
        trained = _run_grpo(job, steps)
    with clock.phase("eval", f"{TEST.num_users} held-out users, sampled and greedy"):
        scored, facts, references = _evaluate(job, recipe, trained)
    pairs = [BeforeAfter(mode=mode, before=facts["before", mode], after=facts["after", mode]) for mode in MODES]
    summary = {"seed": job.seed, "steps": steps, "judge": LexicalJudge.name, "load_at_start": round(load, 2)}
    summary |= build_summary(pairs, references, control=CONTROL)
    summary["seconds"] = {"install": job.install_s, **clock.seconds, "job": round(sum(clock.seconds.values()), 1)}
    text = "\n\n".join([render_table(pairs, references, judge=LexicalJudge.name), _render_transcripts(scored)])
    write_file(job.run_dir / "table.txt", (text + "\n").encode())
    write_file(job.run_dir / "summary.json", (json.dumps(summary, indent=2) + "\n").encode())
    print(f"\n{text}\n\nwritten: {job.run_dir / 'summary.json'}, table.txt, grpo/ (checkpoints, metrics, trajectories)", flush=True)
    return summary


def _cold_starts(job: Quickstart, recipe: Recipe) -> list[ColdStart]:
    def build(name: str, habits: Any, out: Path) -> ColdStart:
        return ColdStart(
            name=name, habits=habits, split=TRAIN, seed=job.seed, steps=SFT_STEPS, num_demonstrations=NUM_DEMONSTRATIONS,
            data_dir=job.data_dir, out_dir=out, memory=recipe.memory, agent=recipe.agent,
        )  # fmt: skip

    return [build("sloppy", SLOPPY, job.data_dir / "model"), build("clean", CLEAN, job.data_dir / "model_clean")]


def _run_grpo(job: Quickstart, steps: int) -> Path:
    """Train in a process of its own, its output passed on; returns the HuggingFace directory of the last checkpoint."""
    launcher = Path(__file__).resolve().parents[2] / "launch" / "grpo.py"
    done = subprocess.run([sys.executable, str(launcher), str(job.recipe_path), *job.overrides()], check=False)
    if done.returncode != 0:
        raise BackendError.of("GRPO", f"ended with exit code {done.returncode}", fix=f"Its output is above; its run directory is {job.grpo_dir}.")
    trained = job.grpo_dir / f"global_step_{steps}" / "actor" / "huggingface"
    if not (trained / "config.json").is_file():
        raise BackendError.of("GRPO", "left no model of its last step", expected=str(trained))
    return trained


def _evaluate(
    job: Quickstart, recipe: Recipe, trained: Path
) -> tuple[dict[tuple[str, str], list[ScoredTrajectory]], dict[tuple[str, str], list[Facts]], list[Reference]]:
    """Trajectories and facts by (policy, mode), and the reference rows."""
    encoder = load_encoder(recipe.memory.encoder)
    world = World(job.data_dir, generate_split(TEST, job.seed), recipe.memory, recipe.agent, encoder)
    policies = {"before": job.data_dir / "model", "after": trained, "clean": job.data_dir / "model_clean"}
    scored, facts = {}, {}
    for name, path in policies.items():
        for mode, temperature in TEMPERATURES.items():
            scored[name, mode], facts[name, mode] = evaluate_checkpoint(path, world, recipe.agent, temperature=temperature, seed=job.seed)
            print(f"   {name} {mode}: {len(facts[name, mode])} questions", flush=True)
    references = [_run_best_script(job, recipe, world, encoder)]
    references += [Reference(name="SFT on clean demonstrations", mode=mode, facts=facts["clean", mode]) for mode in MODES]
    return scored, facts, references


def _run_best_script(job: Quickstart, recipe: Recipe, world: World, encoder: Encoder | None) -> Reference:
    """The fixed script that does best on the dev users, on the held-out ones."""
    dev = World(job.data_dir, generate_split(DEV, job.seed), recipe.memory, recipe.agent, encoder)
    count_tokens = build_token_counter(job.data_dir / "model")
    best = choose_best_script(dev.items, build_toolbox=dev.toolbox_builder(count_tokens), agent=recipe.agent)
    facts = run_script(SCRIPTS[best], world.items, build_toolbox=world.toolbox_builder(count_tokens), agent=recipe.agent)
    return Reference(name=f"best fixed script ({best}), perfect reader", mode="fixed", facts=facts)


def _render_transcripts(scored: dict[tuple[str, str], list[ScoredTrajectory]]) -> str:
    """The same question before and after, greedy: the first of those that need memory on which training helped most."""

    def gain(pair: tuple[ScoredTrajectory, ScoredTrajectory]) -> float:
        before, after = pair
        return (after.reward or 0.0) - (before.reward or 0.0)

    pairs = zip(scored["before", "greedy"], scored["after", "greedy"], strict=True)
    before, after = max((pair for pair in pairs if pair[0].trajectory.task.needs_memory), key=gain)
    return f"-- one question before\n{render_transcript(before)}\n-- and after\n{render_transcript(after)}"


def _print_banks() -> Callable[[int, int], None]:
    def show(built: int, total: int) -> None:
        if built % 40 == 0 or built == total:
            print(f"   {built}/{total} banks", flush=True)

    return show


def _follow_sft(job: Quickstart) -> Callable[[], None]:
    """Prints the last line of both progress files."""
    files = {"sloppy": job.data_dir / "model.jsonl", "clean": job.data_dir / "model_clean.jsonl"}
    shown: dict[str, str] = {}

    def show() -> None:
        for name, path in files.items():
            last = path.read_text().splitlines()[-1:] if path.exists() else []
            if last and shown.get(name) != last[0] and (row := json.loads(last[0])):
                shown[name] = last[0]
                print(f"   {name}: step {row['step']}/{row['steps']}, loss {row['loss']:.3f}, {row['seconds']:.0f} s", flush=True)

    return show
