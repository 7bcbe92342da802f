"""`napmem serve-mcp` as assistants start it: a process of its own, talked to by the protocol's own client."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from two_users import ANA_WORDS, BEA_WORDS, build_ana, build_bea

pytest.importorskip("mcp", reason="the Model Context Protocol's SDK is not installed (extra mcp)")
import httpx2
from mcp import Client, ClientSession, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

COMMAND = [sys.executable, "-m", "napmem_rl.cli", "serve-mcp"]


@pytest.fixture(scope="module")
def banks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("banks")
    build_ana(directory)
    build_bea(directory)
    return directory


def over_stdio(bank: Path, *options: str) -> StdioServerParameters:
    return StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], str(bank), *options], cwd=str(Path(__file__).parents[2]))


async def test_a_client_looks_up_a_memory_over_stdio(banks: Path) -> None:
    async with Client(over_stdio(banks / "ana")) as client:
        assert client.server_info is not None and client.server_info.name == "napmem" and "data about the user" in (client.instructions or "")
        found = await client.call_tool("search_records", {"query": "tea"})
        assert not found.is_error and ANA_WORDS[1] in found.content[0].text
        source = await client.call_tool("get_conversation", {"message_ids": ["msg:a2"]})
        assert source.content[0].text == f"msg:a2 2024-03-02 Ana: I prefer {ANA_WORDS[1]} tea to coffee."
        refused = await client.call_tool("read_file", {"file_name": "../bea/messages.jsonl", "path": "/"})
        assert refused.is_error and "unknown argument path" in refused.content[0].text
        refused = await client.call_tool("read_file", {"file_name": f"{banks}/bea/messages.jsonl"})
        assert "Unknown file" in refused.content[0].text and not any(word in refused.content[0].text for word in BEA_WORDS)


async def test_a_client_of_the_older_handshake_is_served_too(banks: Path) -> None:
    async with stdio_client(over_stdio(banks / "bea")) as (reading, writing), ClientSession(reading, writing) as session:
        await session.initialize()
        assert len((await session.list_tools()).tools) == 5
        found = await session.call_tool("search_conversation", {"query": "soup"})
        assert BEA_WORDS[1] in found.content[0].text


def test_what_is_no_bank_ends_the_command_with_one_clear_line(tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, str(tmp_path)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 1 and done.stdout == "" and "is no memory bank" in done.stderr


@contextmanager
def serve_http(bank: Path, token: str) -> Iterator[str]:
    """A server of its own on a free port; it is ended with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([*COMMAND, str(bank), "--http", str(port)], env=os.environ | {"NAPMEM_MCP_TOKEN": token}, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(30)


async def test_over_http_only_a_client_with_the_token_is_answered(banks: Path) -> None:
    with serve_http(banks / "ana", "a-token-of-the-test") as url:
        async with (
            httpx2.AsyncClient(headers={"Authorization": "Bearer a-token-of-the-test"}) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            found = await client.call_tool("search_conversation", {"query": "tea"})
            assert ANA_WORDS[1] in found.content[0].text
        for headers in ({}, {"Authorization": "Bearer another"}):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(urllib.request.Request(url, data=b"{}", headers={"Content-Type": "application/json", **headers}))
            assert refused.value.code == 401
        foreign = {"Content-Type": "application/json", "Authorization": "Bearer a-token-of-the-test", "Host": "evil.example"}
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(url, data=b"{}", headers=foreign))
        assert refused.value.code == 421
