"""W&B: decided before a job starts (online, offline, and why), trajectories as a table in its run, and what to do with an offline run afterwards.

verl's `Tracking` starts the run in the trainer's process (`trainer.logger` holds wandb); nothing here starts another.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from omegaconf import OmegaConf

from napmem_rl.backend.node_facts import reach
from napmem_rl.backend.settings import JobSettings
from napmem_rl.config.recipe import Recipe
from napmem_rl.errors import ConfigError
from napmem_rl.report.episodes import index_episodes, load_episodes
from napmem_rl.report.run_data import Problem
from napmem_rl.report.selection import Selection, choose_groups

logger = logging.getLogger(__name__)

TABLE, VALIDATION_TABLE = "trajectories", "validation_trajectories"
MAX_VALIDATION_ROWS = 100  # each validation uploads a table
PREFIX = "WANDB_"
OF_ANOTHER_RUN = ("WANDB_SERVICE",)  # the connection of a run that this process may be part of
OFFLINE_MODES = ("offline", "dryrun")
CONNECT_TIMEOUT_S = 5.0
PROXIES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
COLUMNS = (
    *("step", "set", "task", "sample", "question_type", "question", "status", "cause", "reward", "reward_minus_group_mean", "answer", "num_calls"),
    *("transcript", "bank", "weight_version", "judge"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class WandbPlan:
    """How a job logs to W&B: environment of its processes, sentences to print before it starts, and where runs lie on disk. Empty without W&B."""

    env: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    runs_dir: Path | None = None
    started: float = 0.0

    def find_offline_runs(self) -> list[Path]:
        """Offline runs that were begun since the plan was made."""
        runs = self.runs_dir.glob("offline-run-*") if self.runs_dir else ()
        return sorted(path for path in runs if path.stat().st_mtime >= self.started - 1.0)

    def describe_offline_runs(self) -> list[str]:
        """For each offline run, its directory and the command that sends it."""
        return [f"W&B: offline run in {path}\n     send it from a machine with a network: wandb sync {path}" for path in self.find_offline_runs()]


def plan_wandb(recipe: Recipe, run_dir: Path) -> WandbPlan:
    """Decide how a job logs to W&B, so that it never waits for somebody to log in.

    Every WANDB_* variable of this process reaches the job, and the API key of this machine's netrc too. Without WANDB_MODE the run is online where there is
    a key and the server answers, and offline otherwise.

    Raises:
        ConfigError: WANDB_MODE is online and there is no API key, or W&B refuses its own settings.
    """
    loggers = OmegaConf.select(recipe.verl, "trainer.logger") or []
    if "wandb" not in ([loggers] if isinstance(loggers, str) else list(loggers)):
        return WandbPlan()
    given = {name: value for name, value in {**os.environ, **recipe.env}.items() if name.startswith(PREFIX) and name not in OF_ANOTHER_RUN}
    settings, stored_key = _read_settings(given)
    directory = Path(given.get("WANDB_DIR") or run_dir).absolute()
    env = given | {"WANDB_DIR": str(directory)}
    key = given.get("WANDB_API_KEY") or settings.api_key or stored_key
    if key:
        env["WANDB_API_KEY"] = key
    mode = given.get("WANDB_MODE", "")
    offline_because = None
    if mode in OFFLINE_MODES or (not mode and settings.mode in OFFLINE_MODES):
        offline_because = "as WANDB_MODE or W&B's settings say"
    elif mode == "disabled" or (not mode and settings.mode == "disabled"):
        return WandbPlan(env=env, notices=("W&B is disabled (WANDB_MODE or its settings): nothing is logged there",))
    elif not key and "WANDB_IDENTITY_TOKEN_FILE" not in given:
        if mode:
            fix = "Set WANDB_API_KEY, run `wandb login`, or set WANDB_MODE=offline."
            raise ConfigError.of("W&B", f"has no API key for {settings.base_url}, and WANDB_MODE asks for a server", got=mode, fix=fix)
        offline_because = "no API key was found (WANDB_API_KEY, `wandb login`) and WANDB_MODE is not set"
    elif not mode and not _is_proxied(recipe) and not is_reachable(settings.base_url):
        offline_because = f"{settings.base_url} does not answer from here and WANDB_MODE is not set"
    if offline_because is None:
        return WandbPlan(env=env, notices=(f"W&B logs to {settings.base_url}",), runs_dir=directory / "wandb", started=time.time())
    notice = f"W&B runs offline, {offline_because}: everything goes to {directory / 'wandb'}, and the command that sends it comes at the end"
    return WandbPlan(env=env | {"WANDB_MODE": "offline"}, notices=(notice,), runs_dir=directory / "wandb", started=time.time())


def is_reachable(url: str, timeout_s: float = CONNECT_TIMEOUT_S) -> bool:
    """Whether something answers at a server's port."""
    parts = urlsplit(url)
    return reach(parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443), timeout_s) is None


def log_trajectory_table(settings: JobSettings, *, step: int, is_validation: bool = False) -> int:
    """Add trajectories to the W&B run of this process, as a table: those that the page would show, or some of the validation of this step.

    Args:
        settings: of the job; where its trajectories lie and how many rows there may be.
        step: trainer step to log it at.
        is_validation: the validation that has just ended, at most `MAX_VALIDATION_ROWS` of it.

    Returns:
        the number of rows; 0 where there is no run or nothing to show. A failure is a warning.
    """
    try:
        import wandb

        if wandb.run is None or not settings.report.trajectories:
            return 0
        problems: list[Problem] = []
        name, pattern, limit = TABLE, "*.jsonl", settings.report.max_trajectories
        if is_validation:
            name, pattern, limit = VALIDATION_TABLE, f"val_{step:06d}.*jsonl", min(limit, MAX_VALIDATION_ROWS)
        index = index_episodes(settings.trajectories_dir, problems, pattern=pattern)
        rows = build_rows(choose_groups(index.entries, max_episodes=limit))
        if rows:
            table = wandb.Table(columns=list(COLUMNS), data=rows, allow_mixed_types=True)
            wandb.run.log({name: table}, step=step)
        return len(rows)
    except Exception as error:  # boundary: whatever W&B or the disk does, it must not fail a training
        logger.warning("the trajectories could not be logged as a W&B table: %s: %s", type(error).__name__, error)
        return 0


def build_rows(selection: Selection) -> list[list[Any]]:
    """The chosen episodes as rows of `COLUMNS`; the group mean counts siblings that have a reward."""
    shaped = load_episodes(selection.entries)
    rows = []
    for group in selection.groups:
        rewards = [entry.reward for entry in group if entry.reward is not None]
        mean = sum(rewards) / len(rewards) if rewards else None
        for entry in group:
            episode = shaped[entry]
            difference = None if entry.reward is None or mean is None else entry.reward - mean
            rows.append(
                [
                    *(entry.step, entry.kind, entry.task_id, entry.sample, entry.category, episode["question"], entry.status, entry.cause),
                    *(entry.reward, difference, episode["answer"], sum(count for _, count in entry.calls_by_level)),
                    *(render_text(episode), episode["bank"], episode["version"], episode["judge"]),
                ]
            )
    return rows


def render_text(episode: Mapping[str, Any]) -> str:
    """What was said and found, in order, as plain text."""
    lines = []
    for number, turn in enumerate(episode["turns"], start=1):
        lines.append(f"[turn {number}] {turn['text']}")
        if turn["error"]:
            lines.append(f"[did not parse] {turn['error']}")
        lines += [f"[{call['name']}: {'found' if call['ok'] else call['failure'] or 'failed'}] {call['text']}" for call in turn["calls"]]
    return "\n".join(lines)


def _read_settings(given: Mapping[str, str]) -> tuple[Any, str | None]:
    """W&B's own settings, from its files and these variables, and the API key that `wandb login` left in netrc for their server."""
    import wandb
    from wandb.sdk.lib import wbauth

    settings = wandb.Settings()
    try:
        settings.update_from_system_settings()
        settings.update_from_env_vars({name: value for name, value in given.items() if name in ("WANDB_BASE_URL", "WANDB_API_KEY", "WANDB_MODE")})
        return settings, wbauth.read_netrc_auth(host=settings.base_url)
    except (ValueError, wandb.Error) as error:
        raise ConfigError.of("W&B", f"refuses its settings ({' '.join(str(error).split())[:200]})", fix="Correct the WANDB_* variable or netrc.") from error


def _is_proxied(recipe: Recipe) -> bool:
    return bool(OmegaConf.select(recipe.verl, "trainer.wandb_proxy")) or any({**os.environ, **recipe.env}.get(name) for name in PROXIES)
