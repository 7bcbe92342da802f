"""Recorded questions of evaluations and of training asked again without a memory, and evaluations replayed; recorded by the real runner."""

from __future__ import annotations

import json

import pytest
from judge_endpoint import serve_judge
from prepared_maker import write_prepared
from recorded_run import AGENT, RunMaker, ScriptedServer, make_tokenizer

from napmem_rl.backend.evaluate import evaluate
from napmem_rl.backend.tiny_policy import build_model, build_tokenizer, save_policy
from napmem_rl.cli import main
from napmem_rl.config.evaluation_recipe import load_evaluation_recipe

QUIET = ["memory.encoder=none", "memory.ranking=bm25", "evaluation.workers=0", "evaluation.metrics=[exact_match, token_f1]"]


def record(tmp_path, recipe, *overrides):
    """Evaluate on a small benchmark of two users; returns the evaluation's directory."""
    data = write_prepared(tmp_path / "data")
    out = tmp_path / "out"
    assert evaluate(load_evaluation_recipe(recipe, [*QUIET, *overrides]), [str(data)], out=out, report=lambda line: None) == 0
    return out


def run(capsys, command, out, *arguments, task="q:0:0"):
    status = main([command, str(out), task, *arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


@pytest.fixture
def passive(tmp_path):
    return record(tmp_path, "passive_bm25", "policy.engine=extractive", "policy.top_k=3")


def test_an_answer_that_rests_on_a_message_changes_without_it(capsys, passive):
    status, found = run(capsys, "counterfactual", passive, "--drop", "msg:0")
    assert status == 1 and found["is_changed"] and found["dropped"] == ["msg:0"] and "msg:0" in found["was_read"]
    assert found["before"]["answer"] == found["recorded_answer"] == "attic these days"
    assert "attic" not in found["after"]["answer"] and found["after"]["is_correct"] is False and "equals no reference" in found["after"]["reason"]
    assert found["before"]["evidence_in_context"] == ["msg:0"] and found["after"]["evidence_in_context"] == []
    assert "msg:0" not in found["after"]["context_ids"] and len(found["after"]["context_ids"]) == len(found["before"]["context_ids"])


def test_an_answer_stays_without_a_message_that_nobody_read(capsys, passive):
    status, found = run(capsys, "counterfactual", passive, "--drop", "msg:9")
    assert status == 0 and not found["is_changed"] and found["was_read"] == []
    assert main(["counterfactual", str(passive), "q:0:0", "--drop", "msg:9"]) == 0
    assert "the answer stays: the policy had not read it" in capsys.readouterr().out


def test_each_memory_in_context_is_left_out_by_itself(capsys, passive):
    status, found = run(capsys, "counterfactual", passive, "--drop-each")
    assert status == 1 and [one["dropped"] for one in found] == [[item] for item in found[0]["before"]["context_ids"]]
    assert {one["dropped"][0]: one["is_changed"] for one in found}["msg:0"]
    assert main(["counterfactual", str(passive), "q:0:0", "--drop-each"]) == 1
    assert f"of {len(found)} memories change the answer" in capsys.readouterr().out


def test_an_unknown_memory_is_an_error_that_names_near_ones(capsys, passive):
    status, found = run(capsys, "counterfactual", passive, "--drop", "msg:99")
    assert status == 2 and "holds no item 'msg:99'" in found["reason"] and "Did you mean msg:9" in found["reason"]


def test_banks_stay_as_they_are(capsys, passive, tmp_path):
    before = {path: path.read_bytes() for path in (tmp_path / "data" / "banks").rglob("*") if path.is_file()}
    run(capsys, "counterfactual", passive, "--drop", "msg:0", "--with-dependents")
    assert {path: path.read_bytes() for path in (tmp_path / "data" / "banks").rglob("*") if path.is_file()} == before


def test_questions_that_changed_since_are_not_asked(capsys, passive, tmp_path):
    meta = tmp_path / "data" / "data.json"
    meta.write_text(meta.read_text().replace("handmade", "otherwise"))
    status, found = run(capsys, "counterfactual", passive, "--drop", "msg:0")
    assert status == 2 and "are not those that were evaluated" in found["reason"]


def test_the_oracle_is_handed_what_is_left_of_its_evidence(capsys, tmp_path):
    out = record(tmp_path, "oracle", "policy.engine=extractive")
    status, found = run(capsys, "counterfactual", out, "--drop", "msg:0")
    assert status == 1 and "attic" in found["before"]["answer"] and found["after"]["context_ids"] == []


def test_a_passive_answer_is_no_episode_to_replay(capsys, passive):
    status, found = run(capsys, "replay", passive)
    assert status == 2 and "no episode with tools" in found["reason"]


def navigate(messages):
    """A model that searches, and answers with the words behind "in the" of the first hit."""
    if messages[-1]["role"] != "tool":
        return '<tool_call>{"name": "search_conversation", "arguments": {"query": "lantern attic"}}</tool_call>'
    place = messages[-1]["content"].partition(" in the ")[2].partition(" these")[0]
    return f"<answer>{place or 'unknown'}</answer>"


def test_a_navigator_searches_again_and_its_changed_calls_are_shown(capsys, tmp_path):
    url, stop = serve_judge(navigate)
    try:
        out = record(tmp_path, "navigate", f"policy.base_url={url}", "policy.model=m", 'policy.api_key_env=""')
        status, found = run(capsys, "counterfactual", out, "--drop", "msg:0")
        assert status == 1 and found["before"]["answer"] == "attic" and found["before"]["is_correct"] and not found["after"]["is_correct"]
        assert main(["counterfactual", str(out), "q:0:0", "--drop", "msg:0"]) == 1
        text = capsys.readouterr().out
        assert "- search_conversation(query='lantern attic') → msg:0" in text and "it rested on what is left out" in text
    finally:
        stop()
    status, found = run(capsys, "replay", out)
    assert status == 2 and "token ids were not kept" in found["reason"] and "endpoints give none" in found["reason"]


@pytest.fixture
def navigated(tmp_path):
    """An evaluation of a random tiny model by the transformers engine."""
    tokenizer = build_tokenizer(["Where do I keep my lantern saddle compass telescope ? user"], max_length=400)
    save_policy(build_model(tokenizer, seed=1, width=32, layers=2, heads=2, ffn=64), tokenizer, tmp_path / "policy")
    sampled = ["policy.engine=transformers", f"policy.model={tmp_path / 'policy'}", "policy.temperature=1.0"]
    return record(tmp_path, "navigate", *sampled, "agent.max_context_tokens=400", "agent.max_turn_tokens=12", "agent.max_result_tokens=128")


def test_an_evaluation_is_replayed_and_sampled_again_token_by_token(capsys, navigated):
    status, found = run(capsys, "replay", navigated)
    assert (status, found["result"]) == (0, "equal") and found["sampled_tokens"] > 0
    assert found["notes"] == ["scores compared, all equal: exact_match, judge, token_f1"]
    status, found = run(capsys, "replay", navigated, "--model")
    assert (status, found["result"], found["notes"]) == (0, "equal", [])


def test_a_changed_score_or_token_of_an_evaluation_is_named(capsys, navigated):
    (scores,) = navigated.glob("*/scores.jsonl")
    scores.write_text(scores.read_text().replace('"token_f1": 0.0', '"token_f1": 0.5'))
    status, found = run(capsys, "replay", navigated)
    assert status == 1 and found["difference"]["part"] == "score token_f1" and found["difference"]["recorded"] == "0.5"
    policy = next((navigated.parent / "policy").glob("*.safetensors"))
    policy.write_bytes(policy.read_bytes()[:-4] + b"\0\0\0\0")
    assert "are not those that were evaluated" in " ".join(run(capsys, "replay", navigated, "--model")[1]["notes"])
    (answers,) = navigated.glob("*/answers.jsonl")
    rows = [json.loads(line) for line in answers.read_text().splitlines()]
    for row in rows:
        row["trajectory"]["turns"][0]["new_prompt_ids"][2] += 1
    answers.write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, found = run(capsys, "replay", navigated)
    assert status == 1 and (found["difference"]["part"], found["difference"]["position"]) == ("prompt token", 2)


def test_a_training_episode_is_asked_again_with_the_seeds_of_its_run(capsys, tmp_path):
    tokenizer = make_tokenizer(tmp_path / "policy")
    save_policy(build_model(tokenizer, seed=1, width=32, layers=2, heads=2, ffn=64), tokenizer, tmp_path / "policy")
    RunMaker(run_dir=tmp_path, policy_dir=tmp_path / "policy", tokenizer=tokenizer, agent=AGENT).record(ScriptedServer(tokenizer, "<answer>Oslo</answer>"))
    status, found = run(capsys, "counterfactual", tmp_path, "--drop", "rec:1", task="ana-1")
    assert status in (0, 1) and found["recorded_answer"] == "Oslo" and found["dropped"] == ["rec:1"]
    assert found["before"]["status"] == found["after"]["status"], "a random policy reads nothing, so nothing changes"
    assert not found["is_changed"]
