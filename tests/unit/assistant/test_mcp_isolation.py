"""What a client of one user's server can get: that user's memory and nothing of another's, whatever it sends."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from two_users import ANA_WORDS, BEA_WORDS, build_ana, build_bea

pytest.importorskip("mcp", reason="the Model Context Protocol's SDK is not installed (extra mcp)")
from mcp import Client

from napmem_rl import cli
from napmem_rl.assistant.live_bank import LiveBank, resolve_bank
from napmem_rl.assistant.mcp_server import BankTools, build_server
from napmem_rl.errors import BankError
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.tools.memory_tools import ToolLimits
from napmem_rl.tools.spec import MEMORY_TOOLS

LIMITS = ToolLimits(top_k=8, max_result_tokens=2048, max_episode_tokens=2048)
NAMES = [tool.name for tool in MEMORY_TOOLS]
ARGUMENTS = ["query", "record_ids", "message_ids", "file_name", "path", "bank", "user_id", "bank_id"]


@pytest.fixture(scope="module")
def banks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("banks")
    build_ana(directory)
    build_bea(directory)
    return directory


def serve(path: Path, **options: Any) -> Any:
    return build_server(BankTools(LiveBank(path), limits=LIMITS, **options))


async def ask(client: Client, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
    result = await client.call_tool(name, arguments)
    return "\n".join(part.text for part in result.content), bool(result.is_error)


def hostile_texts(banks: Path) -> st.SearchStrategy[str]:
    """Ids, paths and names of the other user, and anything else."""
    bea = MemoryBank.open(banks / "bea")
    ids = [
        *(message.message_id for message in bea.messages),
        *(record.record_id for record in bea.records),
        *(track.track_id for track in bea.tracks),
        "profile",
    ]
    files = [str(path.relative_to(banks)) for path in (banks / "bea").rglob("*") if path.is_file()]
    paths = [
        form.format(path)
        for path in files
        for form in ("../{}", "/../{}", f"{banks}/{{}}", "..%2f{}", "....//{}", "profile.md/../../{}", "file://{}", "{}\0.md")
    ]
    words = [
        "bea",
        "../bea",
        "..",
        ".",
        "/",
        "~",
        "*",
        "%s",
        "${HOME}",
        "profile.md\0",
        "boat chess brother soup",
        "I prefer",
        "a nurse",
        "msg:b1]",
        "msg:*",
        "\u202e",
        "\ud800",
    ]
    own = [st.sampled_from(texts) for texts in (ids, paths, words, bea.file_names)]
    return st.one_of(*own, st.text(min_size=1, max_size=60), st.characters().map(lambda char: f"msg:b{char}1"))


def test_no_tool_takes_a_path_a_bank_or_a_user() -> None:
    taken = {name for tool in MEMORY_TOOLS for name in tool.parameters["properties"]}
    assert taken == {"query", "record_ids", "message_ids", "file_name"}
    assert all(tool.parameters["additionalProperties"] is False for tool in MEMORY_TOOLS)


def test_nothing_that_a_client_sends_brings_another_users_words(banks: Path) -> None:
    """Four hundred calls: fitting ones with the other user's ids, files and paths, and any others."""
    texts = hostile_texts(banks)
    value = st.one_of(texts, st.lists(texts, max_size=5), st.none(), st.integers(), st.dictionaries(texts, texts, max_size=2))
    fitting = st.one_of(
        st.tuples(st.sampled_from(["search_records", "search_conversation"]), st.fixed_dictionaries({"query": texts})),
        st.tuples(st.just("get_records"), st.fixed_dictionaries({"record_ids": st.lists(texts, min_size=1, max_size=5)})),
        st.tuples(st.just("get_conversation"), st.fixed_dictionaries({"message_ids": st.lists(texts, min_size=1, max_size=5)})),
        st.tuples(st.just("read_file"), st.fixed_dictionaries({"file_name": texts})),
    )
    any_call = st.tuples(st.one_of(st.sampled_from(NAMES), texts), st.dictionaries(st.sampled_from(ARGUMENTS), value, max_size=3))
    tools = BankTools(LiveBank(banks / "ana"), limits=LIMITS)
    seen: list[str] = []

    @settings(max_examples=400, deadline=None)
    @given(call=st.one_of(fitting, any_call))
    def check(call: tuple[str, dict[str, Any]]) -> None:
        text, _ = asyncio.run(tools.call(*call))
        seen.append(text)
        sent = repr(call).lower()  # an unknown name is said back to the one who sent it
        assert not any(word.lower() in text.lower() for word in BEA_WORDS if word.lower() not in sent), (call, text)

    check()
    assert any(word in text for text in seen for word in ANA_WORDS)  # what was called did answer


async def test_the_same_holds_over_the_protocol_in_both_directions(banks: Path) -> None:
    for mine, theirs, words in (("ana", "bea", BEA_WORDS), ("bea", "ana", ANA_WORDS)):
        other = MemoryBank.open(banks / theirs)
        async with Client(serve(banks / mine)) as client:
            for name in other.file_names:
                text, _ = await ask(client, "read_file", {"file_name": f"../{theirs}/{name}"})
                assert not any(word in text for word in words)
            text, _ = await ask(client, "get_conversation", {"message_ids": [message.message_id for message in other.messages]})
            assert "Unknown message id" in text and not any(word in text for word in words)
            text, _ = await ask(client, "search_conversation", {"query": " ".join(message.text for message in other.messages)})
            assert not any(word in text for word in words)


async def test_a_lone_surrogate_in_a_call_is_answered_and_the_connection_lives(banks: Path) -> None:
    tools = BankTools(LiveBank(banks / "ana"), limits=LIMITS)
    text, is_error = await tools.call("read_file", {"file_name": "\ud800"})
    assert is_error and "Unicode" in text
    async with Client(serve(banks / "ana")) as client:
        assert not (await ask(client, "read_file", {"file_name": "profile.md"}))[1]


def test_a_link_inside_a_bank_is_refused_and_a_link_to_a_bank_is_followed_once(banks: Path, tmp_path: Path) -> None:
    shutil.copytree(banks / "ana", tmp_path / "ana")
    (tmp_path / "link").symlink_to(tmp_path / "ana")
    assert resolve_bank(tmp_path / "link") == tmp_path / "ana"
    (tmp_path / "ana" / "messages.jsonl").unlink()
    (tmp_path / "ana" / "messages.jsonl").symlink_to(banks / "bea" / "messages.jsonl")
    with pytest.raises(BankError, match="symbolic link"):
        resolve_bank(tmp_path / "ana")
    with pytest.raises(BankError, match="no memory bank"):
        resolve_bank(tmp_path)
    with pytest.raises(BankError, match="cannot be found"):
        resolve_bank(tmp_path / "nobody")


async def test_a_link_that_is_turned_to_another_bank_while_it_is_served_changes_nothing(banks: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(banks / "ana")
    async with Client(serve(tmp_path / "link")) as client:
        (tmp_path / "link").unlink()
        (tmp_path / "link").symlink_to(banks / "bea")
        text, _ = await ask(client, "search_conversation", {"query": "boat tea chess"})
    assert ANA_WORDS[1] in text and not any(word in text for word in BEA_WORDS)


async def test_a_bank_that_becomes_another_users_is_served_no_more(banks: Path, tmp_path: Path) -> None:
    shutil.copytree(banks / "ana", tmp_path / "bank")
    async with Client(serve(tmp_path / "bank")) as client:
        assert ANA_WORDS[1] in (await ask(client, "search_conversation", {"query": "tea"}))[0]
        shutil.rmtree(tmp_path / "bank")
        text, is_error = await ask(client, "search_conversation", {"query": "tea"})
        assert is_error and "cannot be used" in text and str(tmp_path) not in text
        shutil.copytree(banks / "bea", tmp_path / "bank")
        text, is_error = await ask(client, "search_conversation", {"query": "soup boat"})
        assert is_error and not any(word in text for word in BEA_WORDS)


async def test_a_new_version_is_served_from_the_next_call_on(tmp_path: Path) -> None:
    build_ana(tmp_path)
    async with Client(serve(tmp_path / "ana", allow_writes=True)) as client:
        text, is_error = await ask(client, "remember", {"text": "My cat Pumpernickel sleeps in the piano."})
        assert not is_error and text.startswith("Remembered as msg:mcp-")
        text, _ = await ask(client, "search_conversation", {"query": "cat piano"})
        assert "Pumpernickel" in text
    bank = MemoryBank.open(tmp_path / "ana")
    assert bank.messages[-1].speaker == "Ana" and bank.messages[-1].role == "user"


async def test_nothing_is_written_unless_it_was_allowed(banks: Path) -> None:
    before = {path: path.read_bytes() for path in (banks / "ana").rglob("*") if path.is_file() and "index" not in path.parts}
    async with Client(serve(banks / "ana")) as client:
        listed = (await client.list_tools()).tools
        assert [tool.name for tool in listed] == NAMES
        assert all(tool.annotations.read_only_hint and not tool.annotations.open_world_hint for tool in listed)
        text, is_error = await ask(client, "remember", {"text": "I live on the moon."})
        assert is_error and "Unknown tool" in text
        for name, arguments in (("search_records", {"query": "tea"}), ("read_file", {"file_name": "profile.md"})):
            await ask(client, name, arguments)
    after = {path: path.read_bytes() for path in (banks / "ana").rglob("*") if path.is_file() and "index" not in path.parts}
    assert before == after


async def test_the_tools_say_which_files_there_are_and_answer_as_a_policy_would_read_it(banks: Path) -> None:
    async with Client(serve(banks / "ana")) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "profile.md" in tools["read_file"].description
        assert json.loads(json.dumps(tools["get_records"].input_schema))["properties"]["record_ids"]["maxItems"] == 20
        text, _ = await ask(client, "get_conversation", {"message_ids": ["msg:a2", "msg:none"]})
        assert text.splitlines() == [f"msg:a2 2024-03-02 Ana: I prefer {ANA_WORDS[1]} tea to coffee.", "Unknown message id msg:none."]


def test_a_directory_with_many_files_is_looked_through_without_following_links(banks: Path, tmp_path: Path) -> None:
    shutil.copytree(banks / "ana", tmp_path / "ana")
    os.symlink(banks, tmp_path / "ana" / "files" / "others", target_is_directory=True)
    with pytest.raises(BankError, match="others"):
        resolve_bank(tmp_path / "ana")


def test_the_settings_that_the_documentation_gives_start_this_server() -> None:
    page = (Path(__file__).parents[3] / "docs" / "memory.md").read_text(encoding="utf-8")
    settings_text = page.split("```json\n")[1].split("```")[0]
    server = json.loads(settings_text)["mcpServers"]["memory"]
    parsed = cli._build_parser().parse_args(server["args"])
    assert server["command"] == "napmem" and parsed.run.__name__ == "run_serve_mcp" and not parsed.allow_writes and parsed.http is None
