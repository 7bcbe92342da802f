"""The settings of a memory writer on a command line: what they become, and which are refused."""

from __future__ import annotations

import argparse
from dataclasses import fields

import pytest

from napmem_rl.errors import ConfigError
from napmem_rl.memory.writer_settings import LLMSettings, add_writer_arguments, build_client, build_llm_writer, read_writer_arguments


def read(*arguments: str) -> LLMSettings | None:
    parser = argparse.ArgumentParser()
    add_writer_arguments(parser)
    return read_writer_arguments(parser.parse_args(arguments))


def test_every_setting_can_be_given_and_those_that_are_not_keep_their_defaults() -> None:
    assert read() is None and read("--writer", "rules") is None
    assert read("--writer", "llm", "--model", "m") == LLMSettings(model="m")
    given = {"model": "m", "base_url": "http://x/v1", "api_key_env": "KEY", "concurrency": 2, "rpm": 3.0, "tpm": 4.0, "max_cost": 5.0, "max_total_tokens": 6}
    given |= {"price_in": 7.0, "price_out": 8.0, "cache_dir": "c", "structured": "off", "max_reply_tokens": 9, "max_input_chars": 10, "timeout_s": 11.0}
    given |= {"max_retries": 0}
    assert set(given) | {"reasoning"} == {field.name for field in fields(LLMSettings)}
    arguments = [text for name, value in given.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    assert read("--writer", "llm", *arguments, "--reasoning") == LLMSettings(**given, reasoning=True)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--model", "m", "--rpm", "3"], "--model, --rpm: would do nothing: the writer rules asks no language model"),
        (["--writer", "llm"], "no model is named"),
        (["--writer", "llm", "--model", "m", "--concurrency", "0"], "--concurrency: is not positive; got 0"),
        (["--writer", "llm", "--model", "m", "--max-reply-tokens", "-1"], "--max-reply-tokens: is not positive"),
        (["--writer", "llm", "--model", "m", "--max-retries", "-1"], "--max-retries: is negative"),
    ],
)
def test_settings_that_do_nothing_or_cannot_work_are_refused(arguments: list[str], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(*arguments)
    assert problem in caught.value.message


def test_limits_of_the_client_are_checked_when_it_is_built() -> None:
    for settings, problem in (
        (LLMSettings(model="m", api_key_env="", max_cost=1.0), "no price is given"),
        (LLMSettings(model="m", api_key_env="", rpm=0.0), "requests_per_minute: is too small"),
        (LLMSettings(model="m", api_key_env="", structured="xml"), "schema_mode: is unknown"),
        (LLMSettings(model="m", api_key_env="ABSENT_KEY_OF_A_TEST"), "ABSENT_KEY_OF_A_TEST is not set"),
    ):
        with pytest.raises(ConfigError) as caught:
            build_client(settings)
        assert problem in caught.value.message


def test_writers_share_a_client_but_count_for_themselves() -> None:
    settings = LLMSettings(model="m", api_key_env="", max_total_tokens=5)
    client = build_client(settings)
    first, second = build_llm_writer(client, settings), build_llm_writer(client, settings)
    assert first.name == "llm:m" and first.client.budget is second.client.budget is client.budget
    assert first.client.usage is not second.client.usage and first.counts is not second.counts
