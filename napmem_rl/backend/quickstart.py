"""The quickstart: build a small world, cold-start a policy, train it with GRPO through verl, and show before and after on users nobody trained on.

Four phases, each timed: banks, sft, grpo, eval. Everything lands in the run directory; `summary.json` and `table.txt` are written
as a whole when all is done, and then the page, report.html.
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

from napmem_rl.atomic import write_file
from napmem_rl.backend.child_process import end_process
from napmem_rl.backend.local_policy import build_token_counter, evaluate_checkpoint
from napmem_rl.backend.metric_names import FACT
from napmem_rl.backend.quickstart_sft import ColdStart, run_cold_starts
from napmem_rl.backend.quickstart_world import Split, World, build_world, generate_split
from napmem_rl.backend.run_end import report_run
from napmem_rl.backend.vllm_cpu_name import check_vllm_cpu
from napmem_rl.config.recipe import Recipe, load_recipe
from napmem_rl.data.world_demos import CLEAN, SLOPPY
from napmem_rl.errors import BackendError, ConfigError
from napmem_rl.evals.metrics import Facts, Metric
from napmem_rl.evals.report import MODES, BeforeAfter, Reference, build_summary, render_table, render_transcript
from napmem_rl.evals.scripts import SCRIPTS, choose_best_script, run_script
from napmem_rl.report.run_data import METRICS_FILE, TRAINING_DIR
from napmem_rl.retrieval.encoder import Encoder, load_encoder
from napmem_rl.rewards.judge import LexicalJudge
from napmem_rl.schema import ScoredTrajectory

TRAIN = Split(name="train", num_users=128, num_questions=12)
DEV = Split(name="dev", num_users=8, num_questions=12)
TEST = Split(name="test", num_users=48, num_questions=12)
SFT_STEPS, CLEAN_STEPS, NUM_DEMONSTRATIONS = 800, 120, 3000
TEMPERATURES = {"sampled": 1.0, "greedy": 0.0}
BATCH = 16  # prompts of a step, as in recipes/quickstart.yaml
NUM_RANKS = 2  # processes of banks and cold start, one thread each; GRPO has as many learners
CONTROL = "control"
POLL_S = 5.0
_SHOWN = (
    (FACT.format(name=Metric.REWARD), "reward"),
    (FACT.format(name=Metric.CORRECTNESS), "correct"),
    (FACT.format(name=Metric.CALLS_PER_QUESTION), "calls a question"),
    ("actor/entropy", "entropy"),
    ("timing_s/step", "seconds"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Quickstart:
    """One quickstart: where its recipe and its run directory are, the seed of everything, the length of training (None: the recipe's), the rollout server."""

    recipe_path: Path
    run_dir: Path
    seed: int
    steps: int | None = None
    rollout: str = "transformers"
    install_s: float | None = None

    @property
    def data_dir(self) -> Path:
        """Banks, rows and the cold-started policy."""
        return self.run_dir / "data"

    @property
    def grpo_dir(self) -> Path:
        """What the trainer writes."""
        return self.run_dir / TRAINING_DIR

    def overrides(self) -> list[str]:
        """Arguments of launch/grpo.py for this run."""
        steps = []
        if self.steps:
            epochs = -(-self.steps * BATCH // (TRAIN.num_users * TRAIN.num_questions))
            steps = [f"trainer.total_training_steps={self.steps}", f"trainer.save_freq={self.steps}", f"trainer.total_epochs={epochs}"]
        seeds = [f"data.seed={self.seed}", f"actor_rollout_ref.actor.data_loader_seed={self.seed}"]
        own = ["report.html=false"]  # the quickstart's page shows the training too
        places = [f"data.dir={self.data_dir}", f"trainer.default_local_dir={self.grpo_dir}", f"actor_rollout_ref.rollout.name={self.rollout}"]
        return [*places, *own, *seeds, *steps]


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
    """Run all phases and return what summary.json holds.

    Raises:
        ConfigError: the run directory holds another run, or the rollout server is not installed.
        BackendError: training failed.
    """
    if job.grpo_dir.exists():
        raise ConfigError.of(f"run directory {job.run_dir}", "holds another run", fix="Remove it, or give another with --run-dir.")
    if job.rollout == "vllm":
        check_vllm_cpu({})
    load = os.getloadavg()[0]
    job.data_dir.mkdir(parents=True, exist_ok=True)
    recipe = load_recipe(job.recipe_path, job.overrides())
    steps = int(recipe.verl.trainer.total_training_steps)
    clock = Clock()
    splits = (TRAIN, DEV, TEST)
    with clock.phase("banks", f"{sum(split.num_users for split in splits)} synthetic users, four levels of memory each"):
        build_world(splits, job.seed, job.data_dir, recipe.memory, num_workers=NUM_RANKS, on_progress=_print_banks())
    with clock.phase("sft", "cold start on sloppy demonstrations (where GRPO begins), then on clean ones (for reference)"):
        run_cold_starts(_cold_starts(job, recipe), on_wait=_follow_sft(job))
    with clock.phase("grpo", f"{steps} steps through verl: rollout server, agent loops, reward workers, two FSDP2 learners"):
        trained = _run_grpo(job, steps)
    with clock.phase("eval", f"{TEST.num_users} held-out users, sampled and greedy"):
        scored, facts, references = _evaluate(job, recipe, trained)
    pairs = [BeforeAfter(mode=mode, before=facts["before", mode], after=facts["after", mode]) for mode in MODES]
    summary = {"seed": job.seed, "steps": steps, "rollout": job.rollout, "judge": LexicalJudge.name, "load_at_start": round(load, 2)}
    summary |= build_summary(pairs, references, control=CONTROL)
    summary["seconds"] = {"install": job.install_s, **clock.seconds, "job": round(sum(clock.seconds.values()), 1)}
    text = "\n\n".join([render_table(pairs, references, judge=LexicalJudge.name), _render_transcripts(scored)])
    write_file(job.run_dir / "table.txt", (text + "\n").encode())
    write_file(job.run_dir / "summary.json", (json.dumps(summary, indent=2) + "\n").encode())
    print(f"\n{text}\n\nwritten: {job.run_dir / 'summary.json'}, table.txt, grpo/ (checkpoints, metrics, trajectories)", flush=True)
    report_run(job.run_dir, max_episodes=recipe.report.max_trajectories)
    return summary


def _cold_starts(job: Quickstart, recipe: Recipe) -> list[ColdStart]:
    shared = {"split": TRAIN, "seed": job.seed, "data_dir": job.data_dir, "memory": recipe.memory, "agent": recipe.agent, "num_ranks": NUM_RANKS}
    start = job.data_dir / "model"
    sloppy = ColdStart(name="sloppy", habits=SLOPPY, steps=SFT_STEPS, num_demonstrations=NUM_DEMONSTRATIONS, out_dir=start, **shared)
    out = job.data_dir / "model_clean"
    clean = ColdStart(name="clean", habits=CLEAN, steps=CLEAN_STEPS, num_demonstrations=NUM_DEMONSTRATIONS // 2, out_dir=out, start_from=start, **shared)
    return [sloppy, clean]


def _run_grpo(job: Quickstart, steps: int) -> Path:
    """Train in a process of its own and show each step; returns the HuggingFace directory of the last checkpoint."""
    launcher = Path(__file__).resolve().parents[2] / "launch" / "grpo.py"
    log_path = job.run_dir / "grpo.log"
    print(f"   all output: {log_path}; the first step comes after about a minute of start-up", flush=True)
    follow = _follow_grpo(job, steps)
    with log_path.open("wb") as log:
        process = subprocess.Popen([sys.executable, str(launcher), str(job.recipe_path), *job.overrides()], stdout=log, stderr=subprocess.STDOUT)
        try:
            while process.poll() is None:
                time.sleep(POLL_S)
                follow()
        finally:
            if process.poll() is None:  # interrupted: the job goes with us
                end_process(process)
    if process.returncode != 0:
        tail = "\n".join(log_path.read_text(errors="replace").splitlines()[-20:])
        raise BackendError.of("GRPO", f"ended with exit code {process.returncode}", fix=f"The end of {log_path}:\n{tail}")
    trained = job.grpo_dir / f"global_step_{steps}" / "actor" / "huggingface"
    if not (trained / "config.json").is_file():
        raise BackendError.of("GRPO", "left no model of its last step", expected=str(trained))
    return trained


def _follow_grpo(job: Quickstart, steps: int) -> Callable[[], None]:
    """Prints each new line of metrics.jsonl in short."""
    shown = 0

    def show() -> None:
        nonlocal shown
        path = job.grpo_dir / METRICS_FILE
        rows = [json.loads(line) for line in path.read_text().splitlines()[shown:]] if path.is_file() else []
        for row in rows:
            data = row["data"]
            values = [f"{label} {data[name]:.2f}" for name, label in _SHOWN if name in data]
            print(f"   step {row['step']}/{steps}: {', '.join(values)}", flush=True)
        shown += len(rows)

    return show


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
    references += [Reference(name="SFT continued on clean demonstrations", mode=mode, facts=facts["clean", mode]) for mode in MODES]
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

    pairs = zip(scored["before", "greedy"], scored["after", "greedy"], strict=True)
    compared = [(before, after) for before, after in pairs if before.trajectory.task.needs_memory and None not in (before.reward, after.reward)]
    before, after = max(compared, key=lambda pair: pair[1].reward - pair[0].reward)
    return f"-- a question on which training helped most, before\n{render_transcript(before)}\n-- and after\n{render_transcript(after)}"


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
