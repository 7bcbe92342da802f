"""Benchmarks as they are named on the command line: which split is taken, which questions are drawn, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from prepared_maker import write_prepared

from napmem_rl.errors import ConfigError, DataError
from napmem_rl.evals.prepared import Benchmark, load_benchmarks


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_prepared(tmp_path_factory.mktemp("prepared") / "things", users=2, questions=8)


def load(*wanted: str, named: dict[str, str] | None = None, limit: int | None = None, seed: int = 0) -> list[Benchmark]:
    return load_benchmarks(wanted, named or {}, limit=limit, seed=seed)


def test_a_directory_gives_its_test_split_under_its_own_name(data: Path) -> None:
    (benchmark,) = load(str(data))
    assert (benchmark.name, benchmark.split, len(benchmark.items), benchmark.num_available) == ("things-test", "test", 16, 16)
    assert benchmark.groups["user-1"] == "group-1" and benchmark.evidence["q:0:1"] == ("msg:2",) and benchmark.keys["q:1:0"].references == ("stable",)


def test_dev_stands_in_where_there_is_no_test_split_and_others_must_be_named(tmp_path: Path) -> None:
    data = write_prepared(tmp_path / "set", users=1, split="dev")
    assert load(str(data))[0].split == "dev" and load(f"{data}:dev")[0].name == "set-dev"
    with pytest.raises(ConfigError, match="has no split train; expected .*set:dev"):
        load(f"{data}:train")
    with pytest.raises(ConfigError, match="has no split tset; expected .*set:dev"):
        load(f"{data}:tset")
    trained = write_prepared(tmp_path / "trained", users=1, split="train")
    with pytest.raises(ConfigError, match="has no split test or dev"):
        load(str(trained))
    assert load(f"{trained}:train")[0].split == "train"


def test_a_recipe_may_name_benchmarks(data: Path) -> None:
    first, second = load("mine", "yours", named={"mine": str(data), "yours": f"{data}:test"})
    assert (first.name, second.name) == ("mine", "yours") and first.sha256 == second.sha256
    with pytest.raises(ConfigError, match="Names of the recipe: mine"):
        load("theirs", named={"mine": str(data)})
    with pytest.raises(ConfigError, match="names things-test twice"):
        load(str(data), f"{data}:test")


def test_a_sample_is_the_same_for_one_seed_and_keeps_the_order(data: Path) -> None:
    whole = [task.task_id for task, _ in load(str(data))[0].items]
    drawn = [[task.task_id for task, _ in load(str(data), limit=5, seed=seed)[0].items] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2] and all(sorted(ids, key=whole.index) == ids and len(ids) == 5 for ids in drawn)
    assert len(load(str(data), limit=99)[0].items) == 16


def test_a_data_json_of_another_form_asks_to_prepare_again(tmp_path: Path) -> None:
    data = write_prepared(tmp_path / "set", users=1)
    (data / "data.json").write_text('{"banks": {"user-0": {"group": "g"}}}')
    with pytest.raises(DataError, match="lists no banks with group and version"):
        load(str(data))
