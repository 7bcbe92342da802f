"""RMM over Ray: users side by side, one learner for all of them, and a run that is gone on with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from prepared_maker import write_prepared

from napmem_rl.backend.rmm_online import run_online
from napmem_rl.config.rmm_recipe import load_rmm_recipe

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "rmm" / "smoke.yaml"


def test_users_side_by_side_teach_one_learner(tmp_path: Path) -> None:
    data = write_prepared(tmp_path / "data", users=4, questions=4)
    fixed = [f"data.dir={data}", "data.split=test", f"online.out={tmp_path / 'out'}", "rerank.batch_size=1", "rerank.num_candidates=6", "rerank.num_chosen=2"]
    told: list[str] = []
    summary = run_online(load_rmm_recipe(RECIPE, fixed), report=told.append)
    (facts,) = summary["scopes"].values()
    assert summary["failed"] == {} and summary["questions_answered"] == 16
    assert facts["num_answers"] + facts["num_stale"] == 16 and facts["num_updates"] == facts["num_answers"]
    again = run_online(load_rmm_recipe(RECIPE, [*fixed, "online.scope=domain"]), report=told.append)
    assert again["questions_answered"] == 0 and (tmp_path / "out" / "summary.json").is_file()


def test_a_user_of_their_own_learns_on_ray_what_they_would_have_learned_alone(tmp_path: Path) -> None:
    data = write_prepared(tmp_path / "data", users=2, questions=4)
    fixed = [f"data.dir={data}", "data.split=test", "online.scope=user", "rerank.batch_size=1", "rerank.num_candidates=6", "rerank.num_chosen=2"]
    states = {}
    for name, workers in (("ray", 2), ("here", 0)):
        recipe = load_rmm_recipe(RECIPE, [*fixed, f"online.out={tmp_path / name}", f"online.workers={workers}"])
        summary = run_online(recipe, report=lambda line: None)
        assert summary["failed"] == {} and sorted(summary["scopes"]) == ["user:user-0", "user:user-1"]
        for user in ("user-0", "user-1"):
            with np.load(tmp_path / name / "states" / f"user-{user}.npz") as archive:
                states[name, user] = {key: archive[key] for key in archive.files if key != "header"}
    for user in ("user-0", "user-1"):
        for key, array in states["here", user].items():
            np.testing.assert_array_equal(array, states["ray", user][key])
