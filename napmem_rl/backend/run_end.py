"""What a run leaves for people at its end, however it ended: the page, and what to do with an offline W&B run."""

from __future__ import annotations

from pathlib import Path

from napmem_rl.backend.wandb_tables import WandbPlan
from napmem_rl.config.sections import ReportConfig
from napmem_rl.report.page import write_report
from napmem_rl.report.run_data import METRICS_FILE


def close_run(run_dir: Path, report: ReportConfig, *, trajectories_dir: Path, wandb: WandbPlan) -> None:
    """Write report.html, unless it is switched off or nothing has run, and say how an offline W&B run is sent. Never raises."""
    try:
        for line in wandb.describe_offline_runs():
            print(line, flush=True)
    except OSError as error:
        print(f"warning: offline W&B runs could not be listed ({type(error).__name__}: {error})", flush=True)
    if report.html and ((run_dir / METRICS_FILE).exists() or trajectories_dir.is_dir()):
        report_run(run_dir, max_episodes=report.max_trajectories)


def report_run(run_dir: Path, *, max_episodes: int) -> None:
    """Write the page of a run and say where it is; a failure is a printed warning."""
    try:
        print(write_report(run_dir, max_episodes=max_episodes).describe(), flush=True)
    except Exception as error:  # boundary: a page that cannot be written must not fail a run that is done
        print(f"warning: no report was written ({type(error).__name__}: {error}); try again: napmem report {run_dir}", flush=True)
