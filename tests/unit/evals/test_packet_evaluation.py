"""Evaluations of MemChain to their end, with what goes wrong on the way: an answer model that is down, a judge of prose, huge packets, odd ids."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prepared_maker import write_prepared

from napmem_rl.backend.evaluate import DONE, INCOMPLETE, evaluate
from napmem_rl.cli import main
from napmem_rl.config.evaluation_recipe import load_evaluation_recipe
from napmem_rl.errors import DataError
from napmem_rl.evals.answer_log import iterate_answers
from napmem_rl.evals.prepared import load_split
from napmem_rl.systems.memchain.candidate_file import save_candidates
from napmem_rl.systems.memchain.candidates import Candidate

DOWN = "http://127.0.0.1:9/v1"
COMBINING, RIGHT_TO_LEFT = unicodedata.normalize("NFD", "café:1"), "הודעה:2"
Serve = Callable[..., str]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_prepared(tmp_path_factory.mktemp("prepared") / "things", users=2, questions=3)


def run(data: Path, out: Path, *keys: str) -> tuple[int, list[str], dict[str, Any]]:
    """Status, what was told, and the summary of the one benchmark."""
    said: list[str] = []
    fixed = [
        "memory.encoder=none",
        "policy.api_key_env=''",
        "answerer.api_key_env=''",
        "policy.max_retries=0",
        "answerer.max_retries=0",
        "answerer.patience_s=0",
    ]
    status = evaluate(load_evaluation_recipe("memchain", [*fixed, "policy.model=writer", *keys]), [str(data)], out=out, report=said.append)
    path = out / "summary.json"
    return status, said, next(iter(json.loads(path.read_text())["benchmarks"].values())) if path.is_file() else {}


def write_first(messages: list[dict[str, Any]]) -> str:
    """A packet that keeps the first candidate it reads."""
    line = messages[-1]["content"].split("Candidates:\n")[1].split("\n")[0]
    item_id, _, text = line.partition(" ")
    return json.dumps(make_packet(item_id, text))


def make_packet(item_id: str, text: str) -> dict[str, Any]:
    return {
        "plan": {"intent": "lookup", "memory_types": ["fact"], "time_scope": "any", "requirement": "where it is", "evidence_target": 1},
        "trace": [{"role": "answer", "ids": [item_id], "statement": text, "relation": "none"}],
        "actions": [{"action": "KEEP", "ids": [item_id], "rationale": "says it"}],
        "evidence": [{"statement": text, "ids": [item_id]}],
    }


def test_an_answer_model_that_is_down_costs_nothing_but_the_asking_again(data, tmp_path, serve) -> None:
    packets: list[dict] = []
    writer = serve(write_first, requests=packets)
    status, said, part = run(data, tmp_path / "out", f"policy.base_url={writer}", "answerer.model=f", f"answerer.base_url={DOWN}")
    assert status == INCOMPLETE and (part["num_answers"], part["num_missing"]) == (0, 6)
    (error,) = part["errors"]
    assert error["count"] == 6 and "answer model f" in error["detail"]
    answers = tmp_path / "out" / "things-test" / "answers.jsonl"
    assert all(row.trajectory["turns"][0]["text"] and row.details["packet"]["evidence"] for row in iterate_answers(answers)), "packets are on disk"
    reader = serve(lambda messages: "in the attic")
    status, said, part = run(data, tmp_path / "out", f"policy.base_url={writer}", "answerer.model=f", f"answerer.base_url={reader}")
    assert status == DONE and (part["num_answers"], part["num_missing"], part["errors"]) == (6, 0, [])
    assert any("going on with the answers that are there" in line for line in said) and part["packets"]["n"] == 6
    num_packets = len(packets)
    status, said, _ = run(data, tmp_path / "out", f"policy.base_url={writer}", "answerer.model=f", f"answerer.base_url={reader}")
    assert status == DONE and "every attempt is answered" in said and len(packets) == num_packets


def test_a_judge_that_answers_prose_leaves_its_score_absent_and_counted(data, tmp_path, serve) -> None:
    keys = [f"policy.base_url={serve(write_first)}", "answerer.kind=extractive", "judge.kind=openai", "judge.model=j", "judge.api_key_env=''"]
    status, _, part = run(data, tmp_path / "out", *keys, f"judge.base_url={serve(lambda messages: 'I would say that this is right!')}", "judge.max_retries=0")
    assert status == DONE and part["num_answers"] == 6
    judged = part["scores"]["overall"]["judge"]
    assert judged["interval"] is None and sum(judged["absent"].values()) == 4 and any("no verdict" in reason for reason in judged["absent"])
    assert part["scores"]["overall"]["exact_match"]["interval"]["num_values"] == 4, "what needs no judge is there"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (json.dumps(make_packet("msg:0", "x" * 100_000) | {"actions": []}), "too_long"),
        ("[" * 100_000, "not_json"),
        (json.dumps({"evidence": [{"statement": f"s{n}", "ids": ["msg:0"]} for n in range(3000)]}), "too_many_items"),
        ('{"evidence": ' + "{" * 100_000, "not_json"),
        ("<think>" * 15_000, "bad_thinking"),
        (json.dumps({f"field {n}": n for n in range(8000)}), "unknown_field"),
        (json.dumps(make_packet("msg:0", "half \ud800 of a pair")), "not_unicode"),
    ],
    ids=["long statement", "brackets", "many statements", "braces", "thinking", "unknown fields", "lone surrogate"],
)
def test_a_packet_of_100_kb_or_of_half_a_character_is_counted_with_its_reason_and_never_answered(data, tmp_path, serve, text: str, reason: str) -> None:
    status, _, part = run(data, tmp_path / "out", f"policy.base_url={serve(lambda messages: text)}", "answerer.kind=extractive", "evaluation.limit=2")
    assert status == DONE and part["statuses"] == {"error_parse": 2} and part["num_answers"] == 2
    assert part["packets"]["faults"][reason]["packets"] == 2 and part["packets"]["shares"]["asked_again"] in (0.0, 1.0)
    assert part["scores"]["overall"]["exact_match"]["interval"]["mean"] == 0.0, "the policy's own doing"
    assert (tmp_path / "out" / "report.html").stat().st_size < 2_000_000


def test_half_a_character_from_the_answer_model_is_written_down_and_scored(data, tmp_path, serve) -> None:
    keys = [f"policy.base_url={serve(write_first)}", "answerer.model=f", f"answerer.base_url={serve(lambda messages: 'attic ' + chr(0xD800))}"]
    status, _, part = run(data, tmp_path / "out", *keys, f"answerer.cache_dir={tmp_path / 'cache'}")
    assert status == DONE and part["num_answers"] == 6 and part["scores"]["overall"]["token_f1"]["interval"]["num_values"] == 4


def write_candidates(data: Path, path: Path, items: list[Candidate]) -> None:
    tasks = [task for task, _ in load_split(data, "test", name="x").items]
    save_candidates(path, {task.task_id: items for task in tasks})


def test_ids_in_other_scripts_and_other_unicode_forms_are_cited_all_the_same(data, tmp_path, serve) -> None:
    items = [Candidate(id=COMBINING, text="The lantern is in the attic."), Candidate(id=RIGHT_TO_LEFT, text="הפנס בעליית הגג.")]
    write_candidates(data, tmp_path / "c.jsonl", items)
    packet = make_packet(unicodedata.normalize("NFC", COMBINING), "The lantern is in the attic.")
    packet["evidence"].append({"statement": "הפנס בעליית הגג.", "ids": [RIGHT_TO_LEFT]})
    packet["evidence"].append({"statement": "made up", "ids": [f"{RIGHT_TO_LEFT}\u200b"]})
    writer = serve(lambda messages: json.dumps(packet))
    status, _, part = run(data, tmp_path / "out", f"policy.base_url={writer}", "answerer.kind=extractive", f"memchain.candidates={tmp_path / 'c.jsonl'}")
    assert status == DONE and part["packets"]["faults"] == {"foreign_id": {"faults": 6, "packets": 6}}, "an invisible character makes another id"
    row = next(iter(iterate_answers(tmp_path / "out" / "things-test" / "answers.jsonl")))
    assert [item["ids"] for item in row.details["packet"]["evidence"]] == [["café:1"], [RIGHT_TO_LEFT]]
    assert RIGHT_TO_LEFT in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        ("msg:1", "msg:1", "hold an id twice"),
        (unicodedata.normalize("NFC", COMBINING), COMBINING, "hold an id twice"),
        ("msg:1", "msg:1 ", "hold an id twice"),
        ("msg:1", "msg:\u200b1", "hold an id that cannot be cited"),
        ("msg:1", "\u202emsg:2", "hold an id that cannot be cited"),
        ("msg:1", "msg:\ud800", "is no JSON object"),
    ],
    ids=["the same", "other form", "blank", "zero width", "direction mark", "lone surrogate"],
)
def test_candidates_that_cannot_be_told_apart_are_refused_before_anything_is_asked(data, tmp_path, serve, first: str, second: str, problem: str) -> None:
    asked: list[dict] = []
    tasks = [task for task, _ in load_split(data, "test", name="x").items]
    lines = [json.dumps({"task_id": task.task_id, "candidates": [{"id": first, "text": "a"}, {"id": second, "text": "b"}]}) for task in tasks]
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    with pytest.raises(DataError, match=f"c.jsonl, line 1: {problem}"):
        keys = [f"policy.base_url={serve(write_first, requests=asked)}", "answerer.kind=extractive", f"memchain.candidates={tmp_path / 'c.jsonl'}"]
        run(data, tmp_path / "out", *keys)
    assert asked == []


def test_packets_are_neither_played_again_nor_asked_for_without_a_memory(data, tmp_path, serve, capsys) -> None:
    run(data, tmp_path / "out", f"policy.base_url={serve(write_first)}", "answerer.kind=extractive", "evaluation.limit=1")
    task_id = next(iter(iterate_answers(tmp_path / "out" / "things-test" / "answers.jsonl"))).task_id
    for command, said in ((["replay"], "is of another system"), (["counterfactual", "--drop", "msg:0"], "reads candidates of MemChain")):
        assert main([command[0], str(tmp_path / "out"), task_id, *command[1:]]) == 2
        assert said in capsys.readouterr().err
