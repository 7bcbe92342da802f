"""MemChain's proof on synthetic users: a small policy by SFT, then by TMPO, both through the launch scripts, measured on users held out.

A seed is a world of users with their banks, and some variants of the training on it: the whole method, and the same under other recipe keys (an ablation).
What is finished is never run again; a variant leaves facts.json, one list of facts for each policy and decoding mode.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from napmem_rl.atomic import write_file
from napmem_rl.backend.child_process import run_to_the_end
from napmem_rl.backend.local_policy import build_token_counter
from napmem_rl.backend.memchain_measure import TEMPERATURES, load_questions, measure_extraction, measure_policy
from napmem_rl.backend.sft_packets import prepare_tiny, teach_rows
from napmem_rl.config.recipe import Recipe, load_recipe
from napmem_rl.config.sft_recipe import load_sft_recipe
from napmem_rl.data.prepare import prepare
from napmem_rl.data.sources import build_synthetic
from napmem_rl.errors import BackendError, ConfigError
from napmem_rl.evals.memchain_table import keep_facts
from napmem_rl.evals.metrics import Facts
from napmem_rl.retrieval.encoder import load_encoder

NUM_USERS = 240  # a fifth of them is held out, and a fifth is not used
EXTRACTED = {"fixed packet of the first candidate": 1, "fixed packet of the first three": 3, "fixed packet of all": 24}
SFT, TMPO, BASE = "sft", "tmpo", "base"
FACTS_FILE, VARIANT_FILE = "facts.json", "variant.json"
Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One way to train: keys of both recipes (`common`) and of each alone; `stages` in order: base is the policy before any packet."""

    name: str
    common: tuple[str, ...] = ()
    sft: tuple[str, ...] = ()
    tmpo: tuple[str, ...] = ()
    stages: tuple[str, ...] = (SFT, TMPO)


FULL = Variant(name="full")
CLEAN = Variant(name="clean", sft=("teacher.kind=gold",), stages=(SFT,))


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedRun:
    """Where a seed's world and variants are, and what makes them."""

    recipes: Path  # holds cpu_sft.yaml and cpu.yaml
    base: Path  # the policy before any packet, one for all seeds, as a pretrained model would be
    out: Path
    seed: int
    report: Report
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def data_dir(self) -> Path:
        """Users, banks and rows."""
        return self.out / "data"

    def sft_keys(self, variant: Variant) -> list[str]:
        """Arguments of launch/sft.py."""
        model = ["demonstrations.practice_steps=0", f"model.path={self.base}"]
        seeds = [f"teacher.seed={self.seed}", f"trainer.seed={self.seed}"]
        return [f"data.dir={self.data_dir}", f"output={self.out / variant.name / 'policy'}", *model, *seeds, *variant.common, *variant.sft]

    def tmpo_keys(self, variant: Variant) -> list[str]:
        """Arguments of launch/tmpo.py."""
        start, run_dir = self.out / variant.name / "policy", self.out / variant.name / TMPO
        places = [f"data.dir={self.data_dir}", f"actor_rollout_ref.model.path={start}", f"trainer.default_local_dir={run_dir}"]
        seeds = [f"data.seed={self.seed}", f"actor_rollout_ref.actor.data_loader_seed={self.seed}"]
        return [*places, *seeds, *variant.common, *variant.tmpo]


def build_seed(run: SeedRun) -> None:
    """Users with their banks, unless they are there."""
    if (run.data_dir / "data.json").is_file():
        return
    started = time.perf_counter()
    memory = load_sft_recipe(run.recipes / "cpu_sft.yaml", [f"data.dir={run.data_dir}"]).memory
    source = build_synthetic(NUM_USERS, seed=run.seed)
    prepare(source, run.data_dir, inputs=[], encoder=load_encoder(memory.encoder), report=lambda line: None)
    _note(run, "banks", started)


def build_base(run: SeedRun) -> None:
    """The policy that all seeds start from, unless it is there: its words are those of this seed's users, and it has practised reading."""
    if _is_model(run.base):
        return
    started = time.perf_counter()
    recipe = load_sft_recipe(run.recipes / "cpu_sft.yaml", [f"data.dir={run.data_dir}"])
    made = prepare_tiny(recipe, teach_rows(recipe, run.report), run.report)
    os.replace(made, run.base)
    _note(run, "reading practice", started)


def run_variant(run: SeedRun, variant: Variant) -> dict[str, list[Facts]]:
    """Train as a variant says and measure what came of it, or take what an earlier run left.

    Returns:
        "<stage>/<mode>" -> facts of all questions held out, for each stage of the variant and both decoding modes.

    Raises:
        ConfigError: an earlier run of the variant was made by other recipes or keys.
        BackendError: a training failed; the message names its log.
    """
    path = _claim(run, variant)
    if path.is_file():
        run.report(f"seed {run.seed}, {variant.name}: {path} is used as it is")
        kept = json.loads(path.read_text(encoding="utf-8"))
        run.seconds.update(kept["seconds"])
        return kept["facts"]
    policies = _train(run, variant)
    started = time.perf_counter()
    recipe = load_sft_recipe(run.recipes / "cpu_sft.yaml", run.sft_keys(variant))
    questions = load_questions(recipe, "test")
    facts = {
        f"{stage}/{mode}": keep_facts(measure_policy(policy, questions, recipe, mode=mode, seed=run.seed))
        for stage, policy in policies.items()
        for mode in TEMPERATURES
    }
    _note(run, f"{variant.name} eval", started)
    seconds = {name: value for name, value in run.seconds.items() if name.startswith(variant.name)}
    write_file(path, json.dumps({"seconds": seconds, "facts": facts}) + "\n")
    return facts


def measure_fixed(run: SeedRun) -> dict[str, list[Facts]]:
    """The packets of fixed rules on the same questions, by name of the row; tokens as the policy counts them."""
    recipe = load_sft_recipe(run.recipes / "cpu_sft.yaml", [f"data.dir={run.data_dir}"])
    questions, count = load_questions(recipe, "test"), build_token_counter(run.base)
    return {name: keep_facts(measure_extraction(questions, recipe, number=number, count_tokens=count)) for name, number in EXTRACTED.items()}


def _train(run: SeedRun, variant: Variant) -> dict[str, Path]:
    """Run the stages that are not finished. Returns the policy of each stage."""
    directory, policies = run.out / variant.name, {}
    policy = directory / "policy"
    if BASE in variant.stages:
        policies[BASE] = run.base
    if SFT in variant.stages and not _is_model(policy):
        started = time.perf_counter()
        _launch("sft.py", run.recipes / "cpu_sft.yaml", run.sft_keys(variant), directory / "sft.log", run.report)
        _note(run, f"{variant.name} sft", started)
    if SFT in variant.stages:
        policies[SFT] = policy
    if TMPO in variant.stages:
        recipe = load_recipe(run.recipes / "cpu.yaml", run.tmpo_keys(variant))
        trained = _find_trained(recipe)
        if not _is_model(trained):
            started = time.perf_counter()
            _launch("tmpo.py", run.recipes / "cpu.yaml", run.tmpo_keys(variant), directory / "tmpo.log", run.report)
            _note(run, f"{variant.name} tmpo", started)
        policies[TMPO] = trained
    return policies


def _find_trained(recipe: Recipe) -> Path:
    """Where the last step's model is, or will be."""
    trainer = recipe.verl.trainer
    return Path(trainer.default_local_dir) / f"global_step_{trainer.total_training_steps}" / "actor" / "huggingface"


def _is_model(path: Path) -> bool:
    return (path / "config.json").is_file() and any(path.glob("*.safetensors"))


def _claim(run: SeedRun, variant: Variant) -> Path:
    """Note what a variant is made of in its directory; raise ConfigError where that holds one of something else. Returns where its facts are, or will be."""
    directory = run.out / variant.name
    names = ["cpu_sft.yaml", *(["cpu.yaml"] if TMPO in variant.stages else [])]
    recipes = {name: (run.recipes / name).read_text(encoding="utf-8") for name in names}
    wanted = {"stages": list(variant.stages), "keys": [*variant.common, *variant.sft, *variant.tmpo], "recipes": recipes}
    made = directory / VARIANT_FILE
    if made.is_file() and json.loads(made.read_text(encoding="utf-8")) != wanted:
        raise ConfigError.of(f"run {directory}", "was made by other recipes or keys", fix="Remove it to run it again.")
    directory.mkdir(parents=True, exist_ok=True)
    write_file(made, json.dumps(wanted, indent=2) + "\n")
    return directory / FACTS_FILE


def _launch(script: str, recipe: Path, keys: Sequence[str], log_path: Path, report: Report) -> None:
    """A script of launch/ in a process of its own, its output in a file; it ends with this process. Raises BackendError where it fails."""
    launcher = Path(__file__).resolve().parents[2] / "launch" / script
    environment = {"OMP_NUM_THREADS": "1"} | dict(os.environ)  # layers of so small a policy are too short to share
    report(f"launch/{script} {recipe.name} …; all output: {log_path}")
    with log_path.open("wb") as log:
        exit_code = run_to_the_end([sys.executable, str(launcher), str(recipe), *keys], environment=environment, output=log)
    if exit_code != 0:
        tail = "\n".join(log_path.read_text(errors="replace").splitlines()[-20:])
        raise BackendError.of(f"launch/{script}", f"ended with exit code {exit_code}", fix=f"The end of {log_path}:\n{tail}")


def _note(run: SeedRun, name: str, started: float) -> None:
    run.seconds[name] = round(time.perf_counter() - started, 1)
    run.report(f"seed {run.seed}: {name} done in {run.seconds[name]:.0f} s")
