"""Keys, tokens and passwords do not reach errors, logs, snapshots of settings or reports; everything else does as it is."""

from __future__ import annotations

import logging
import pickle

import pytest
import yaml

from napmem_rl.config.recipe import load_recipe
from napmem_rl.errors import LLMError, report_errors
from napmem_rl.masking import is_secret_name, mask_log_records, mask_secrets, mask_settings

KEY = "sk-proj-" + "a1B2c3D4" * 4  # made up, as all below


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"key {KEY} refused", "key *** refused"),
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer ***"),
        ("{'Authorization': 'Basic dXNlcjpwYXNz'}", "{'Authorization': 'Basic ***'}"),
        ("https://ana:hunter2@host:8000/v1", "https://ana:***@host:8000/v1"),
        ("https://:hunter2@host/v1", "https://:***@host/v1"),
        ("redis://longtokenvalue@host", "redis://***@host"),
        ("GET http://h/v1?api_key=abc123&model=m", "GET http://h/v1?api_key=***&model=m"),
        ("http://h/v1?key=AbC12345&x=1#frag", "http://h/v1?key=***&x=1#frag"),
        ("OPENAI_API_KEY=abcdefgh", "OPENAI_API_KEY=***"),
        ('{"api_key": "abcdefgh", "model": "m"}', '{"api_key": "***", "model": "m"}'),
        ("password: hunter22", "password: ***"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7", "aws_secret_access_key = ***"),
        ("hf_" + "AbCd" * 6, "***"),
        ("ghp_" + "AbCd" * 8, "***"),
        ("AKIA" + "ABCD" * 4, "***"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc-DEF", "***"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "***"),
    ],
)
def test_secrets_of_the_usual_forms_are_masked_and_masking_again_changes_nothing(text, masked):
    assert mask_secrets(text) == masked == mask_secrets(masked)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "api_key_env: OPENAI_API_KEY",
        "max_tokens: 2048, pad_token: <|endoftext|>",
        "https://host:8000/v1/models?limit=10",
        "ana@example.org wrote at 10:30 about http://host/@ana",
        "bearer of good news",
        "version 8929c49a7a8a6f44 of msg:12, commit 0123456789abcdef0123456789abcdef01234567",
        "the environment variable OPENAI_API_KEY is not set",
        "api_key: none",
        "She lost the key to the red door; the password is long.",
    ],
)
def test_what_is_no_secret_stays_as_it_is(text):
    assert mask_secrets(text) == text


def test_what_the_environment_holds_under_the_name_of_a_secret_is_masked_whatever_its_form(monkeypatch):
    monkeypatch.setenv("MY_SERVICE_API_KEY", "plain words 123")
    monkeypatch.setenv("HF_TOKEN", "short")
    assert mask_secrets("sent: plain words 123, short") == "sent: ***, short"


def test_settings_lose_what_stands_under_the_name_of_a_secret_and_keep_the_rest():
    settings = {
        "judge": {"api_key": "abc", "api_key_env": "OPENAI_API_KEY", "base_url": "http://u:p4ss@h/v1"},
        "env": {"WANDB_API_KEY": "1" * 40},
        "n": [1, "x", None],
    }
    assert mask_settings(settings) == {
        "judge": {"api_key": "***", "api_key_env": "OPENAI_API_KEY", "base_url": "http://u:***@h/v1"},
        "env": {"WANDB_API_KEY": "***"},
        "n": [1, "x", None],
    }
    assert not any(map(is_secret_name, ("api_key_env", "eos_token", "pad_token_id", "max_tokens", "key", "tokenizer")))


def test_errors_are_masked_also_after_they_travelled_and_on_the_line_that_a_command_prints(capsys):
    error = LLMError.of(f"model m at https://u:{KEY}@h", "request failed", got=f"401, Authorization: Bearer {KEY}")
    assert KEY not in str(error) and KEY not in error.message and "https://u:***@h" in error.message
    assert pickle.loads(pickle.dumps(error)).message == error.message

    @report_errors
    def main() -> int:
        raise OSError(f"cannot reach http://h?api_key={KEY}")

    assert main() == 2 and capsys.readouterr().err == "error: cannot reach http://h?api_key=***\n"


def test_log_records_are_masked_whoever_writes_them(caplog):
    factory = logging.getLogRecordFactory()
    try:
        mask_log_records()
        mask_log_records()
        logging.getLogger("some.library").warning("sent %s to %s", {"Authorization": f"Bearer {KEY}"}, "http://h")
        logging.getLogger("some.library").warning("%d entries", 3)
    finally:
        logging.setLogRecordFactory(factory)
    assert [record.getMessage() for record in caplog.records] == ["sent {'Authorization': 'Bearer ***'} to http://h", "3 entries"]


def test_the_snapshot_of_a_recipe_holds_no_password_and_still_equals_itself(tmp_path):
    recipe = load_recipe("recipes/quickstart.yaml", ["data.dir=rows", "judge.kind=openai", "judge.model=m", f"judge.base_url=https://ana:{KEY}@host/v1"])
    path = tmp_path / "resolved.yaml"
    path.write_text(recipe.resolved_yaml())
    assert KEY not in path.read_text() and yaml.safe_load(path.read_text())["napmem"]["judge"]["base_url"] == "https://ana:***@host/v1"
    assert recipe.find_changes(path) == () and KEY not in recipe.summary_yaml()
