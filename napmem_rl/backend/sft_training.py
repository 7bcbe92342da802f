"""The training of `launch/sft.py` itself: demonstrations in, a plain Hugging Face directory out, by verl's SFT trainer or by transformers' with DeepSpeed.

Either runs under torchrun in processes of its own. With adapters (`lora.rank` above 0) what is trained is merged into the weights of the model.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from napmem_rl.backend.checkpoints import repair_export
from napmem_rl.backend.child_process import run_to_the_end
from napmem_rl.backend.export import merge_shards
from napmem_rl.backend.lora import merge_adapter, prepare_adapter
from napmem_rl.config.sft_engine import DEEPSPEED, plan_batches
from napmem_rl.config.sft_recipe import SftRecipe
from napmem_rl.errors import BackendError

DEMONSTRATIONS = "demonstrations.parquet"
ADAPTER = "adapter"
DEEPSPEED_OUTPUT = "by_deepspeed"


def train(recipe: SftRecipe, model: Path, work: Path, report: Callable[[str], None]) -> tuple[Path, float]:
    """Train on `work`/demonstrations.parquet.

    Args:
        recipe: of the run.
        model: the base, a Hugging Face directory.
        work: a directory for everything that is made on the way.
        report: takes lines for people.

    Returns:
        the trained model, a directory below `work`, and seconds.

    Raises:
        ConfigError: peft or DeepSpeed is not installed, or layers that adapters are for are not there.
        BackendError: the trainer failed; what it said stands above.
    """
    started = time.perf_counter()
    by_deepspeed = recipe.sft.engine == DEEPSPEED
    report(f"training on {recipe.verl.trainer.n_gpus_per_node} rank(s) through {'DeepSpeed' if by_deepspeed else 'verl'}")
    found = _train_by_deepspeed(recipe, model, work) if by_deepspeed else _train_by_verl(recipe, model, work)
    if recipe.lora.rank:
        found = merge_adapter(found, lora=recipe.lora, model=model, out=work / "merged")
    return found, time.perf_counter() - started


def _train_by_verl(recipe: SftRecipe, model: Path, work: Path) -> Path:
    """Returns the trained model, or with adapters what verl's merger makes of its shards: the adapter beside the base."""
    config = recipe.verl.copy()
    config.model.path = str(model)
    if recipe.lora.rank:
        prepare_adapter(model, recipe.lora, work / ADAPTER)
        config.model.lora_adapter_path = str(work / ADAPTER)
        config.model.lora_rank = recipe.lora.rank  # at 0 verl passes the adapter by, without a word, and trains all weights
        config.model.lora_alpha = recipe.lora.alpha
        config.checkpoint.save_contents = ["model"]
    config.data.train_files = str(work / DEMONSTRATIONS)
    config.trainer.default_local_dir = str(work / "checkpoints")
    _run_ranks(recipe, config, work / "verl.yaml", module="napmem_rl.backend.sft_worker", name="verl's SFT trainer")
    trained = _find_trained(work)
    if not recipe.lora.rank:
        return trained / "huggingface"
    repair_export(trained / "huggingface" / "config.json")  # verl's merger builds the model by it, in a process that does not know our attention
    merge_shards(trained, work / "by_verl")
    return work / "by_verl" / "lora_adapter"


def _train_by_deepspeed(recipe: SftRecipe, model: Path, work: Path) -> Path:
    """Returns the trained model, or with adapters the adapter."""
    import pyarrow.parquet as pq

    plan = plan_batches(recipe, num_rows=pq.read_metadata(work / DEMONSTRATIONS).num_rows)
    files = {"model": str(model), "demonstrations": str(work / DEMONSTRATIONS), "output": str(work / DEEPSPEED_OUTPUT), "deepspeed": str(recipe.deepspeed_file)}
    config = {**files, "platform": recipe.platform, "plan": plan.as_dict(), "recipe": OmegaConf.to_container(recipe.verl), "lora": recipe.lora_dict()}
    _run_ranks(recipe, OmegaConf.create(config), work / "deepspeed.yaml", module="napmem_rl.backend.deepspeed_worker", name="DeepSpeed")
    return work / DEEPSPEED_OUTPUT


def _run_ranks(recipe: SftRecipe, config: DictConfig, file: Path, *, module: str, name: str) -> None:
    """One process a GPU under torchrun, each with the configuration in `file`."""
    OmegaConf.save(config, file)
    ranks = recipe.verl.trainer.n_gpus_per_node
    root = str(Path(__file__).parents[2])  # the workers import this very copy of the package
    search_path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, **recipe.env, "PYTHONPATH": search_path}
    if recipe.platform == "cpu":
        environment.setdefault("OMP_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // ranks)))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    exit_code = run_to_the_end([*launcher, "-m", module, str(file)], environment=environment)
    if exit_code != 0:
        raise BackendError.of(name, "failed", got=f"exit code {exit_code}", fix="Its own words stand above.")


def _find_trained(work: Path) -> Path:
    found = sorted((work / "checkpoints").glob("global_step_*"), key=lambda path: int(path.name.rpartition("_")[2]))
    if not found or not (any(found[-1].glob("huggingface/*.safetensors")) or any(found[-1].glob("model_world_size_*.pt"))):
        raise BackendError.of("verl's SFT trainer", "left no model", expected="model or hf_model among checkpoint.save_contents")
    return found[-1]
