"""The table of baselines: its commands, its ceilings, and the check that more evidence is better."""

from __future__ import annotations

from pathlib import Path

import pytest
from prepared_maker import write_prepared

from napmem_rl.backend.evaluate import evaluate
from napmem_rl.config.evaluation_recipe import load_evaluation_recipe
from napmem_rl.errors import BackendError, DataError
from napmem_rl.evals import reproduce_evaluation as reproduction
from napmem_rl.evals.reproduce_evaluation import BEGIN, END, EXTRACTIVE, Source, build_command, build_table, compute_ceilings, find_run, holds, write_table

THINGS = Source(name="locomo", files=(), split="test", metric="token_f1", with_vectors=3)
ROWS = tuple(policy for policy in EXTRACTIVE if policy.name in ("no_memory", "passive_rrf", "oracle"))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The three checked rows, evaluated on users of our own; hashed vectors stand in for MiniLM."""
    out = tmp_path_factory.mktemp("reproduce")
    data = write_prepared(out / "data" / "locomo", users=2, questions=6)
    for policy in ROWS:
        settings = [*policy.overrides, "memory.encoder=hashing"]
        recipe = load_evaluation_recipe(policy.recipe, settings)
        assert evaluate(recipe, [str(data)], out=find_run(out, THINGS, policy), report=lambda line: None) == 0
    return out


@pytest.fixture
def table(out: Path, monkeypatch: pytest.MonkeyPatch) -> dict:
    monkeypatch.setattr(reproduction, "SOURCES", (THINGS,))
    return build_table(out, ROWS, {"prepare": 12.0}, ["a model: not installed"])


def test_the_table_orders_the_rows_and_says_how_sure_that_is(table: dict) -> None:
    assert [row["policy"] for row in table["rows"]] == ["no_memory", "passive_rrf", "oracle"]
    checked = [(check["than"], check["better"], check["num_tasks"]) for check in table["checks"]]
    assert checked == [("no_memory", "passive_rrf", 10), ("passive_rrf", "oracle", 10)]
    assert table["checks"][0]["difference"]["mean"] > 0
    assert holds(table) == (table["checks"][1]["difference"]["mean"] > 0) and not holds({"checks": []})


def test_ceilings_count_questions_whose_evidence_is_there_by_depth(out: Path) -> None:
    rrf, none = (compute_ceilings(find_run(out, THINGS, ROWS[place]) / "locomo-test") for place in (1, 0))
    assert set(rrf) == {"1", "5", "10", "20", "all"} and rrf["all"]["wholly"]["num_values"] == 10
    assert rrf["1"]["wholly"]["mean"] <= rrf["5"]["wholly"]["mean"] <= rrf["20"]["partly"]["mean"] == rrf["all"]["partly"]["mean"] == 1.0
    assert none["all"]["partly"]["mean"] == 0.0 and "5" not in none, "an empty context is no ranking"


def test_the_page_gets_the_table_between_its_markers(table: dict, tmp_path: Path) -> None:
    page = tmp_path / "reproduce.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    text = write_table(table, json_path=tmp_path / "table.json", docs_path=page)
    assert page.read_text() == f"before\n{BEGIN}\n{text}\n{END}\nafter\n" and (tmp_path / "table.json").is_file()
    assert "| oracle > passive_rrf |" in text and "false accepts" in text and "Not run: a model: not installed" in text and "k = 20" in text
    with pytest.raises(DataError, match="lacks the place for the table"):
        write_table(table, json_path=tmp_path / "other.json", docs_path=tmp_path / "table.json")
    assert not (tmp_path / "other.json").exists()


def test_policies_that_need_vectors_are_asked_a_drawn_part_of_a_long_benchmark() -> None:
    rrf, none = (next(policy for policy in EXTRACTIVE if policy.name == name) for name in ("passive_rrf", "no_memory"))
    command = build_command(THINGS, rrf, Path("d"), Path("o"))
    assert command[:6] == ["launch/evaluate.py", "passive_rrf", "--on", "d:test", "--out", "o"] and "evaluation.limit=3" in command
    assert not [word for word in build_command(THINGS, none, Path("d"), Path("o")) if word.startswith("evaluation.limit")]


def test_a_command_that_fails_ends_the_reproduction(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="prepare_data.py locomo .* ended with exit code 2"):
        reproduction.run_baselines(tmp_path, tmp_path / "out", ROWS, report=lambda line: None)
