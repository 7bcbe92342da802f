"""Pools of connections: few requests in each, no more pools than needed, all closed."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from napmem_rl.llm.connections import POOL_SIZE, Connections


class Client:
    """Counts how often it is closed; stands for the package's client, which would open real connections."""

    def __init__(self) -> None:
        self.num_closed = 0

    async def close(self) -> None:
        self.num_closed += 1


def test_requests_are_spread_over_as_few_clients_as_hold_them() -> None:
    connections = Connections([Client])
    with ExitStack() as stack:
        taken = [stack.enter_context(connections.take()) for _ in range(2 * POOL_SIZE + 1)]
        assert len(connections) == 3
        assert sorted(taken.count(client) for client in set(taken)) == [1, POOL_SIZE, POOL_SIZE]
    with connections.take() as client:
        assert client in taken and len(connections) == 3


def test_a_failed_request_gives_its_place_back_and_all_clients_are_closed() -> None:
    made: list[Client] = []
    connections = Connections([lambda: made.append(Client()) or made[-1]])
    for _ in range(POOL_SIZE + 1):
        try:
            with connections.take():
                raise RuntimeError
        except RuntimeError:
            pass
    assert len(connections) == 1
    asyncio.run(connections.close())
    assert [client.num_closed for client in made] == [1]


def test_requests_are_spread_over_all_addresses_also_where_more_clients_are_needed() -> None:
    made: list[str] = []

    def build(address: str) -> Client:
        made.append(address)
        return Client()

    connections = Connections([lambda: build("a"), lambda: build("b")])
    with ExitStack() as stack:
        taken = [stack.enter_context(connections.take()) for _ in range(2 * POOL_SIZE + 2)]
        assert made[:2] == ["a", "b"] and len({id(client) for client in taken[:2]}) == 2
        assert made[2:] == ["a"] and len(connections) == 3
