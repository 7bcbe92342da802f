"""Reading a run directory: nothing is lost in silence, later starts win, gaps stay gaps."""

import json
import math
import re
from pathlib import Path

import pytest
from run_maker import make_line, write_metrics, write_run, write_settings, write_trajectories

from napmem_rl.backend import metric_names
from napmem_rl.errors import DataError
from napmem_rl.report import metric_charts
from napmem_rl.report.episodes import find_cause, index_episodes, load_episodes
from napmem_rl.report.run_data import Metrics, load_metrics, load_run


def test_metrics_of_resumed_starts_are_merged_by_step_and_the_later_start_wins(tmp_path):
    write_metrics(tmp_path, [1, 2, 3, 4], "metrics.1.jsonl", **{"napmem/abstained/judge": 3.0})
    write_metrics(tmp_path, [3, 4, 5], entropy=0.5)
    metrics = load_metrics(tmp_path, [])
    assert metrics.steps == [1, 2, 3, 4, 5]
    assert metrics.column("entropy") == [None, None, 0.5, 0.5, 0.5]
    assert metrics.column("napmem/abstained/judge") == [3.0, 3.0, None, None, None]
    assert metrics.starts == [3]


def test_a_validation_line_before_a_resumed_step_does_not_wipe_out_what_training_logged(tmp_path):
    write_metrics(tmp_path, [1, 2], "metrics.1.jsonl")
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": 2, "data": {"val-core/x/reward/mean@1": 0.5}}) + "\n")
    metrics = load_metrics(tmp_path, [])
    assert metrics.by_step[2]["napmem/reward"] == 0.2
    assert metrics.by_step[2]["val-core/x/reward/mean@1"] == 0.5


def test_earlier_metrics_files_are_ordered_as_numbers(tmp_path):
    for number in (2, 10):
        write_metrics(tmp_path, [1], f"metrics.{number}.jsonl", start=number)
    assert load_metrics(tmp_path, []).column("start") == [10.0]


def test_a_broken_line_of_metrics_is_named_with_its_file_and_number(tmp_path):
    write_metrics(tmp_path, [1])
    with (tmp_path / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 2, "data"\n\n{"step": 3}\n')
    problems = []
    assert load_metrics(tmp_path, problems).steps == [1]
    assert [(problem.file, problem.line) for problem in problems] == [("metrics.jsonl", 2), ("metrics.jsonl", 4)]


def test_values_that_are_not_finite_are_gaps_and_counted(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "data": {"a": null, "b": NaN, "c": 1}}\n')
    metrics = load_metrics(tmp_path, [])
    assert metrics.by_step == {1: {"c": 1.0}}
    assert metrics.num_not_finite == {"a": 1, "b": 1}


def test_a_quickstart_directory_leads_to_its_training_and_its_banks(tmp_path):
    write_settings(tmp_path / "grpo", tmp_path / "gone", versions={})
    (tmp_path / "data" / "banks").mkdir(parents=True)
    (tmp_path / "summary.json").write_text('{"seed": 0}')
    run = load_run(tmp_path)
    assert run.run_dir == tmp_path / "grpo" and run.summary == {"seed": 0} and run.name == tmp_path.name
    assert run.find_banks() == tmp_path / "data" / "banks"
    assert run.setting("verl.trainer.total_training_steps") == 4 and run.setting("napmem.judge.kind", "?") == "?"


def test_a_directory_without_a_run_is_refused_by_name(tmp_path):
    with pytest.raises(DataError, match="holds no run"):
        load_run(tmp_path)
    with pytest.raises(DataError, match="does not exist"):
        load_run(tmp_path / "nothing")


def test_settings_that_cannot_be_read_are_told_and_the_rest_is_shown(tmp_path):
    write_metrics(tmp_path, [1])
    (tmp_path / "resolved.yaml").write_text("a: [")
    run = load_run(tmp_path)
    assert run.metrics.steps == [1]
    assert [problem.file for problem in run.problems] == ["resolved.yaml", "provenance.json"]


def test_lines_that_are_no_episode_are_counted_and_the_others_kept(tmp_path):
    write_trajectories(tmp_path, [make_line()])
    path = tmp_path / "trajectories" / "step_000001.worker_0.jsonl"
    with path.open("a") as stream:
        stream.write('{"step": 1}\n[1]\n{"step": 1, "task_id": "x", "status": "completed", "turns": 3}\n{"half')
    problems = []
    index = index_episodes(tmp_path / "trajectories", problems)
    assert len(index.entries) == 1
    assert [problem.line for problem in problems] == [2, 3, 4, 5]


def test_of_a_step_that_ran_twice_the_later_start_is_shown(tmp_path):
    write_trajectories(tmp_path, [make_line(step=step, run="old") for step in (1, 2, 3)])
    write_trajectories(tmp_path, [make_line(step=step, run="new", reward=0.0) for step in (2, 3, 4)])
    index = index_episodes(tmp_path / "trajectories", [])
    assert [(entry.step, entry.run) for entry in index.entries] == [(1, "old"), (2, "new"), (3, "new"), (4, "new")]
    assert index.num_repeated == 2


def test_an_episode_comes_back_from_its_place_in_the_file(tmp_path):
    write_trajectories(tmp_path, [make_line(sample=sample, question=f"Frage {sample} ü") for sample in range(3)])
    index = index_episodes(tmp_path / "trajectories", [])
    shown = {entry.sample: episode["question"] for entry, episode in load_episodes(index.entries[1:]).items()}
    assert shown == {1: "Frage 1 ü", 2: "Frage 2 ü"}


def test_causes_leave_out_what_differs_from_case_to_case():
    assert find_cause("error_parse", "no valid JSON (Unterminated (char 62))", None) == "error_parse: no valid JSON"
    assert find_cause("over_budget", "asked for tool step 5; at most 4 are allowed", None) == "over_budget: asked for tool step …; at most … are allowed"
    assert find_cause("completed", "", "judge: timeout") == "no reward: judge: timeout"
    assert find_cause("completed", "", None) is None


def test_every_metric_that_a_chart_names_is_one_that_the_trainer_logs():
    """The names live in the backend, which a pure layer may not import."""
    named = set(re.findall(r'"(napmem/\w+)"', Path(metric_charts.__file__).read_text()))
    logged = {value for name, value in vars(metric_names).items() if name.isupper()}
    assert len(named) >= 6 and named <= logged
    assert metric_names.FACT.format(name="x") == f"{metric_charts.FACT}x"


def test_a_metric_that_was_not_logged_is_a_gap_and_not_a_zero():
    metrics = Metrics(by_step={1: {"napmem/reward": 0.5}, 2: {"other": 1.0}, 3: {"napmem/reward": 0.0}})
    charts = {chart.name: chart for chart in metric_charts.build_charts(metrics)}
    assert charts["reward"].series == [("training", [0.5, None, 0.0])]
    assert "calls" not in charts and "mismatch" not in charts


def test_a_cause_is_zero_only_where_the_total_was_logged():
    metrics = Metrics(by_step={1: {"napmem/abstained": 0.0}, 2: {"napmem/abstained": 2.0, "napmem/abstained/judge": 2.0}, 3: {}})
    charts = {chart.name: chart for chart in metric_charts.build_charts(metrics)}
    assert charts["drops"].series == [("judge", [0.0, 2.0, None])]


def test_the_phases_of_a_step_add_up_to_the_step():
    metrics = Metrics(by_step={1: {"timing_s/step": 10.0, "timing_s/gen": 6.0, "timing_s/update_actor": 3.0, "timing_s/testing": 4.0}})
    chart = next(chart for chart in metric_charts.build_charts(metrics) if chart.name == "phases")
    assert dict(chart.series) == {"gen": [6.0], "update_actor": [3.0], "rest of the step": [1.0], "validation": [4.0]}


def test_a_run_without_metrics_gets_its_curves_from_its_episodes(tmp_path):
    run_dir = write_run(tmp_path)
    entries = index_episodes(run_dir / "trajectories", []).entries
    steps, charts = metric_charts.build_episode_charts(entries)
    by_name = {chart.name: dict(chart.series) for chart in charts}
    assert steps == [0, 1, 2, 3, 4]
    assert by_name["reward"]["validation"] == [1.0, None, None, None, None]
    assert by_name["reward"]["training"][0] is None and math.isclose(by_name["reward"]["training"][2], 0.25)
    assert by_name["calls"]["record"] == [None, 1.0, 1.0, 1.0, 1.0]


def test_causes_are_counted_with_their_steps(tmp_path):
    entries = index_episodes(write_run(tmp_path) / "trajectories", []).entries
    counted = {row["cause"]: (row["count"], row["first"], row["last"]) for row in metric_charts.count_causes(entries)}
    assert counted == {"error_parse: stray </answer>": (1, 1, 1), "no reward: judge: no verdict": (1, 1, 1)}


def test_thinning_keeps_the_first_and_the_last_step():
    assert metric_charts.thin(5, 10) == [0, 1, 2, 3, 4]
    kept = metric_charts.thin(1000, 100)
    assert len(kept) == 100 and kept[0] == 0 and kept[-1] == 999
