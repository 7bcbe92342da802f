"""Connections to one endpoint, in several small pools.

At every request httpx looks at each idle connection of its pool; with 64 of them that costs as much time as the request itself. So a client of the openai
package, which holds one pool, serves a few requests at a time, and there are as many clients as the requests in flight need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openai import AsyncOpenAI

POOL_SIZE = 16  # requests in flight of one client


class Connections:
    """Clients made as they are needed; the least busy one is taken. For one event loop."""

    def __init__(self, builders: Sequence[Callable[[], AsyncOpenAI]]) -> None:
        """Args:
            builders: one for each address of the endpoint; requests are spread over them. Each builds its first client at once, so that what is wrong with
                the settings shows here.
        """
        self._builders = list(builders)
        self._clients, self._in_flight = [build() for build in self._builders], [0] * len(self._builders)

    def __len__(self) -> int:
        return len(self._clients)

    @contextmanager
    def take(self) -> Iterator[AsyncOpenAI]:
        """A client for one request."""
        place = self._in_flight.index(min(self._in_flight))
        if self._in_flight[place] >= POOL_SIZE:
            place = len(self._clients)
            self._clients.append(self._builders[place % len(self._builders)]())
            self._in_flight.append(0)
        self._in_flight[place] += 1
        try:
            yield self._clients[place]
        finally:
            self._in_flight[place] -= 1

    async def close(self) -> None:
        """Close all of them."""
        for client in self._clients:
            await client.close()
