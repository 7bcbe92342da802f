"""One assistant turn, read strictly: what is not exactly right is an error in words, and nothing raises."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from napmem_rl.errors import ConfigError, DataError
from napmem_rl.schema import ToolCall
from napmem_rl.tools.parse import ParsedTurn, parse_turn, render_call
from napmem_rl.tools.spec import MEMORY_TOOLS

HERMES, CODER = "hermes", "qwen3_coder"
JOB = ToolCall(name="search_records", arguments={"query": "Mia job"})
JOB_HERMES = '<tool_call>\n{"name": "search_records", "arguments": {"query": "Mia job"}}\n</tool_call>'
JOB_CODER = "<tool_call>\n<function=search_records>\n<parameter=query>\nMia job\n</parameter>\n</function>\n</tool_call>"
IDS = ToolCall(name="get_records", arguments={"record_ids": ["rec:1", "rec:2"]})
IDS_CODER = '<tool_call>\n<function=get_records>\n<parameter=record_ids>\n["rec:1", "rec:2"]\n</parameter>\n</function>\n</tool_call>'
TAGS = [
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "<answer>",
    "</answer>",
    "<function=search_records>",
    "</function>",
    "<parameter=query>",
    "</parameter>",
]
PIECES = [*TAGS, '{"name": "search_records", "arguments": {"query": "x"}}', '"', "\\", "\n", " ", "{", "[", "]", "rec:1", "\ud800", "\x00", "é", "x"]
turn_texts = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)), max_size=14).map("".join)
values = st.lists(st.one_of(st.sampled_from([*TAGS, '"', "'", "\\", "\n", "&lt;", "日本", "😀", "{", "]"]), st.text(max_size=5)), min_size=1, max_size=6)
strings = values.map(lambda parts: "".join(parts).strip()).filter(lambda text: text and text.isprintable() or "\n" in text)


def parse(text: str, tool_format: str = HERMES) -> ParsedTurn:
    return parse_turn(text, tool_format=tool_format, tools=MEMORY_TOOLS)


@pytest.mark.parametrize("text, tool_format", [(JOB_HERMES, HERMES), (JOB_CODER, CODER)])
def test_a_call_is_read_with_the_text_around_it(text: str, tool_format: str) -> None:
    turn = parse(f"Let me look. {text}\n", tool_format)
    assert turn == ParsedTurn(thinking=None, content="Let me look.", calls=(JOB,), answer=None, error=None)


def test_rendering_is_what_chat_templates_write() -> None:
    assert render_call(JOB, HERMES) == JOB_HERMES
    assert render_call(JOB, CODER) == JOB_CODER
    assert render_call(IDS, CODER) == IDS_CODER


def test_several_calls_keep_their_order() -> None:
    turn = parse(f"{JOB_CODER}\n{IDS_CODER}", CODER)
    assert turn.calls == (JOB, IDS) and turn.error is None


def test_an_answer_is_stripped_and_may_have_text_around_it() -> None:
    assert parse("Found it. <answer> Oslo\n</answer>") == ParsedTurn(thinking=None, content="Found it.", calls=(), answer="Oslo", error=None)


def test_strings_of_arguments_lose_outer_whitespace() -> None:
    assert parse('<tool_call>\n{"name": "search_records", "arguments": {"query": " Mia job "}}\n</tool_call>').calls == (JOB,)
    assert parse('<tool_call> {"name": "get_records", "arguments": {"record_ids": [" rec:1", "rec:2 "]}} </tool_call>').calls == (IDS,)


def test_calls_and_answers_inside_the_thinking_do_not_count() -> None:
    turn = parse(f"<think>\n{JOB_HERMES} <answer>Rome</answer>\n</think>\n<answer>Oslo</answer>")
    assert (turn.answer, turn.calls, turn.error) == ("Oslo", (), None)
    assert turn.thinking is not None and turn.thinking.endswith("<answer>Rome</answer>")


def test_thinking_that_the_template_opened_is_cut_off() -> None:
    turn = parse(f"I should look.\n</think>\n{JOB_HERMES}")
    assert (turn.thinking, turn.calls) == ("I should look.", (JOB,))


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "neither a tool call nor an <answer>"),
        ("Oslo", "neither a tool call nor an <answer>"),
        ("<think>Oslo", "not closed"),
        (f"<think>a</think><think>b</think>{JOB_HERMES}", "more than one thinking block"),
        (f"{JOB_HERMES}<think>a</think>", "text before the thinking block"),
        ("<answer>Oslo", "<answer> is not closed"),
        ("<answer> </answer>", "<answer> is empty"),
        ("<answer>a</answer><answer>b</answer>", "<answer> after the final answer"),
        ("<answer>a<answer>b</answer>", "<answer> inside <answer>"),
        (f"<answer>a {JOB_HERMES}</answer>", "<tool_call> inside <answer>"),
        (f"<answer>a</answer>{JOB_HERMES}", "<tool_call> after the final answer"),
        (f"{JOB_HERMES}<answer>a</answer>", "tool call and final answer in one turn"),
        ("a</answer>", "stray </answer>"),
        (f"{JOB_HERMES}</tool_call>", "stray </tool_call>"),
        ("<tool_call>", "no valid JSON"),
        (JOB_HERMES.removesuffix("</tool_call>"), "not closed by </tool_call>"),
        (f"<tool_call>{JOB_HERMES}", "no valid JSON"),
        ("<tool_call>not json</tool_call>", "no valid JSON"),
        ("<tool_call>{'name': 'search_records'}</tool_call>", "no valid JSON"),
        ('<tool_call>{"name": "search_records", "arguments": {"query": "x"}} and more</tool_call>', "not closed by </tool_call> after its JSON object"),
        ('<tool_call>[{"name": "search_records", "arguments": {"query": "x"}}]</tool_call>', "exactly the keys"),
        ('<tool_call>{"name": "search_records"}</tool_call>', "exactly the keys"),
        ('<tool_call>{"name": "search_records", "arguments": {"query": "x"}, "id": 1}</tool_call>', "exactly the keys"),
        ('<tool_call>{"name": "search_records", "arguments": "{}"}</tool_call>', '"arguments" an object'),
        ('<tool_call>{"name": 3, "arguments": {}}</tool_call>', '"name" must be a string'),
        ('<tool_call>{"name": "x", "name": "search_records", "arguments": {"query": "x"}}</tool_call>', "a key is given twice"),
        ('<tool_call>{"name": "search_records", "arguments": {"query": NaN}}</tool_call>', "NaN is not JSON"),
        ('<tool_call>{"name": "delete_all", "arguments": {}}</tool_call>', "unknown tool 'delete_all'; known: search_records, "),
        ('<tool_call>{"name": "search_records", "arguments": {"query": "\\ud800"}}</tool_call>', "not valid Unicode"),
        ("<tool_call>" + "[" * 100_000, "no valid JSON"),
        ('<tool_call>{"name": "search_records", "arguments": {"query": ' + "9" * 5000 + "}}</tool_call>", "no valid JSON"),
    ],
)
def test_what_is_malformed_is_an_error_and_nothing_of_it_is_acted_on(text: str, words: str) -> None:
    turn = parse(text)
    assert turn.error is not None and words in turn.error
    assert turn.calls == () and turn.answer is None


@pytest.mark.parametrize(
    "text, words",
    [
        ("<tool_call>search_records</tool_call>", "does not start with <function=NAME>"),
        (JOB_HERMES, "does not start with <function=NAME>"),
        (JOB_CODER.removeprefix("<tool_call>\n"), "stray <function="),
        (JOB_CODER.removesuffix("</tool_call>"), "not closed by </function></tool_call>"),
        (JOB_CODER.replace("</function>\n", ""), "not closed by </function></tool_call>"),
        (JOB_CODER.replace("</parameter>\n", ""), "not closed by </function></tool_call>"),
        (JOB_CODER.replace("</parameter>\n", "") + JOB_CODER, "not closed by </parameter>"),
        (JOB_CODER.replace("</parameter>\n", "</parameter>\nplease\n"), "not closed by </function></tool_call>"),
        (JOB_CODER.replace("search_records", "forget"), "unknown tool 'forget'"),
        (JOB_CODER.replace("=query", "=question"), "argument query is missing"),
        (JOB_CODER.replace("</function>", "<parameter=query>\nx\n</parameter>\n</function>"), "parameter query is given twice"),
        (JOB_CODER.replace("</function>", "<parameter=k>\n3\n</parameter>\n</function>"), "unknown argument k"),
        (IDS_CODER.replace('["rec:1", "rec:2"]', "rec:1"), "no valid JSON"),
        (IDS_CODER.replace('["rec:1", "rec:2"]', '"rec:1"'), "must be of type array"),
        (IDS_CODER.replace('["rec:1", "rec:2"]', '["rec:1"] ["rec:2"]'), "text after the JSON value"),
        (JOB_CODER.replace("Mia job", " "), "must not be empty"),
    ],
)
def test_malformed_coder_calls_are_errors(text: str, words: str) -> None:
    turn = parse(text, CODER)
    assert turn.error is not None and words in turn.error
    assert turn.calls == ()


def test_one_bad_call_spoils_the_turn() -> None:
    turn = parse(f'{JOB_HERMES}<tool_call>{{"name": "search_records", "arguments": {{}}}}</tool_call>')
    assert turn.calls == () and turn.error == "search_records: argument query is missing; expected query"


def test_an_unknown_format_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="not a known tool format.*hermes or qwen3_coder"):
        parse("x", "xml")
    with pytest.raises(ConfigError, match="not a known tool format"):
        render_call(JOB, "xml")


@settings(max_examples=200, deadline=None)
@given(text=turn_texts, tool_format=st.sampled_from([HERMES, CODER]))
def test_any_text_gives_exactly_one_of_calls_answer_and_error(text: str, tool_format: str) -> None:
    turn = parse(text, tool_format)
    assert [bool(turn.calls), turn.answer is not None, turn.error is not None].count(True) == 1


@settings(max_examples=100, deadline=None)
@given(query=strings, thinking=st.sampled_from(["", "<think>hm</think>\n"]))
def test_every_string_survives_hermes(query: str, thinking: str) -> None:
    call = ToolCall(name="search_conversation", arguments={"query": query})
    turn = parse(f"{thinking}{render_call(call, HERMES)}\n{render_call(IDS, HERMES)}")
    assert turn.error is None and turn.calls == (call, IDS)
    assert render_call(call, HERMES).count("</tool_call>") == 1  # a parser that looks for the first closing tag reads it as well


@settings(max_examples=100, deadline=None)
@given(query=strings)
def test_every_string_that_coder_can_express_survives_and_the_rest_is_refused(query: str) -> None:
    call = ToolCall(name="search_conversation", arguments={"query": query})
    if any(tag in query for tag in ("parameter>", "<parameter=", "function>", "<function=", "think>")):
        try:
            text = render_call(call, CODER)
        except DataError as error:
            assert "cannot express" in error.message
            return
    else:
        text = render_call(call, CODER)
    assert parse(text, CODER).calls == (call,)


@settings(max_examples=200, deadline=None)
@given(ids=st.lists(strings, min_size=1, max_size=20), tool_format=st.sampled_from([HERMES, CODER]))
def test_every_list_of_ids_survives_both_formats(ids: list[str], tool_format: str) -> None:
    call = ToolCall(name="get_conversation", arguments={"message_ids": ids})
    assert parse(render_call(call, tool_format), tool_format).calls == (call,)


def test_a_closing_tag_inside_a_value_is_part_of_the_value() -> None:
    call = ToolCall(name="search_records", arguments={"query": 'she said "</tool_call>" twice'})
    assert parse(render_call(call, CODER), CODER).calls == (call,)
    raw = '<tool_call>{"name": "search_records", "arguments": {"query": "a </tool_call> b"}}</tool_call>'
    assert parse(raw).calls[0].arguments == {"query": "a </tool_call> b"}
