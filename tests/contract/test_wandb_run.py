"""verl's own W&B logger in a real offline run: the table of trajectories lands in that run, inside the run directory."""

import json
from pathlib import Path

import wandb
from omegaconf import OmegaConf
from run_maker import HOSTILE, write_run
from verl.utils.tracking import Tracking

from napmem_rl.backend.settings import SUBTREE, JobSettings
from napmem_rl.backend.trainer import StepReports
from napmem_rl.backend.wandb_tables import COLUMNS, WandbPlan
from napmem_rl.config.sections import AgentConfig, JobConfig, JudgeConfig, MemoryConfig, ReportConfig, RewardConfig


class _Trainer:
    """What verl's trainer does with its logger: one run, one line a step, and an end with an error."""

    def __init__(self, run_dir: Path) -> None:
        sections = {"memory": MemoryConfig(), "agent": AgentConfig(), "reward": RewardConfig(), "judge": JudgeConfig(), "job": JobConfig()}
        settings = JobSettings(**sections, report=ReportConfig(), banks_dir="", run_dir=str(run_dir), seed=0, is_sync=True, job_name="test")
        self.config = OmegaConf.create({SUBTREE: settings.as_config()})
        self.global_steps = 0

    def fit(self, agent_loop_manager: object) -> None:
        self.logger = Tracking("napmem_rl", "test", ["wandb"], config={"trainer": {"wandb_proxy": None}})
        for self.global_steps in (1, 2):
            self.logger.log({"napmem/reward": 0.5}, step=self.global_steps)
        raise RuntimeError("a worker died")


def test_the_trajectories_of_a_run_are_a_table_of_its_offline_wandb_run(tmp_path, monkeypatch):
    run_dir = write_run(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(run_dir))
    wandb.teardown()
    trainer = type("Trainer", (StepReports, _Trainer), {})(run_dir)
    try:
        trainer.fit(None)
        raise AssertionError("the failure was swallowed")
    except RuntimeError as error:
        assert str(error) == "a worker died"
    trainer.logger.finish(exit_code=1)
    wandb.teardown()
    (offline,) = WandbPlan(runs_dir=run_dir / "wandb").find_offline_runs()
    (path,) = (offline / "files" / "media" / "table").glob("trajectories_*.table.json")
    table = json.loads(path.read_text())
    assert table["columns"] == list(COLUMNS) and len(table["data"]) == 33
    assert all(HOSTILE in row[COLUMNS.index("question")] for row in table["data"])
    assert list(offline.glob("*.wandb"))
