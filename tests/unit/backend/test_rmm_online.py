"""Lives of users: sessions, questions between them, stops on the way; in this process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from judge_endpoint import serve_judge
from prepared_maker import write_prepared

from napmem_rl.backend.rmm_online import run_online
from napmem_rl.config.rmm_recipe import RmmRecipe, load_rmm_recipe
from napmem_rl.data.rows import load_rows
from napmem_rl.errors import ConfigError, DataError
from napmem_rl.evals.prepared import load_benchmarks
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.retrieval.rerank_state import lock_state
from napmem_rl.systems.rmm.prepared import write_prepared_directory
from napmem_rl.systems.rmm.retrospective import SimulatedCiter

RECIPES = Path(__file__).resolve().parents[3] / "recipes" / "rmm"


def load(data: Path, out: Path, *overrides: str) -> RmmRecipe:
    fixed = [f"data.dir={data}", "data.split=test", f"online.out={out}", "online.workers=0", "rerank.batch_size=1", "rerank.num_candidates=6"]
    return load_rmm_recipe(RECIPES / "smoke.yaml", [*fixed, "rerank.num_chosen=2", *overrides])


def read_state(out: Path, scope: str) -> dict[str, np.ndarray]:
    with np.load(out / "states" / f"{scope}.npz") as archive:
        return {name: archive[name] for name in archive.files if name != "header"}


def test_users_are_lived_through_and_what_was_learned_lasts(tmp_path: Path) -> None:
    data = write_prepared(tmp_path / "data", users=2, questions=4)
    summary = run_online(load(data, tmp_path / "out"), report=lambda line: None)
    (facts,) = summary["scopes"].values()
    assert summary["questions_answered"] == 8 and summary["failed"] == {} and facts["num_updates"] == facts["num_answers"] == 8
    assert summary["answerer"] == "simulated" and list(summary["scopes"]) == ["domain:data"]
    bank = MemoryBank.open(tmp_path / "out" / "banks" / "user-0")
    assert bank.writer == "rmm-rules" and len(bank.records) > 3
    rows = [json.loads(line) for line in (tmp_path / "out" / "answers" / "user-0.jsonl").read_text().splitlines()]
    assert [row["task_id"] for row in rows] == [f"q:0:{number}" for number in range(4)] and len(rows[0]["shown_ids"]) == 2
    again = run_online(load(data, tmp_path / "out"), report=lambda line: None)
    assert again["questions_answered"] == 0


def test_what_is_left_is_a_prepared_directory_with_the_questions_of_before(tmp_path: Path) -> None:
    data, out = write_prepared(tmp_path / "data", users=2, questions=4), tmp_path / "out"
    summary = run_online(load(data, out), report=lambda line: None)
    (benchmark,) = load_benchmarks([str(out)], {}, limit=None, seed=0)
    assert [task for task, _ in benchmark.items] == [task for task, _ in load_rows(data / "test.parquet")] and len(benchmark.items) == 8
    for bank_id, version in benchmark.versions.items():
        assert MemoryBank.open(out / "banks" / bank_id, version=version).writer == "rmm-rules"
    assert write_prepared_directory(data, out, split="test", left_out={"user-1"}) == 1  # a user who was not finished
    assert list(load_benchmarks([str(out)], {}, limit=None, seed=0)[0].versions) == ["user-0"]
    with pytest.raises(DataError, match="another online.out"):
        write_prepared_directory(data, data, split="test")
    ((end, share),) = next(iter(summary["scopes"].values()))["usefulness_over_steps"]
    assert end == 8 and 0 <= share <= 1


class _Stop(Exception):
    """A process that ends."""


def test_a_user_whose_run_is_stopped_again_and_again_ends_as_without_the_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_prepared(tmp_path / "data", users=1, questions=6)
    run_online(load(data, tmp_path / "whole", "online.scope=user"), report=lambda line: None)
    answer, asked = SimulatedCiter.answer, []

    async def answer_or_stop(self: SimulatedCiter, task: object, memories: object, session: object) -> str:
        asked.append(task)
        if len(asked) % 2 == 0:
            raise _Stop
        return await answer(self, task, memories, session)

    monkeypatch.setattr(SimulatedCiter, "answer", answer_or_stop)
    for _ in range(20):
        try:
            run_online(load(data, tmp_path / "parted", "online.scope=user"), report=lambda line: None)
            break
        except _Stop:
            continue
    whole, parted = (read_state(tmp_path / name, "user-user-0") for name in ("whole", "parted"))
    assert len(asked) == 11 and whole.keys() == parted.keys()
    for name, array in whole.items():
        np.testing.assert_array_equal(array, parted[name])


KILLED_AFTER = """
import os, signal, sys
from napmem_rl.backend.rmm_online import run_online
from napmem_rl.config.rmm_recipe import load_rmm_recipe
from napmem_rl.retrieval import rerank_state
left, write = int(sys.argv[1]), rerank_state.write_file

def write_or_die(path, content, **options):
    global left
    left -= 1
    if left == 0:
        path.with_name(path.name + ".torn").write_bytes(content[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    write(path, content, **options)

rerank_state.write_file = write_or_die
run_online(load_rmm_recipe(sys.argv[2], sys.argv[3:]), report=print)
"""


def test_a_process_that_is_killed_at_its_saves_ends_as_one_that_was_not(tmp_path: Path) -> None:
    data = write_prepared(tmp_path / "data", users=1, questions=6)
    run_online(load(data, tmp_path / "whole", "online.scope=user"), report=lambda line: None)
    fixed = [f"data.dir={data}", "data.split=test", f"online.out={tmp_path / 'parted'}", "online.workers=0", "online.scope=user"]
    given = [str(RECIPES / "smoke.yaml"), *fixed, "rerank.batch_size=1", "rerank.num_candidates=6", "rerank.num_chosen=2"]
    for saves in (1, 3):
        done = subprocess.run([sys.executable, "-c", KILLED_AFTER, str(saves), *given], capture_output=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    rest = run_online(load(data, tmp_path / "parted", "online.scope=user"), report=lambda line: None)
    assert rest["questions_answered"] == 4 and rest["failed"] == {}
    whole, parted = (read_state(tmp_path / name, "user-user-0") for name in ("whole", "parted"))
    for name, array in whole.items():
        np.testing.assert_array_equal(array, parted[name])


def test_a_second_process_that_writes_the_same_state_is_refused(tmp_path: Path) -> None:
    data, out = write_prepared(tmp_path / "data", users=1, questions=2), tmp_path / "out"
    lock = lock_state(out / "states" / "domain-data.npz", "domain:data")
    place = [f"data.dir={data}", "data.split=test", f"online.out={out}", "online.workers=0"]
    command = [sys.executable, str(RECIPES.parents[1] / "launch" / "rmm.py"), str(RECIPES / "smoke.yaml"), *place]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    lock.release()
    assert refused.returncode == 2 and "is being written by process" in refused.stderr and not (out / "states" / "domain-data.npz").exists()
    assert subprocess.run(command, capture_output=True, text=True, check=False).returncode == 0


def test_a_model_that_cites_all_that_it_is_shown_sounds_the_alarm(tmp_path: Path) -> None:
    url, stop = serve_judge(lambda messages: "In the attic [1, 2].")
    try:
        data, told = write_prepared(tmp_path / "data", users=4, questions=6), []
        recipe = load(data, tmp_path / "out", "online.answerer=llm", "llm.model=m", f"llm.base_url={url}", 'llm.api_key_env=""')
        summary = run_online(recipe, report=told.append)
    finally:
        stop()
    (facts,) = summary["scopes"].values()
    assert summary["questions_answered"] == 24 and facts["num_all_cited"] == facts["num_answers"] >= 20 and "everything" in facts["alarm"]
    assert any(line.startswith("alarm, domain:data") for line in told)


def test_shipped_recipes_load_and_wrong_keys_are_named(tmp_path: Path) -> None:
    online = load_rmm_recipe(RECIPES / "online.yaml", ["data.dir=d", "llm.model=m"])
    assert (online.online.scope, online.online.answerer, online.rerank.num_candidates, online.rerank.baseline) == ("user", "llm", 20, 0.5)
    assert not load_rmm_recipe(RECIPES / "smoke.yaml", ["data.dir=d"]).asks_model
    wrong = {
        "rerank.taus=1": "Did you mean rerank.tau",
        "online.scope=planet": "none of the choices",
        "rerank.tau=cold": "wrong type",
        "llm.model=m": "would do nothing",
        "memory.encoder=none": "needs vectors",
        "online.flip=0.7": "no probability",
        "rerank.num_chosen=30": "num_chosen",
    }
    for override, word in wrong.items():
        with pytest.raises(ConfigError, match=word):
            load_rmm_recipe(RECIPES / "smoke.yaml", ["data.dir=d", override])
    with pytest.raises(ConfigError, match="llm.model"):
        load_rmm_recipe(RECIPES / "online.yaml", ["data.dir=d"])
    with pytest.raises(ConfigError, match="data.dir"):
        load_rmm_recipe(RECIPES / "smoke.yaml")
