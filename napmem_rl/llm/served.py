"""A model that is served beside training, as those who ask it know it: `judge.kind: served`, `answerer.kind: served`."""

from __future__ import annotations

from dataclasses import dataclass

from napmem_rl.errors import ConfigError

SERVED = "served"  # the `kind` of a section that asks it


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedEndpoint:
    """Where the model of `reward.reward_model` answers while a job runs. Picklable."""

    urls: tuple[str, ...]  # one a replica, e.g. "http://10.0.0.3:41234/v1"; requests are spread over them
    model: str  # what requests call it
    name: str  # what caches on disk know it by: its addresses are others at each start

    @property
    def base_url(self) -> str:
        """For `OpenAIChat`: all addresses, separated by commas."""
        return ",".join(self.urls)


def require_served(served: ServedEndpoint | None, key: str) -> ServedEndpoint:
    """The endpoint. Raises ConfigError where nothing is served, as in an evaluation: `key` is the key that asks for it."""
    if served is None:
        problem = "is a model that runs beside training, and no training job runs here"
        raise ConfigError.of(key, problem, got=SERVED, fix="Give openai, with the base_url and model of an endpoint.")
    return served
