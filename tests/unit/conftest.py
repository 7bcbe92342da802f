"""What unit tests of several folders take: a chat endpoint that says what a test wants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from judge_endpoint import serve_judge


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Starts endpoints out of a function from messages to a reply; gives their base URLs, and stops them after the test."""
    stops: list[Callable[[], None]] = []

    def start(reply: Callable[[list[dict[str, Any]]], str], **keys: Any) -> str:
        url, stop = serve_judge(reply, **keys)
        stops.append(stop)
        return url

    yield start
    for stop in stops:
        stop()
