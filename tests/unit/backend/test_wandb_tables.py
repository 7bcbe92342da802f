"""W&B before a job starts: online, offline, and why. No test here talks to W&B."""

import os
import socket
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf
from run_maker import write_run

from napmem_rl.backend.run_end import close_run, report_run
from napmem_rl.backend.wandb_tables import COLUMNS, WandbPlan, build_rows, is_reachable, plan_wandb
from napmem_rl.config.sections import ReportConfig
from napmem_rl.errors import ConfigError
from napmem_rl.report.episodes import index_episodes
from napmem_rl.report.selection import choose_groups

CLOSED = "http://127.0.0.1:9"
KEY = "k" * 40


@pytest.fixture(autouse=True)
def nobody(monkeypatch, tmp_path):
    """A user without W&B settings, credentials or proxies."""
    for name in [name for name in os.environ if name.startswith("WANDB_") or name.lower() in ("https_proxy", "all_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def recipe_with(*loggers: str, **env: str) -> SimpleNamespace:
    return SimpleNamespace(verl=OmegaConf.create({"trainer": {"logger": list(loggers)}}), env=env)


def test_a_job_without_wandb_is_left_alone(tmp_path):
    assert plan_wandb(recipe_with("console", "file"), tmp_path) == WandbPlan()


def test_without_key_and_mode_a_run_goes_offline_and_says_why(tmp_path):
    plan = plan_wandb(recipe_with("console", "wandb"), tmp_path / "run")
    assert plan.env["WANDB_MODE"] == "offline" and plan.env["WANDB_DIR"] == str(tmp_path / "run")
    assert "no API key" in plan.notices[0] and str(tmp_path / "run" / "wandb") in plan.notices[0]


def test_online_without_a_key_is_refused_instead_of_asking_for_a_login(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "online")
    with pytest.raises(ConfigError, match="no API key for .*wandb login"):
        plan_wandb(recipe_with("wandb"), tmp_path)


def test_with_a_key_and_a_server_that_answers_a_run_is_online_and_the_key_travels(monkeypatch, tmp_path, server):
    monkeypatch.setenv("WANDB_BASE_URL", server)
    (tmp_path / "netrc").write_text(f"machine {server.removeprefix('http://')}\n  login user\n  password {KEY}\n")
    plan = plan_wandb(recipe_with("wandb"), tmp_path)
    assert plan.env["WANDB_API_KEY"] == KEY and "WANDB_MODE" not in plan.env
    assert plan.notices == (f"W&B logs to {server}",)


def test_with_a_key_and_a_server_that_does_not_answer_a_run_goes_offline(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_BASE_URL", CLOSED)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    plan = plan_wandb(recipe_with("wandb"), tmp_path)
    assert plan.env["WANDB_MODE"] == "offline" and "does not answer" in plan.notices[0]
    assert not is_reachable(CLOSED)


def test_variables_of_the_submitter_and_of_the_recipe_reach_the_job(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_ENTITY", "lab")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path / "mine"))
    monkeypatch.setenv("WANDB_SERVICE", "3-1-tcp")
    plan = plan_wandb(recipe_with("wandb", WANDB_MODE="offline", WANDB_TAGS="a"), tmp_path / "run")
    assert plan.env["WANDB_ENTITY"] == "lab" and plan.env["WANDB_TAGS"] == "a" and plan.env["WANDB_DIR"] == str(tmp_path / "mine")
    assert "WANDB_SERVICE" not in plan.env and plan.runs_dir == tmp_path / "mine" / "wandb"


@pytest.mark.parametrize(("name", "value"), [("WANDB_MODE", "ofline"), ("WANDB_BASE_URL", "nonsense")])
def test_a_mistyped_variable_of_wandb_is_refused_before_the_start(monkeypatch, tmp_path, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="refuses its settings"):
        plan_wandb(recipe_with("wandb"), tmp_path)


def test_a_disabled_wandb_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert "disabled" in plan_wandb(recipe_with("wandb"), tmp_path).notices[0]


def test_rows_hold_the_advantage_over_the_group_and_all_that_was_said(tmp_path):
    entries = index_episodes(write_run(tmp_path) / "trajectories", []).entries
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in build_rows(choose_groups(entries, max_episodes=100))]
    first = [row for row in rows if row["step"] == 1 and row["task"] == "t1"]
    assert [row["reward"] for row in first] == [-0.5, -1.0, None, 1.0]
    assert [None if row["reward_minus_group_mean"] is None else round(row["reward_minus_group_mean"], 3) for row in first] == [-0.333, -0.833, None, 1.167]
    assert "[search_records: found] rec:1 Ana lives in Oslo." in first[0]["transcript"] and first[0]["num_calls"] == 1


def test_the_end_of_a_run_names_offline_runs_and_writes_the_page(tmp_path, capsys):
    run_dir = write_run(tmp_path)
    (run_dir / "wandb" / "offline-run-1").mkdir(parents=True)
    plan = WandbPlan(runs_dir=run_dir / "wandb")
    close_run(run_dir, ReportConfig(), trajectories_dir=run_dir / "trajectories", wandb=plan)
    said = capsys.readouterr().out
    assert f"wandb sync {run_dir / 'wandb' / 'offline-run-1'}" in said
    assert (run_dir / "report.html").is_file() and str(run_dir / "report.html") in said


def test_a_page_that_cannot_be_written_is_a_warning(tmp_path, capsys):
    run_dir = write_run(tmp_path)
    (run_dir / "report.html").mkdir()
    report_run(run_dir, max_episodes=10)
    assert "warning: no report was written" in capsys.readouterr().out


def test_no_page_is_written_where_it_is_switched_off_or_nothing_ran(tmp_path):
    run_dir = write_run(tmp_path)
    close_run(run_dir, ReportConfig(html=False), trajectories_dir=run_dir / "trajectories", wandb=WandbPlan())
    assert not (run_dir / "report.html").exists()
    (tmp_path / "empty").mkdir()
    close_run(tmp_path / "empty", ReportConfig(), trajectories_dir=tmp_path / "empty" / "trajectories", wandb=WandbPlan())
    assert list((tmp_path / "empty").iterdir()) == []
