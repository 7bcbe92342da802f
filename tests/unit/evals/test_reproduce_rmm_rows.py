"""Rows of RMM's second table: who teaches and who is asked, and what the page says of finished evaluations."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from prepared_maker import write_prepared

from napmem_rl.backend.evaluate import evaluate
from napmem_rl.backend.rmm_online import run_online
from napmem_rl.config.evaluation_recipe import load_evaluation_recipe
from napmem_rl.config.rmm_recipe import load_rmm_recipe
from napmem_rl.errors import ConfigError
from napmem_rl.evals.reproduce_rmm import print_rows
from napmem_rl.evals.reproduce_rmm_rows import SETTINGS, _read_row, find_inputs, render_rows

SMOKE = Path(__file__).resolve().parents[3] / "recipes" / "rmm" / "smoke.yaml"


def test_who_is_asked_teaches_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "longmemeval"
    directory.mkdir()
    instances = [{"question_id": f"q{number}", "haystack_sessions": []} for number in range(5)]
    (directory / "oracle.json.gz").write_bytes(gzip.compress(json.dumps(instances).encode()))
    (directory / "s_dev60.jsonl.gz").write_bytes(gzip.compress("\n".join(json.dumps(one) for one in instances[1:3]).encode()))
    inputs = find_inputs(tmp_path, tmp_path / "parts")
    parts = {name: [json.loads(line)["question_id"] for line in Path(inputs[name][1]).read_text().splitlines()] for name in ("oracle-60", "oracle-others")}
    assert parts == {"oracle-60": ["q1", "q2"], "oracle-others": ["q0", "q3", "q4"]}
    assert "locomo" not in inputs and all(setting.teaching != setting.asked for setting in SETTINGS)


def test_rows_are_read_from_evaluations_of_topic_memories_and_show_what_a_state_changes(tmp_path: Path) -> None:
    data, out = write_prepared(tmp_path / "data", users=2, questions=4), tmp_path / "out"
    fixed = [f"data.dir={data}", "data.split=test", f"online.out={out}", "online.workers=0", "rerank.num_candidates=6", "rerank.num_chosen=2"]
    assert run_online(load_rmm_recipe(SMOKE, fixed), report=lambda line: None)["failed"] == {}
    rows = {}
    for name, recipe, more in (("no_memory", "no_memory", []), ("rmm", "topics", [f"memory.rerank={out / 'states' / 'domain-data.npz'}"])):
        asked = ["policy.engine=extractive", "memory.encoder=hashing", "evaluation.metrics=[token_f1,recall]", *more]
        loaded = load_evaluation_recipe(recipe, asked)
        assert evaluate(loaded, [str(out)], out=tmp_path / "rows" / name, report=lambda line: None) == 0
        rows[name] = _read_row(tmp_path / "rows" / name)
    assert rows["no_memory"]["evidence_recall"]["mean"] == 0 and rows["rmm"]["evidence_recall"]["mean"] > 0.5
    text = "\n".join(render_rows({"settings": {"Things": {"rows": rows, "seconds": 3.0}}, "absent": {"LoCoMo": "no data"}}))
    assert "**Things**: 8 questions, 3 s." in text and "| RMM | " in text and "judge lexical" in text and "Not measured: LoCoMo (no data)." in text


def test_without_data_it_says_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAPMEM_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="NAPMEM_DATA"):
        print_rows(tmp_path, as_json=False)
