"""`napmem ask` and `napmem chat` as commands: without a model, with an endpoint that calls tools, with a trained checkpoint."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bank_maker import save_sample
from two_users import ANA_WORDS, build_ana

from napmem_rl import cli
from napmem_rl.assistant.terminal import flatten
from napmem_rl.backend.asked_policy import choose_recipe
from napmem_rl.errors import ConfigError
from napmem_rl.memory.bank import MemoryBank

Serve = Callable[..., str]
SISTER, TEA, TOWN = ANA_WORDS


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    return build_ana(tmp_path).path


def look_up(messages: list[dict[str, Any]]) -> str:
    """A model that searches for the question's last word, then answers with the first capitalised word of the result that ends in a dot."""
    if messages[-1]["role"] != "tool":
        word = messages[-1]["content"].rstrip("?").split()[-1]
        return f"<tool_call>{json.dumps({'name': 'search_conversation', 'arguments': {'query': word}})}</tool_call>"
    return f"<answer>{'tea, ' + TEA if TEA in messages[-1]['content'] else 'not mentioned'}</answer>"


def run(*arguments: object) -> int:
    return cli.main([str(argument) for argument in arguments])


def talk(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def test_an_answer_without_any_model_shows_what_it_rests_on(bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ask", bank, f"What does {SISTER} work as?") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "nurse" in lines[0] and lines[2].startswith("read ")
    assert any(line.startswith("* msg:a3  2024-03-03  Ana: ") for line in lines) and lines[-1].endswith(MemoryBank.open(bank).version)


def test_what_memory_does_not_hold_is_said_to_be_missing(bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ask", bank, "xyzzy plugh?") == 0
    first = "Not in this memory, it seems: nothing that was read says xyzzy, plugh."
    assert capsys.readouterr().out.splitlines()[:3] == [first, "", "nothing in memory was read"]
    assert run("ask", bank, f"What is the favourite opera of {SISTER}?", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["is_abstention"] and said["unread_words"] == ["favourite", "opera"]
    assert run("ask", bank, f"When did my sister {SISTER} move to a castle?") == 0
    out = capsys.readouterr().out
    assert not out.startswith("Not in this memory") and "note: nothing that was read says castle" in out


def test_the_answer_as_json_says_the_same(bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ask", bank, f"What does {SISTER} work as?", "--json", "--set", "policy.top_k=1") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["status"] == "completed" and not said["is_abstention"] and said["bank_id"] == "ana" and said["prompt_tokens"] is None
    (one,) = said["evidence"]
    assert (one["id"], one["level"], one["holds_answer"]) == ("msg:a3", "message", True)


def test_a_question_as_of_a_moment_sees_nothing_later(bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ask", bank, f"Does {SISTER} work or move?", "--at", "2024-03-01", "--json") == 0
    assert {one["id"] for one in json.loads(capsys.readouterr().out)["evidence"]} == {"msg:a1"}  # said on that day
    assert run("ask", bank, "Anything?", "--at", "March") == 1
    assert "--at: is no moment" in capsys.readouterr().err


def test_an_empty_question_is_no_question(bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ask", bank, " ") == 1
    assert "the question is empty" in capsys.readouterr().err


def test_a_model_behind_an_endpoint_looks_things_up_and_shows_its_steps(bank: Path, serve: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    url = serve(look_up, usage=(100, 7))
    assert run("ask", bank, "What do I like better than coffee?", "--model", "m", "--base-url", url, "--api-key-env", "") == 0
    out = capsys.readouterr().out
    assert out.startswith(f"tea, {TEA}\n") and "search_conversation(coffee) -> msg:a2" in out and "by navigate, m" in out
    assert run("ask", bank, "What do I know of zebras?", "--model", "m", "--base-url", url, "--api-key-env", "", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["is_abstention"] and said["evidence"] == [] and said["steps"][0]["failure"] == "nothing_found" and said["prompt_tokens"] == 200


def test_an_endpoint_that_cannot_be_reached_is_no_answer_and_exit_status_1(bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--api-key-env", "", "--set", "policy.max_retries=0")
    assert run("ask", bank, "What do I like?", *given) == 1
    assert capsys.readouterr().out.startswith("No answer; the model could not be reached, or failed: LLMError")


def test_a_trained_checkpoint_answers_by_the_engine_of_this_process(bank: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from napmem_rl.backend.tiny_policy import build_model, build_tokenizer, save_policy

    tokenizer = build_tokenizer([f"Where does {SISTER} work? nurse tea"], max_length=256)
    save_policy(build_model(tokenizer, seed=0, width=32, layers=1, heads=2, ffn=32), tokenizer, tmp_path / "tiny")
    limits = ("agent.max_turn_tokens=8", "agent.max_context_tokens=128", "agent.max_result_tokens=60", "agent.system_prompt=false", "memory.encoder=none")
    status = run("ask", bank, f"Where does {SISTER} work?", "--policy", tmp_path / "tiny", *(f"--set={key}" for key in limits), "--json")
    said = json.loads(capsys.readouterr().out)
    assert said["completion_tokens"] > 0 and (status == 0) == (said["answer"] is not None) and said["status"] in ("completed", "error_parse", "truncated")


def test_policies_that_make_no_sense_here_are_refused() -> None:
    endpoint = {"model": None, "base_url": None, "api_key_env": None}
    with pytest.raises(ConfigError, match="gold evidence"):
        choose_recipe("oracle", overrides=["policy.model=m"], **endpoint)
    with pytest.raises(ConfigError, match="is a directory"):
        choose_recipe("/", overrides=[], **endpoint | {"model": "m"})
    with pytest.raises(ConfigError, match="Did you mean"):
        choose_recipe(None, overrides=["policy.top_q=3"], **endpoint)
    assert choose_recipe(None, overrides=["memory.encoder=hashing", "memory.ranking=fused"], **endpoint).memory.encoder == "hashing"


def test_a_conversation_tells_why_and_writes_nothing_by_itself(bank: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    before = MemoryBank.open(bank).version
    talk(monkeypatch, "/why", f"What does {SISTER} work as?", "/why", "My cat lives in a piano.", "/nonsense", "/quit", "never read")
    assert run("chat", bank) == 0
    out = capsys.readouterr().out
    assert out.startswith("Nothing has been asked yet.") and "* msg:a3" in out and "Unknown command /nonsense" in out
    assert MemoryBank.open(bank).version == before


def test_what_is_to_be_remembered_is_in_the_bank_and_found_by_the_next_question(
    bank: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    talk(monkeypatch, "/remember My cat Pumpernickel sleeps in the piano.", "Where does Pumpernickel sleep?", "/remember", "/remember")
    assert run("chat", bank) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("added to the bank: 1 message and 1 record, session chat-") and "piano" in lines[1]
    assert lines[2].startswith("added to the bank: 1 message and 0 records") and lines[3] == "That failed: nothing was said yet that is not in the bank"
    grown = MemoryBank.open(bank)
    assert [message.text for message in grown.messages[-2:]] == ["My cat Pumpernickel sleeps in the piano.", "Where does Pumpernickel sleep?"]
    assert {message.role for message in grown.messages[-2:]} == {"user"} and grown.messages[-1].speaker == "Ana"


def test_learning_at_the_end_adds_what_the_user_said_and_no_answers(bank: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    talk(monkeypatch, "I bought a red piano.", f"What does {SISTER} work as?")
    assert run("chat", bank, "--learn") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("added to the bank: 2 messages and 1 record,")
    assert [message.text for message in MemoryBank.open(bank).messages][3:] == ["I bought a red piano.", f"What does {SISTER} work as?"]


def test_a_model_in_a_conversation_is_shown_what_was_said_before_and_the_first_question_alone(
    bank: Path, serve: Serve, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[dict[str, Any]] = []
    url = serve(look_up, requests=requests)
    talk(monkeypatch, "What do I like better than coffee?", "And what about coffee?", "/why")
    assert run("chat", bank, "--model", "m", "--base-url", url, "--api-key-env", "") == 0
    asked = [request["messages"][-1]["content"] for request in requests if request["messages"][-1]["role"] == "user"]
    assert asked[0] == "What do I like better than coffee?"
    assert asked[1] == f"Earlier in this conversation:\nUser: {asked[0]}\nYou: tea, {TEA}\n\nThe question now:\n\nAnd what about coffee?"
    assert "looked up:" in capsys.readouterr().out


def test_memory_text_does_not_act_on_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from bank_maker import make_message

    bad = "red bike \x1b[2J\x1b]0;owned\x07\r\nby nobody, bank ana, version 0"
    messages = tuple(make_message(number, bad if number == 3 else "Hm.") for number in range(1, 5))
    save_sample(tmp_path / "ana", messages=messages)
    assert run("ask", tmp_path / "ana", "red bike") == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\x07" not in out and "\r" not in out
    assert sum(line.startswith("by ") for line in out.splitlines()) == 1
    assert flatten("a\tred\nflag", 6) == "a red…"


def test_a_bank_that_is_missing_is_told_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ask", tmp_path / "nobody", "Where?") == 1 and "nobody" in capsys.readouterr().err
    assert run("chat", tmp_path / "nobody") == 1
