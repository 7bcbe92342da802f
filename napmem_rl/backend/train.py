"""A GRPO job from recipe to checkpoints: check everything that can be checked, find where to go on, start Ray where no cluster is there, hand over to
verl's trainer, and watch it."""

from __future__ import annotations

import functools
import json
import logging
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import ray
from omegaconf import DictConfig, OmegaConf, open_dict

from napmem_rl.atomic import write_file
from napmem_rl.backend.cluster_check import check_cluster
from napmem_rl.backend.death_watch import find_lost_nodes, find_origin, list_nodes
from napmem_rl.backend.job_control import start_control
from napmem_rl.backend.job_names import JOB_VARIABLE
from napmem_rl.backend.preflight import JobInputs, check_inputs, count_steps
from napmem_rl.backend.run_checkpoints import check_resume_path, prepare_resume, refuse_old_checkpoints
from napmem_rl.backend.run_end import close_run
from napmem_rl.backend.run_files import hold_run_dir, keep_previous, set_aside_later_steps
from napmem_rl.backend.served_model import enable_served
from napmem_rl.backend.settings import SUBTREE, JobSettings
from napmem_rl.backend.stacks import DIRECTORY_VARIABLE, name_directory
from napmem_rl.backend.wandb_tables import plan_wandb
from napmem_rl.backend.watchdog import StopRequest, Watchdog, keep_sigterm, stop_on_signals
from napmem_rl.config.recipe import Recipe
from napmem_rl.data.overlap import keep_training_fingerprints
from napmem_rl.errors import BackendError, NapMemError
from napmem_rl.report.run_data import METRICS_FILE

logger = logging.getLogger(__name__)

CHECKPOINT_CALLBACK = "napmem_rl.backend.checkpoints.SealingCallback"


def run_recipe(recipe: Recipe) -> Path:
    """The whole of a recipe: its cold start where the policy is missing, then `run_grpo`. Returns and raises as those two do."""
    if recipe.needs_cold_start():
        from napmem_rl.backend.sft import train_cold_start

        train_cold_start(recipe, report=functools.partial(print, flush=True))
    return run_grpo(recipe)


def run_grpo(recipe: Recipe) -> Path:
    """Train as the recipe says and wait for the end.

    Returns:
        the run directory: resolved.yaml, provenance.json, metrics.jsonl (where `trainer.logger` holds "file"), trajectories/, report.html, global_step_*/.

    Raises:
        ConfigError, DataError: the recipe, its data, banks, model or judge cannot be used; nothing was started.
        JobStopped: a signal asked for it; the last step is saved.
        BackendError: the job failed; the message holds the cause.
    """
    inputs = check_inputs(recipe)
    run_dir = Path(recipe.verl.trainer.default_local_dir)
    wandb = plan_wandb(recipe, run_dir)
    for notice in wandb.notices:
        print(f"notice: {notice}", flush=True)
    config = build_config(recipe, inputs)
    with hold_run_dir(run_dir):
        step = _go_on_from_last(recipe, config, inputs)
        recipe.save_resolved(run_dir, inputs.bank_versions)
        keep_training_fingerprints(run_dir, inputs.training_fingerprints, base=recipe.model_path)
        settings = JobSettings.from_config(config)
        write_file(settings.bank_versions_file, json.dumps(dict(inputs.bank_versions)) + "\n")
        keep_previous(run_dir / METRICS_FILE)
        set_aside_later_steps(settings.trajectories_dir, step)
        try:
            own = {DIRECTORY_VARIABLE: name_directory(settings.job_name), JOB_VARIABLE: settings.job_name}
            with ray_cluster(config, build_env(recipe, run_dir) | dict(wandb.env) | own) as is_ours:
                _run_on_cluster(config, inputs, wait_s=recipe.job.start_timeout_s, may_force=is_ours)
        finally:
            shutil.rmtree(name_directory(settings.job_name), ignore_errors=True)
            close_run(run_dir, recipe.report, trajectories_dir=settings.trajectories_dir, wandb=wandb)
    return run_dir


def _go_on_from_last(recipe: Recipe, config: DictConfig, inputs: JobInputs) -> int:
    """With `trainer.resume_mode: auto`, let verl load the last whole checkpoint of the run directory, and say so. Returns its step; 0 for a new start.

    Raises:
        BankError, CheckpointError, ConfigError: see `prepare_resume`, `check_resume_path` and `refuse_old_checkpoints`.
    """
    trainer = config.trainer
    run_dir = Path(trainer.default_local_dir).absolute()
    if trainer.resume_mode == "disable":
        refuse_old_checkpoints(run_dir)
        return 0
    job = {"bank_versions": inputs.bank_versions, "world_size": trainer.nnodes * trainer.n_gpus_per_node}
    if trainer.resume_mode == "resume_path":
        given = check_resume_path(run_dir, Path(str(trainer.resume_from_path)).expanduser().absolute(), **job)
        trainer.resume_from_path = str(given.path)
        return given.step
    point = prepare_resume(run_dir, **job)
    for notice in point.notices:
        print(f"notice: {notice}", flush=True)
    if point.checkpoint is None:
        trainer.resume_mode = "disable"
        return 0
    trainer.resume_mode, trainer.resume_from_path = "resume_path", str(point.checkpoint.path)
    changes = recipe.find_changes(point.checkpoint.path / "resolved.yaml")
    if changes:
        print(f"notice: the run that goes on was made with other settings: {'; '.join(changes)}", flush=True)
    last_step = count_steps(config, num_rows=inputs.num_train_rows)
    if point.checkpoint.step >= last_step:
        print(f"notice: step {last_step} is the last: nothing is left to train; a new run wants another trainer.default_local_dir", flush=True)
    return point.checkpoint.step


def build_config(recipe: Recipe, inputs: JobInputs) -> DictConfig:
    """verl's config for this job: the recipe's, our sub-tree, and what follows from both."""
    config = recipe.verl.copy()
    is_sync = config.trainer.v1.trainer_mode == "sync"
    seed = OmegaConf.select(config, "data.seed")
    settings = JobSettings(
        memory=recipe.memory,
        agent=recipe.agent,
        reward=recipe.reward,
        judge=recipe.judge,
        report=recipe.report,
        job=recipe.job,
        banks_dir=str(recipe.memory.banks),
        run_dir=str(Path(config.trainer.default_local_dir).absolute()),
        seed=int(config.actor_rollout_ref.rollout.seed if seed is None else seed),
        is_sync=is_sync,
        job_name=uuid4().hex[:12],
        template_kwargs=OmegaConf.to_container(config.data.apply_chat_template_kwargs or OmegaConf.create()),
        system=recipe.system,
        memchain=recipe.memchain,
        answerer=recipe.answerer,
    )
    with open_dict(config):
        config[SUBTREE] = settings.as_config()
        config.reward.num_workers = 0  # verl's own reward loop: trajectories arrive with their reward
        enable_served(config, recipe)
        sampler = config.trainer.v1.sampler
        sampler.sampler_kwargs = {**(sampler.sampler_kwargs or {}), "is_sync": is_sync}
        if config.algorithm.adv_estimator != "grpo":
            sampler.sampler_kwargs.min_group_rows = 1
        if not config.trainer.get("checkpoint_callback_class"):
            config.trainer.checkpoint_callback_class = CHECKPOINT_CALLBACK
        storage = config.transfer_queue.backend.SimpleStorage
        storage.total_storage_size = max(storage.total_storage_size, _count_queue_rows(config, inputs))
    return config


def build_env(recipe: Recipe, run_dir: Path) -> dict[str, str]:
    """Environment of every process of the job: the recipe's, and where loggers write. What this process happens to have set does not count."""
    model = str(OmegaConf.select(recipe.verl, "actor_rollout_ref.model.path"))
    env = {
        "VERL_FILE_LOGGER_PATH": str(run_dir / METRICS_FILE),
        "TENSORBOARD_DIR": str(run_dir / "tensorboard"),
        "TRANSFER_QUEUE_ENABLE": "1",
        "PYTHONWARNINGS": "ignore:::verl.workers.engine",  # every process would warn of each engine that is not installed
    }
    if model[:1] in "/.~":
        env["HF_HUB_OFFLINE"] = "1"  # everything is on disk: no process may ask a hub
    for endpoint in (recipe.judge, *((recipe.answerer,) if recipe.system == "memchain" else ())):
        key = endpoint.api_key_env
        if endpoint.kind == "openai" and key in os.environ:
            env[key] = os.environ[key]  # reward workers on other nodes need it
    return env | _env_of_verl(recipe) | recipe.env


def _env_of_verl(recipe: Recipe) -> dict[str, str]:
    """What verl sets for its workers. On the CPU platform nothing of it applies, and importing verl here would cost the start some 8 s."""
    if recipe.platform == "cpu":
        return {}
    with environment(recipe.env):  # verl reads its platform at import
        from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

        return dict(get_ppo_ray_runtime_env(recipe.verl)["env_vars"])


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process within the block; afterwards they are what they were."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def ray_cluster(config: DictConfig, env: Mapping[str, str]) -> Iterator[bool]:
    """Join a cluster that is named (RAY_ADDRESS, `ray_kwargs.ray_init.address`, a Ray job), else start Ray on this machine and stop it afterwards.

    Options that say how large Ray is to be (`num_cpus`, `num_gpus`: every CPU recipe) start one of our own although another may run here. Without them Ray
    joins what `ray start` has started on this machine. A Ray that this process is already connected to is used as it is and left running:
    the block then gets False.

    Raises:
        BackendError: Ray did not start.
    """
    if ray.is_initialized():
        yield False
        return
    options = OmegaConf.to_container(config.ray_kwargs.ray_init, resolve=True)
    is_cluster = bool(options.get("address") or os.environ.get("RAY_ADDRESS"))
    if is_cluster:  # a running cluster has its own numbers of CPUs and GPUs, and refuses others
        options = {name: value for name, value in options.items() if name not in ("num_cpus", "num_gpus", "include_dashboard")}
    elif options.get("num_cpus") is not None or options.get("num_gpus") is not None:
        options["address"] = "local"
    runtime_env = {name: value for name, value in (options.pop("runtime_env", None) or {}).items() if value is not None}
    runtime_env["env_vars"] = dict(env)
    with environment(env):
        try:
            with keep_sigterm():
                ray.init(**options, runtime_env=runtime_env, logging_level=logging.WARNING)
        except (RuntimeError, ConnectionError, ValueError) as error:
            raise BackendError.of("Ray", f"did not start ({type(error).__name__}: {error})") from error
        try:
            yield True
        finally:
            ray.shutdown()


def _run_on_cluster(config: DictConfig, inputs: JobInputs, *, wait_s: float, may_force: bool) -> None:
    with stop_on_signals() as request:
        check_cluster(config, num_steps=count_steps(config, num_rows=inputs.num_train_rows), wait_s=wait_s, poll=request.raise_if_stopped)
        request.raise_if_stopped()
        _run_trainer(config, request, may_force=may_force)


def _run_trainer(config: DictConfig, request: StopRequest, *, may_force: bool) -> None:
    """Run verl's trainer in its own actor and watch it; its failure comes back as one error."""
    from napmem_rl.backend.job_runner import JobRunner

    settings = JobSettings.from_config(config)
    control = start_control(settings.job_name)
    watchdog = Watchdog(control, job=settings.job, stacks_dir=name_directory(settings.job_name), run_dir=Path(settings.run_dir), may_force=may_force)
    runner = ray.remote(num_cpus=1)(JobRunner).remote()
    nodes = list_nodes()
    try:
        watchdog.wait(runner.run.remote(config), request)
    except ray.exceptions.RayError as error:
        raise find_cause(error, nodes) from error


def find_cause(error: BaseException, nodes: Mapping[str, str]) -> NapMemError:
    """Our own error out of Ray's wrapping, or a BackendError that names what failed.

    Args:
        error: what the trainer's actor raised, or Ray about it.
        nodes: the nodes that were alive when the job started; one that is gone is named where an actor cannot be reached.
    """
    cause = find_origin(error)
    if isinstance(cause, NapMemError):
        return type(cause)(cause.message)
    if isinstance(cause, ray.exceptions.RayError) and (lost := find_lost_nodes(nodes)):
        fix = "The same command goes on from the last checkpoint."
        return BackendError.of("training job", f"lost node {', '.join(lost)} ({type(cause).__name__})", fix=fix)
    lines = str(cause).strip().splitlines() or [""]
    return BackendError.of("training job", f"failed ({type(cause).__name__}: {lines[0]})", fix="The worker's trace is in the output above.")


def _count_queue_rows(config: DictConfig, inputs: JobInputs) -> int:
    """Rows that the TransferQueue may hold at once: training batches in flight with padding and refills, and a whole validation set, with their prompts."""
    rollout = config.actor_rollout_ref.rollout
    train = config.data.train_batch_size * (2 * rollout.n + 1)
    val = inputs.num_val_rows * (rollout.val_kwargs.n + 1)
    mode = config.trainer.v1.get(config.trainer.v1.trainer_mode) or {}
    return int(2 * max(train * (1 + math.ceil(mode.get("num_warmup_batches", 0))), val))
