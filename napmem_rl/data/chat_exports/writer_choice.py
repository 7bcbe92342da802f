"""What writes the upper levels of an imported bank: rules, nothing, or a language model that a file describes."""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml

from napmem_rl.errors import ConfigError
from napmem_rl.memory.builder import load_writer
from napmem_rl.memory.writer_settings import LLMSettings, build_client, build_llm_writer, check_client
from napmem_rl.memory.writers.base import MemoryWriter

RULES, NONE = "rules", "none"
_KINDS: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)}


@dataclass(frozen=True, kw_only=True, slots=True)
class WriterChoice:
    """`rules`, `none`, or a language model's settings."""

    name: str
    settings: LLMSettings | None = None

    @property
    def draws(self) -> bool:
        """Whether records are drawn at all."""
        return self.name != NONE

    @asynccontextmanager
    async def open(self) -> AsyncIterator[MemoryWriter]:
        """The writer; one that asks a language model is checked first. Raises ConfigError where that cannot be used."""
        if self.settings is None:
            yield load_writer("", RULES)
            return
        client = build_client(self.settings)
        try:
            await check_client(client, self.settings)
            yield build_llm_writer(client, self.settings)
        finally:
            await client.close()


def read_writer_choice(text: str) -> WriterChoice:
    """A choice as a command line has it: ``rules``, ``none``, or a YAML file with settings of `writer_settings.LLMSettings`, e.g.::

        model: qwen3-4b
        base_url: http://localhost:8000/v1
        api_key_env: ""

    Raises:
        ConfigError: no such file, or an unknown or unfitting setting.
    """
    if text in (RULES, NONE):
        return WriterChoice(name=text)
    path = Path(text)
    if not path.is_file():
        raise ConfigError.of("--writer", "is unknown", got=text, expected=f"{RULES}, {NONE}, or a YAML file that describes a language model")
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError.of(f"writer {path}", f"cannot be read as YAML ({type(error).__name__})") from error
    if not isinstance(given, dict):
        raise ConfigError.of(f"writer {path}", "is no mapping of settings", expected="model: NAME, base_url: URL, …")
    _check(path, given)
    return WriterChoice(name="llm", settings=replace(LLMSettings(), **given))


def _check(path: Path, given: dict[Any, Any]) -> None:
    known = {field.name: str(field.type).removesuffix(" | None") for field in fields(LLMSettings)}
    for name, value in given.items():
        what = f"writer {path}, setting {name}"
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            raise ConfigError.of(what, "is unknown", expected=f"{near[0]}?" if near else f"one of {', '.join(known)}")
        kinds = _KINDS[known[name]]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ConfigError.of(what, "is of another type", got=value, expected=known[name])
        if name in ("concurrency", "max_reply_tokens", "max_input_chars", "timeout_s") and value <= 0:
            raise ConfigError.of(what, "is not positive", got=value)
    if not given.get("model"):
        raise ConfigError.of(f"writer {path}", "names no model", expected="model: NAME")
