"""The tools' schemas say what a call must look like, and problems are told in words."""

from __future__ import annotations

import pickle

import pytest
from jsonschema import Draft202012Validator

from napmem_rl.tools.spec import MEMORY_TOOLS, ToolSpec, check_arguments, clean_arguments, find_tool

TOOLS = {tool.name: tool for tool in MEMORY_TOOLS}


def test_the_five_tools_take_exactly_one_argument_each() -> None:
    arguments = {name: list(tool.parameters["properties"]) for name, tool in TOOLS.items()}
    assert arguments == {
        "search_records": ["query"],
        "search_conversation": ["query"],
        "get_records": ["record_ids"],
        "get_conversation": ["message_ids"],
        "read_file": ["file_name"],
    }
    for tool in MEMORY_TOOLS:
        Draft202012Validator.check_schema(tool.parameters)
        assert tool.parameters["additionalProperties"] is False and tool.parameters["required"] == list(tool.parameters["properties"])


@pytest.mark.parametrize(
    "name, arguments, problem",
    [
        ("search_records", {"query": "Oslo"}, None),
        ("search_records", {}, "search_records: argument query is missing; expected query"),
        ("search_records", {"query": "Oslo", "k": 3}, "search_records: unknown argument k; expected query"),
        ("search_records", {"query": 3}, "search_records: argument query must be of type string, got 3"),
        ("search_records", {"query": None}, "search_records: argument query must be of type string, got None"),
        ("search_records", {"query": ""}, "search_records: argument query must not be empty"),
        ("search_records", {"query": "\ud800"}, "search_records: the arguments hold text that is not valid Unicode"),
        ("get_records", {"record_ids": ["rec:1"] * 20}, None),
        ("get_records", {"record_ids": ["rec:1"] * 21}, "get_records: argument record_ids holds 21 items; at most 20 are allowed"),
        ("get_records", {"record_ids": []}, "get_records: argument record_ids must not be empty"),
        ("get_records", {"record_ids": "rec:1"}, "get_records: argument record_ids must be of type array, got 'rec:1'"),
        ("get_records", {"record_ids": ["rec:1", True]}, "get_records: argument record_ids[1] must be of type string, got True"),
        ("get_conversation", {"message_ids": ["\udfff"]}, "get_conversation: the arguments hold text that is not valid Unicode"),
    ],
)
def test_arguments_are_checked_and_problems_named(name: str, arguments: dict, problem: str | None) -> None:
    assert check_arguments(TOOLS[name], arguments) == problem


def test_long_values_are_shortened_in_problems() -> None:
    problem = check_arguments(TOOLS["search_records"], {"query": ["x" * 10_000]})
    assert problem is not None and len(problem) < 200


def test_whitespace_alone_is_empty_once_cleaned() -> None:
    cleaned = clean_arguments({"query": " \n ", "ids": [" a ", 3]})
    assert cleaned == {"query": "", "ids": ["a", 3]}


def test_the_openai_form_is_a_copy() -> None:
    form = TOOLS["read_file"].as_openai()
    form["function"]["parameters"]["properties"].clear()
    assert form["type"] == "function" and form["function"]["name"] == "read_file"
    assert list(TOOLS["read_file"].parameters["properties"]) == ["file_name"]


def test_tools_are_found_by_exact_name_and_survive_pickling() -> None:
    assert find_tool("read_file", MEMORY_TOOLS) is TOOLS["read_file"]
    assert find_tool("read_File", MEMORY_TOOLS) is None
    again: ToolSpec = pickle.loads(pickle.dumps(TOOLS["read_file"]))
    assert again == TOOLS["read_file"] and hash(again) == hash(TOOLS["read_file"])
