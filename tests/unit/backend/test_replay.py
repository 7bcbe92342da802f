"""A recorded episode is played again by the real episode: equal as it stands, and any change is named where it is."""

from __future__ import annotations

import dataclasses
import json

import pytest
from recorded_run import ANSWER, SEARCH, RunMaker, ScriptedServer, edit_line, make_tokenizer

from napmem_rl.backend.local_policy import EngineServer
from napmem_rl.backend.tiny_policy import build_model, save_policy
from napmem_rl.cli import main
from napmem_rl.errors import BackendError


@pytest.fixture
def maker(tmp_path):
    return RunMaker(run_dir=tmp_path, policy_dir=tmp_path / "policy", tokenizer=make_tokenizer(tmp_path / "policy"))


@pytest.fixture
def recorded(maker):
    """A file with one episode of two turns: a search, then the right answer."""
    return maker.record(ScriptedServer(maker.tokenizer, SEARCH, ANSWER))


def replay(capsys, tmp_path, *arguments, task="ana-1"):
    status = main(["replay", str(tmp_path), task, "--json", *arguments])
    return status, json.loads(capsys.readouterr().out)


def test_an_episode_played_again_is_equal_token_by_token(capsys, tmp_path, recorded):
    status, found = replay(capsys, tmp_path)
    assert (status, found["result"], found["reward"], found["calls"], found["turns"]) == (0, "equal", 1.0, 1, 2)
    line = json.loads(recorded.read_text())
    assert found["sampled_tokens"] == sum(len(turn["response_ids"]) for turn in line["turns"])
    assert found["prompt_tokens"] == sum(len(turn["new_prompt_ids"]) for turn in line["turns"])
    assert main(["replay", str(tmp_path), "ana-1"]) == 0
    assert "equal: status completed, 2 turns, 1 call, " in capsys.readouterr().out


def test_one_changed_prompt_token_is_named_with_both_texts(capsys, tmp_path, maker, recorded):
    rome = maker.tokenizer.convert_tokens_to_ids("Rome")
    original = json.loads(recorded.read_text())["turns"][0]["new_prompt_ids"]
    edit_line(recorded, lambda line: line["turns"][0]["new_prompt_ids"].__setitem__(3, rome))
    status, found = replay(capsys, tmp_path)
    difference = found["difference"]
    assert status == 1 and (difference["part"], difference["turn"], difference["position"]) == ("prompt token", 1, 3)
    assert (difference["recorded_id"], difference["again_id"]) == (rome, original[3])
    assert (difference["recorded"], difference["again"]) == ("Rome", maker.tokenizer.decode(original[3:4]))
    assert difference["before"] == maker.tokenizer.decode(original[:3])


def test_one_changed_sampled_token_is_named_by_its_position(capsys, tmp_path, maker, recorded):
    ids = json.loads(recorded.read_text())["turns"][1]["response_ids"]
    place = ids.index(maker.tokenizer.convert_tokens_to_ids("Oslo"))
    edit_line(recorded, lambda line: line["turns"][1]["response_ids"].__setitem__(place, maker.tokenizer.convert_tokens_to_ids("Rome")))
    status, found = replay(capsys, tmp_path)
    difference = found["difference"]
    assert status == 1 and (difference["turn"], difference["position"]) == (2, place) and difference["part"].startswith("text of the sampled tokens")
    assert difference["again"] == "Rome" and difference["recorded"].strip().startswith("Oslo")


def test_a_changed_tool_result_shows_at_the_first_token_of_the_next_prompt_that_it_changes(capsys, tmp_path, maker, recorded):
    turns = json.loads(recorded.read_text())["turns"]
    added = turns[1]["new_prompt_ids"]
    place = added.index(maker.tokenizer.convert_tokens_to_ids("Oslo"))
    start = len(turns[0]["new_prompt_ids"]) + len(turns[0]["response_ids"])

    def change(line):
        call = line["turns"][0]["calls"][0]
        call["text"] = call["text"].replace("Oslo", "Rome", 1)

    edit_line(recorded, change)
    status, found = replay(capsys, tmp_path)
    difference = found["difference"]
    assert status == 1 and (difference["part"], difference["turn"], difference["position"]) == ("prompt token", 2, start + place)
    assert (difference["recorded"], difference["again"]) == ("Oslo", "Rome")


@pytest.mark.parametrize(
    "change, part",
    [
        (lambda line: line.__setitem__("reward", 0.5), "reward"),
        (lambda line: line["terms"].__setitem__("correct", 0.0), "reward"),
        (lambda line: line["turns"][0]["calls"][0]["arguments"].__setitem__("query", "Oslo"), "parsed call"),
        (lambda line: line.update(status="truncated", final_answer=None), "status"),
        (lambda line: line.__setitem__("final_answer", "Rome"), "final answer"),
    ],
)
def test_whatever_else_was_changed_is_named(capsys, tmp_path, recorded, change, part):
    edit_line(recorded, change)
    status, found = replay(capsys, tmp_path)
    assert status == 1 and found["difference"]["part"] == part


def test_a_failure_of_ours_plays_again_as_that_failure(capsys, tmp_path, maker):
    class Broken(ScriptedServer):
        async def generate(self, request_id, prompt_ids, sampling):
            if not self._texts:
                raise BackendError("server died")
            return await super().generate(request_id, prompt_ids, sampling)

    maker.record(Broken(maker.tokenizer, SEARCH))
    status, found = replay(capsys, tmp_path)
    assert (status, found["status"], found["reward"]) == (0, "error_llm", None)


def test_what_a_recording_lacks_is_said_with_exit_status_2(capsys, tmp_path, maker):
    path = dataclasses.replace(maker, token_ids=False).record(ScriptedServer(maker.tokenizer, ANSWER))
    status, found = replay(capsys, tmp_path)
    assert status == 2 and "token ids were not kept" in found["reason"] and "report.token_ids" in found["reason"]
    path.unlink()
    path = maker.record(ScriptedServer(maker.tokenizer, ANSWER))
    edit_line(path, lambda line: line["prompt"].__setitem__("version", "napmem-0"))
    status, found = replay(capsys, tmp_path)
    assert status == 2 and "other prompts" in found["reason"] and "napmem-0" in found["reason"]
    edit_line(path, lambda line: line["prompt"].__setitem__("version", "other-1"))
    assert "is of another system" in replay(capsys, tmp_path)[1]["reason"]
    edit_line(path, lambda line: line["prompt"].__setitem__("version", "napmem-1"))
    (tmp_path / "policy").rename(tmp_path / "moved")
    status, found = replay(capsys, tmp_path)
    assert status == 2 and "was not found" in found["reason"] and "--tokenizer" in found["reason"]
    assert replay(capsys, tmp_path, "--tokenizer", str(tmp_path / "moved"))[0] == 0


def test_an_unknown_task_names_near_ones_and_several_episodes_are_listed(capsys, tmp_path, maker):
    for sample in (0, 1):
        maker.record(ScriptedServer(maker.tokenizer, ANSWER), sample=sample)
    status, found = replay(capsys, tmp_path, task="ana-2")
    assert status == 2 and "Did you mean ana-1" in found["reason"]
    status, found = replay(capsys, tmp_path)
    assert status == 2 and "has 2 such episodes" in found["reason"] and "train step 3 sample 0; train step 3 sample 1" in found["reason"]
    assert replay(capsys, tmp_path, "--sample", "1")[0] == 0
    status, found = replay(capsys, tmp_path, "--sample", "5")
    assert status == 2 and "has no such episode" in found["reason"]


class OwnEngine(EngineServer):
    """The engine of this process, which has no top_k, as the transformers rollout server passes turns to it."""

    async def generate(self, request_id, prompt_ids, sampling):
        return await super().generate(request_id, prompt_ids, {name: value for name, value in sampling.items() if name not in ("top_k", "logprobs")})


@pytest.fixture
def sampled(maker):
    """An episode that a random tiny policy really sampled."""
    from napmem_rl.backend.engine_transformers import TransformersEngine

    model = build_model(maker.tokenizer, seed=1, width=32, layers=2, heads=2, ffn=64)
    save_policy(model, maker.tokenizer, maker.policy_dir)
    engine = TransformersEngine(model, max_context=400)
    path = maker.record(OwnEngine(engine))
    engine.close()
    return path


def test_sampling_again_with_the_recorded_seed_gives_the_same_tokens(capsys, tmp_path, sampled):
    status, found = replay(capsys, tmp_path, "--model")
    assert (status, found["result"]) == (0, "equal") and found["sampled_tokens"] > 3 and found["notes"] == []
    assert replay(capsys, tmp_path)[0] == 0


def test_other_weights_differ_at_a_token_that_is_named_with_both_log_probs(capsys, tmp_path, maker, sampled):
    save_policy(build_model(maker.tokenizer, seed=2, width=32, layers=2, heads=2, ffn=64), maker.tokenizer, tmp_path / "other")
    ids = json.loads(sampled.read_text())["turns"][0]["response_ids"]
    status, found = replay(capsys, tmp_path, "--model", str(tmp_path / "other"))
    difference = found["difference"]
    assert status == 1 and difference["part"] == "sampled token" and difference["recorded_id"] == ids[difference["position"]] != difference["again_id"]
    assert found["logprobs"]["recorded"] < 0 and found["logprobs"]["again"] < 0


def test_weights_that_were_not_kept_are_asked_for(capsys, tmp_path, sampled):
    edit_line(sampled, lambda line: line.update(policy_version=2, min_policy_version=2))
    status, found = replay(capsys, tmp_path, "--model")
    assert status == 2 and "of step 2) were not kept" in found["reason"] and "--model DIR" in found["reason"]
