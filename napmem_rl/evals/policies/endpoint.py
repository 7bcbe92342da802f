"""A model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

from napmem_rl.config.evaluation_sections import PolicyConfig
from napmem_rl.evals.policies.model import Episode
from napmem_rl.llm.base import Generate
from napmem_rl.llm.limits import BYTES_OF_TOKEN
from napmem_rl.llm.openai_client import ChatGenerate, OpenAIChat

_MAX_IN_FLIGHT = 4096  # the evaluation decides how many attempts run; the client only passes them on


class EndpointModel:
    """A `PolicyModel` in text. Its tokenizer is not known, so that lengths are guessed from bytes, rather too high."""

    def __init__(self, policy: PolicyConfig) -> None:
        """Raises ConfigError where the endpoint's keys cannot be used, see `OpenAIChat`."""
        self._is_sampled = policy.temperature > 0
        self._client = OpenAIChat(
            model=policy.model,
            base_url=policy.base_url,
            api_key_env=policy.api_key_env,
            timeout_s=policy.timeout_s,
            max_retries=policy.max_retries,
            max_concurrency=_MAX_IN_FLIGHT,
            temperature=policy.temperature,
            top_p=policy.top_p if policy.top_p < 1 else None,
            cache_dir=policy.cache_dir,
        )
        self.name = self._client.name
        self.facts = {"endpoint": self._client.endpoint, "token_counts": "guessed"}

    def count_tokens(self, text: str) -> int:
        """A third of the bytes."""
        return count_tokens_roughly(text)

    def build_generate(self, episode: Episode) -> Generate:
        """A policy with native tool calls; sampled requests carry the seed, which endpoints are free to follow, a schema is asked for as `response_format`."""
        client = self._client.fork(seed=episode.seed if self._is_sampled else None)
        limits = episode.limits
        return ChatGenerate(client, tool_format=limits.tool_format, max_turn_tokens=limits.max_turn_tokens, schema=episode.schema)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def count_tokens_roughly(text: str) -> int:
    """Tokens of a text where no tokenizer is known: a third of its bytes, rather too many; English has four bytes a token."""
    return 1 + len(text.encode("utf-8", "replace")) // BYTES_OF_TOKEN
