"""The settings of a memory writer as a command line gives them, and what is made of them: a writer for each bank, over one shared client.

A setting that would do nothing (a model for the writer `rules`, a price without tokens to pay) is refused.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from napmem_rl.errors import ConfigError
from napmem_rl.llm.limits import Budget, Prices, RequestLimits
from napmem_rl.llm.openai_client import SCHEMA_MODES, OpenAIChat
from napmem_rl.memory.writers.llm import LLMWriter, LLMWriterConfig
from napmem_rl.memory.writers.llm_prompts import PROMPT_VERSION

WRITER_NAMES = ("rules", "llm")
_DEFAULTS = LLMWriterConfig()


@dataclass(frozen=True, kw_only=True, slots=True)
class LLMSettings:
    """A language model that writes memories. None leaves a limit out, or a choice to the endpoint."""

    model: str | None = None
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    concurrency: int = 8  # requests in flight, and banks built at a time
    rpm: float | None = None
    tpm: float | None = None
    max_cost: float | None = None
    max_total_tokens: int | None = None
    price_in: float = 0.0  # of a million prompt tokens
    price_out: float = 0.0  # of a million completion tokens
    cache_dir: str | None = None
    structured: str = "json_schema"
    reasoning: bool = False
    max_reply_tokens: int = _DEFAULTS.max_reply_tokens
    max_input_chars: int = _DEFAULTS.max_input_chars
    timeout_s: float = 120.0
    max_retries: int = 4


_HELP = {
    "model": "name of the model as the endpoint knows it (needed for --writer llm)",
    "base_url": "an OpenAI-compatible endpoint, e.g. http://localhost:8000/v1 (default: the openai package's)",
    "api_key_env": 'NAME of the environment variable that holds the key, "" for a server without keys (default: OPENAI_API_KEY)',
    "concurrency": "requests in flight, and banks built at a time (default: 8)",
    "rpm": "requests a minute at most",
    "tpm": "tokens a minute at most, prompts and replies",
    "max_cost": "money to spend at most in this run; needs prices",
    "max_total_tokens": "tokens to use at most in this run",
    "price_in": "price of a million prompt tokens",
    "price_out": "price of a million completion tokens",
    "cache_dir": "keep replies here: what was asked once is never paid for again",
    "structured": f"how replies are held to their form: {', '.join(SCHEMA_MODES)} (default: json_schema)",
    "reasoning": "the model takes neither a temperature nor max_tokens, as OpenAI's reasoning models",
    "max_reply_tokens": f"longest reply, thinking included (default: {_DEFAULTS.max_reply_tokens})",
    "max_input_chars": f"characters of messages in one request (default: {_DEFAULTS.max_input_chars})",
    "timeout_s": "seconds for one request (default: 120)",
    "max_retries": "further tries of a request that failed in passing (default: 4)",
}
_INTEGERS = ("concurrency", "max_total_tokens", "max_reply_tokens", "max_input_chars", "max_retries")
_NUMBERS = ("rpm", "tpm", "max_cost", "price_in", "price_out", "timeout_s")
_TYPES: dict[str, type] = dict.fromkeys(_INTEGERS, int) | dict.fromkeys(_NUMBERS, float)


def add_writer_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --writer and the settings of a language model to a command."""
    parser.add_argument("--writer", choices=WRITER_NAMES, default="rules", help="what writes records, topics and profile (default: rules)")
    group = parser.add_argument_group("language model (--writer llm)")
    for field in fields(LLMSettings):
        how: dict[str, Any] = {"action": "store_true", "default": None} if field.name == "reasoning" else {"type": _TYPES.get(field.name, str)}
        group.add_argument(f"--{field.name.replace('_', '-')}", help=_HELP[field.name], **how)


def read_writer_arguments(arguments: argparse.Namespace) -> LLMSettings | None:
    """The settings that a command line gives; None for the writer `rules`.

    Raises:
        ConfigError: settings that do not fit together, or would do nothing.
    """
    given = {field.name: value for field in fields(LLMSettings) if (value := getattr(arguments, field.name)) is not None}
    if arguments.writer == "rules":
        if given:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise ConfigError.of(names, "would do nothing: the writer rules asks no language model", fix="Give --writer llm, or leave it out.")
        return None
    settings = replace(LLMSettings(), **given)
    if not settings.model:
        raise ConfigError.of("--writer llm", "no model is named", fix="Give --model, and --base-url unless it is OpenAI's own.")
    for name in ("concurrency", "max_reply_tokens", "max_input_chars", "timeout_s"):
        if getattr(settings, name) <= 0:
            raise ConfigError.of(f"--{name.replace('_', '-')}", "is not positive", got=getattr(settings, name))
    if settings.max_retries < 0:
        raise ConfigError.of("--max-retries", "is negative", got=settings.max_retries)
    return settings


def build_client(settings: LLMSettings) -> OpenAIChat:
    """The client that all banks share: its limits, budget and cache are theirs together.

    Raises:
        ConfigError: a key that is missing, or limits that cannot work.
    """
    budget = Budget(
        prices=Prices(prompt=settings.price_in, completion=settings.price_out), max_cost=settings.max_cost, max_tokens=settings.max_total_tokens
    )
    return OpenAIChat(
        model=settings.model,
        base_url=settings.base_url,
        api_key_env=settings.api_key_env,
        timeout_s=settings.timeout_s,
        max_retries=settings.max_retries,
        max_concurrency=settings.concurrency,
        cache_dir=settings.cache_dir,
        cache_tag=PROMPT_VERSION,
        limits=RequestLimits(requests_per_minute=settings.rpm, tokens_per_minute=settings.tpm),
        budget=budget,
        schema_mode=settings.structured,
        reasoning=settings.reasoning,
    )


def build_llm_writer(client: OpenAIChat, settings: LLMSettings) -> LLMWriter:
    """A writer for one bank, which counts for itself."""
    chars = settings.max_input_chars
    config = LLMWriterConfig(max_reply_tokens=settings.max_reply_tokens, max_input_chars=chars, max_message_chars=min(chars, _DEFAULTS.max_message_chars))
    return LLMWriter(client.fork(), config)


async def check_client(client: OpenAIChat, settings: LLMSettings) -> None:
    """Ask for one short reply, unless there is a cache that may hold all that is needed.

    Raises:
        ConfigError: the endpoint, the key or the model cannot be used.
    """
    if settings.cache_dir is None or not any(Path(settings.cache_dir).glob("*")):
        await client.check_endpoint()
