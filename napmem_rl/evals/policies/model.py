"""What a policy needs of a language model, wherever it runs: an endpoint, a server of ours, an engine of this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from napmem_rl.config.sections import AgentConfig
from napmem_rl.llm.base import Generate


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """Whose turns a `Generate` samples: `seed` fixes them where the engine can; `limits` are those of its turns and context.

    `schema` is a JSON Schema that every turn is bound to (guided decoding); None leaves the model free.
    """

    task_id: str
    seed: int
    limits: AgentConfig
    schema: Mapping[str, Any] | None = None


class PolicyModel(Protocol):
    """A model that policies of an evaluation speak through. `name` stands in tables, `facts` in what results are stamped with."""

    name: str
    facts: Mapping[str, Any]

    def count_tokens(self, text: str) -> int:
        """Tokens of a text as the model reads it; a guess, rather too high, where its tokenizer is not known."""
        ...

    def build_generate(self, episode: Episode) -> Generate:
        """A fresh context for one episode."""
        ...

    async def close(self) -> None:
        """Free connections or the engine."""
        ...
