"""`napmem judge`: calibration of any judge, agreement of labels, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from judge_endpoint import serve_judge

from napmem_rl.cli import main
from napmem_rl.config.judge_section import load_judge_section
from napmem_rl.config.sections import JudgeConfig
from napmem_rl.errors import ConfigError
from napmem_rl.rewards.judge import LexicalJudge
from napmem_rl.rewards.judge_calibration import calibrate, load_calibration


@pytest.fixture(autouse=True)
def _in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["judge", *arguments])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_the_lexical_judge_is_calibrated_without_any_option_and_its_result_kept(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "calibrate")
    assert status == 0 and out.startswith("judge lexical: false accepts 0.0% [0.0, 3.5] of 107 wrong answers, false rejects")
    assert "paraphrase         right     13" in out and out.splitlines()[-1].startswith("kept in runs/calibration/calibration-lexical-")
    assert load_calibration("lexical", Path("runs/calibration")) == calibrate(LexicalJudge())


def test_json_and_mistakes_show_the_same_result(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "calibrate", "--kind", "lexical", "--json", "--dir", "here")
    value = json.loads(out)
    assert value["false_accepts"]["count"] == 0 and value["mistakes"][0] == "paraphrase-01" and list(Path("here").iterdir())
    _, out, _ = run(capsys, "calibrate", "--mistakes")
    assert 'paraphrase-02  How does Tomasz get to work in winter?  [by tram]  "He takes the tram."  is right' in out


def test_a_model_behind_an_endpoint_is_calibrated_whatever_it_says_by_a_recipe_or_by_options(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[Any] = []
    say = {"text": '{"verdict": "incorrect", "reason": "no"}'}

    def reply(messages: list[dict[str, Any]]) -> str:
        asked.append(messages)
        return say["text"]

    url, stop = serve_judge(reply)
    recipe = f"judge:\n  kind: openai\n  model: m\n  base_url: {url}\n  api_key_env: ''\n  protocol: locomo\n  cache_dir: verdicts\npolicy: {{access: none}}\n"
    try:
        Path("base.yaml").write_text(recipe, encoding="utf-8")
        Path("r.yaml").write_text("base: base.yaml\njudge: {model: n}\ntrainer:\n  nnodes: ???\n", encoding="utf-8")
        _, out, _ = run(capsys, "calibrate", "--recipe", "r.yaml")
        assert out.startswith("judge n/locomo-judge-1: false accepts 0.0% [0.0, 3.3] of 113 wrong answers, false rejects 100.0% [95.8, 100.0] of 88 right ones")
        num_first = len(asked)
        assert run(capsys, "calibrate", "--recipe", "r.yaml", "--json")[0] == 0
        assert len(asked) == num_first + 1, "all is cached but the question whether it is there"
        say["text"] = "Yes, that is correct."
        status, out, err = run(capsys, "calibrate", "--model", "m", "--base-url", url, "--api-key-env", "")
        assert (status, out) == (1, "") and "gave no verdict on any of 10 items" in err and len(asked) < num_first + 40
    finally:
        stop()
    assert load_calibration("n/locomo-judge-1", Path("verdicts/calibration")) is not None
    status, _, err = run(capsys, "calibrate", "--model", "m", "--base-url", url, "--api-key-env", "")
    assert status == 1 and "preflight failed" in err and not Path("runs").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--protocol", "locomo"), "command line, key judge.protocol: would do nothing"),
        (("--kind", "openai", "--api-key-env", ""), "no model is named"),
        (("--model", "m", "--api-key-env", "NAPMEM_NO_SUCH_KEY"), "NAPMEM_NO_SUCH_KEY is not set"),
        (("--recipe", "none.yaml"), "no such file"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_line(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str) -> None:
    status, out, err = run(capsys, "calibrate", *arguments)
    assert (status, out) == (1, "") and words in err and err.startswith("napmem: ") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("judge: {knid: lexical}", "key judge.knid: is not a known key. Did you mean judge.kind?"),
        ("judge: {kind: openai, model: 3}", "key judge.model: has the wrong type; got 3; expected str or null"),
        ("judge: {kind: openai, model: m, timeout_s: true}", "key judge.timeout_s: has the wrong type"),
        ("judge: {kind: openai, model: m, timeout_s: 0}", "key judge.timeout_s: is not positive"),
        ("judge: {kind: openai, model: m, protocol: locmo}", "key judge.protocol: is none of the choices; got 'locmo'"),
        ("judge:\n  kind: openai\n  model: ???", "key judge.model: is left open. Give --model beside the recipe."),
        ("judge: {model: m}", "key judge.model: would do nothing: the lexical judge calls no model"),
        ("judge: lexical", "key judge: is a section"),
        ("base: r.yaml", "leads back to itself"),
    ],
)
def test_the_judge_of_a_recipe_is_checked_as_in_training(text: str, words: str) -> None:
    Path("r.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_judge_section(Path("r.yaml"))
    assert words in str(caught.value)


def test_a_recipe_without_a_judge_has_the_lexical_one(tmp_path: Path) -> None:
    Path("r.yaml").write_text("policy: {access: none}\n", encoding="utf-8")
    assert load_judge_section(Path("r.yaml")) == JudgeConfig()
    Path("r.yaml").write_text("judge: {kind: openai, model: m, cache_dir: c, timeout_s: 5}\n", encoding="utf-8")
    assert load_judge_section(Path("r.yaml")) == JudgeConfig(kind="openai", model="m", cache_dir=str(tmp_path / "c"), timeout_s=5)


def test_agreement_is_printed_as_lines_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"labels": {"ana": index < 5, "ben": index < 5, "cem": index < 6}, "judge": index < 4} for index in range(10)]
    Path("labels.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    status, out, _ = run(capsys, "agreement", "--labels", "labels.jsonl")
    assert status == 0 and out.splitlines()[0] == "10 items, 3 rater(s): ana, ben, cem"
    assert "  recall        0.800 (n=5)" in out and "  Cohen's kappa 0.800 (n=10)" in out and "  ana, ben     1.000 (n=10)" in out
    _, out, _ = run(capsys, "agreement", "--labels", "labels.jsonl", "--json")
    assert json.loads(out)["judge"]["num_false_rejects"] == 1 and json.loads(out)["fleiss"]["n"] == 10
    status, _, err = run(capsys, "agreement", "--labels", "none.jsonl")
    assert status == 1 and "cannot be read" in err


def test_the_page_on_evaluation_shows_what_the_commands_print(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    _, out, _ = run(capsys, "calibrate")
    assert ("text", out) in blocks
    labels = next(block for language, block in blocks if language == "json" and '"labels"' in block)
    Path("labels.jsonl").write_text(labels, encoding="utf-8")
    _, out, _ = run(capsys, "agreement", "--labels", "labels.jsonl")
    assert ("text", out) in blocks


def test_a_file_in_place_of_the_directory_is_refused_before_the_judge_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    Path("taken").write_text("")
    status, out, err = run(capsys, "calibrate", "--dir", "taken")
    assert status == 1 and out == "" and "--dir taken: is a file" in err


@pytest.mark.parametrize(("text", "message"), [("jugde: {kind: lexical}", "Did you mean judge?"), ("labels: {ana: 1}", "holds no section of a recipe")])
def test_a_file_that_is_no_recipe_or_misspells_its_judge_is_refused(capsys: pytest.CaptureFixture[str], text: str, message: str) -> None:
    Path("r.yaml").write_text(text)
    status, _, err = run(capsys, "calibrate", "--recipe", "r.yaml")
    assert status == 1 and message in err


def test_one_item_with_two_rows_of_labels_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("l.jsonl").write_text('{"id": "a", "labels": {"ana": true}}\n{"id": "a", "labels": {"ana": false}}\n')
    status, out, err = run(capsys, "agreement", "--labels", "l.jsonl")
    assert status == 1 and out == "" and "item a stands twice" in err
