"""The client against a real local HTTP server that refuses, babbles, limits rates and hangs."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from napmem_rl.errors import BudgetError, ConfigError, LLMError
from napmem_rl.llm.base import ChatReply, RawToolCall
from napmem_rl.llm.limits import Budget, Prices, RequestLimits
from napmem_rl.llm.openai_client import ChatGenerate, OpenAIChat
from napmem_rl.llm.scripted import ScriptedChat
from napmem_rl.schema import ToolCall
from napmem_rl.tools.spec import MEMORY_TOOLS

ASK = [{"role": "user", "content": "Where?"}]


class Endpoint:
    """Answers with the given steps in order, the last one for ever. A step is (status, headers, body, delay in seconds)."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, dict[str, str], Any, float]] = []
        self.requests: list[dict[str, Any]] = []
        self.in_flight = self.most_in_flight = 0
        self._lock = threading.Lock()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.handle(self, body)

            def log_message(self, *_: Any) -> None:
                """Keep the test's output clean."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    def handle(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        with self._lock:
            step = self.steps[min(len(self.requests), len(self.steps) - 1)]
            self.requests.append({"path": handler.path, "key": handler.headers["Authorization"], **body})
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        status, headers, reply, delay = step
        time.sleep(delay)
        content = reply.encode() if isinstance(reply, str) else json.dumps(reply).encode()
        with self._lock:
            self.in_flight -= 1
        try:
            handler.send_response(status)
            for name, value in {"Content-Type": "application/json", "Content-Length": str(len(content)), **headers}.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(content)
        except (BrokenPipeError, ConnectionResetError):  # the client gave up waiting, as some tests want
            pass


@pytest.fixture()
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    yield server
    server.server.shutdown()
    server.server.server_close()


def as_step(
    text: str | None = "Oslo", *, status: int = 200, delay: float = 0.0, finish: str = "stop", **message: Any
) -> tuple[int, dict[str, str], Any, float]:
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    return status, {}, {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}, delay


def as_refusal(status: int, **headers: str) -> tuple[int, dict[str, str], Any, float]:
    return status, {"retry-after-ms": "5", **headers}, {"error": {"message": f"refused with {status}"}}, 0.0


def run_with(endpoint: Endpoint, use: Callable[[OpenAIChat], Awaitable[Any]], **settings: Any) -> Any:
    async def run() -> Any:
        client = OpenAIChat(**{"model": "m", "base_url": endpoint.url, "api_key_env": "", "timeout_s": 5.0, "max_retries": 2, **settings})
        try:
            return await use(client)
        finally:
            await client.close()

    return asyncio.run(run())


def test_a_reply_comes_back_with_its_usage_and_the_request_holds_the_settings(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "secret")
    endpoint.steps = [as_step("Oslo")]

    async def use(client: OpenAIChat) -> tuple[str, int, int]:
        text = await client.chat(ASK, schema={"type": "object"}, max_tokens=9)
        return text, client.usage.prompt_tokens, client.usage.completion_tokens

    assert run_with(endpoint, use, api_key_env="SOME_KEY") == ("Oslo", 7, 2)
    request = endpoint.requests[0]
    assert (request["path"], request["key"], request["model"], request["temperature"], request["max_tokens"]) == (
        "/v1/chat/completions",
        "Bearer secret",
        "m",
        0.0,
        9,
    )
    assert request["response_format"] == {"type": "json_schema", "json_schema": {"name": "reply", "schema": {"type": "object"}, "strict": True}}
    assert "tools" not in request and "top_p" not in request


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_passing_failure_is_tried_again(endpoint: Endpoint, status: int) -> None:
    endpoint.steps = [as_refusal(status), as_refusal(status), as_step("Oslo")]
    assert run_with(endpoint, lambda client: client.chat(ASK)) == "Oslo"
    assert len(endpoint.requests) == 3


def test_a_lasting_failure_becomes_an_llm_error_after_all_retries(endpoint: Endpoint) -> None:
    endpoint.steps = [as_refusal(500)]
    with pytest.raises(LLMError, match=r"model m at .*InternalServerError.*refused with 500"):
        run_with(endpoint, lambda client: client.chat(ASK))
    assert len(endpoint.requests) == 3


def test_a_refused_key_is_not_tried_again(endpoint: Endpoint) -> None:
    endpoint.steps = [as_refusal(401)]
    with pytest.raises(LLMError, match="AuthenticationError"):
        run_with(endpoint, lambda client: client.chat(ASK))
    assert len(endpoint.requests) == 1


def test_a_server_that_hangs_times_out_and_is_tried_again(endpoint: Endpoint) -> None:
    endpoint.steps = [as_step("late", delay=0.6), as_step("Oslo")]
    assert run_with(endpoint, lambda client: client.chat(ASK), timeout_s=0.2) == "Oslo"
    endpoint.steps = [as_step("late", delay=0.6)]
    with pytest.raises(LLMError, match="APITimeoutError"):
        run_with(endpoint, lambda client: client.chat(ASK), timeout_s=0.1, max_retries=0)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("<html>proxy</html>", "text/html"),
        ("{not json", "application/json"),
        ({"choices": []}, "application/json"),
        ({"ok": True}, "application/json"),
        ("[]", "application/json"),
    ],
)
def test_a_server_that_babbles_becomes_an_llm_error(endpoint: Endpoint, body: Any, content_type: str) -> None:
    endpoint.steps = [(200, {"Content-Type": content_type}, body, 0.0)]
    with pytest.raises(LLMError, match="model m at"):
        run_with(endpoint, lambda client: client.chat(ASK))


def test_no_more_requests_than_allowed_are_in_flight(endpoint: Endpoint) -> None:
    endpoint.steps = [as_step("Oslo", delay=0.05)]

    async def use(client: OpenAIChat) -> list[str]:
        return await asyncio.gather(*(client.chat(ASK) for _ in range(6)))

    assert run_with(endpoint, use, max_concurrency=2) == ["Oslo"] * 6
    assert endpoint.most_in_flight == 2


def test_a_cached_reply_is_not_asked_for_again_and_another_question_is(endpoint: Endpoint, tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"file_name": "profile.md"}'}}
    endpoint.steps = [as_step(None, tool_calls=[call]), as_step("other")]

    async def use(client: OpenAIChat) -> tuple[ChatReply, ChatReply, str, int]:
        first, second = await client.complete(ASK), await client.complete(ASK)
        return first, second, await client.chat([{"role": "user", "content": "Who?"}]), client.usage.num_cached

    first, second, other, num_cached = run_with(endpoint, use, cache_dir=str(tmp_path))
    assert first == second == ChatReply(text="", tool_calls=(RawToolCall(call_id="c1", name="read_file", arguments='{"file_name": "profile.md"}'),))
    assert (other, num_cached, len(endpoint.requests)) == ("other", 1, 2)


def test_an_exhausted_budget_sends_nothing_and_forks_share_it_but_count_for_themselves(endpoint: Endpoint) -> None:
    endpoint.steps = [as_step("Oslo")]
    budget = Budget(prices=Prices(prompt=100.0, completion=500.0), max_cost=0.02)

    async def use(client: OpenAIChat) -> tuple[OpenAIChat, OpenAIChat]:
        first, second = client.fork(), client.fork()
        await first.chat(ASK, max_tokens=2)  # 7 and 2 tokens, as the endpoint says: 0.0017
        await second.chat(ASK, max_tokens=2)
        with pytest.raises(BudgetError, match=r"0\.0034 of 0\.02 are spent, and the next request may cost up to 0\.05"):
            await second.chat(ASK, max_tokens=100)
        return first, second

    first, second = run_with(endpoint, use, budget=budget)
    assert len(endpoint.requests) == 2
    assert [(fork.usage.num_requests, fork.usage.cost) for fork in (first, second)] == [(1, pytest.approx(0.0017))] * 2
    assert budget.cost == pytest.approx(0.0034) and budget.num_tokens == 18


def test_a_reply_without_token_counts_is_charged_at_the_guess_and_said_to_be(endpoint: Endpoint) -> None:
    step = as_step("Oslo")
    del step[2]["usage"]
    endpoint.steps = [step]

    async def use(client: OpenAIChat) -> Any:
        await client.chat(ASK)
        return client.usage

    usage = run_with(endpoint, use, budget=Budget(prices=Prices(prompt=1.0)))
    assert usage.num_unmetered == 1 and usage.prompt_tokens > 16 and usage.completion_tokens == 1 and usage.cost > 0


def test_a_cached_reply_needs_neither_budget_nor_a_turn_and_the_tag_is_part_of_its_key(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.steps = [as_step("Oslo")]
    settings = {"cache_dir": str(tmp_path), "cache_tag": "prompts-1"}
    assert run_with(endpoint, lambda client: client.chat(ASK), **settings) == "Oslo"
    spent = {"budget": Budget(max_tokens=1), "limits": RequestLimits(tokens_per_minute=1)}
    assert run_with(endpoint, lambda client: client.chat(ASK), **settings, **spent) == "Oslo"
    run_with(endpoint, lambda client: client.chat(ASK, schema={"type": "object"}), **settings)
    run_with(endpoint, lambda client: client.chat(ASK), **{**settings, "cache_tag": "prompts-2"})
    assert len(endpoint.requests) == 3


@pytest.mark.parametrize(("mode", "lengths"), [("json_schema", {}), ("json_schema_full", {"maxLength": 9})])
def test_a_schema_is_sent_with_lengths_of_strings_only_where_the_endpoint_takes_them(endpoint: Endpoint, mode: str, lengths: dict[str, int]) -> None:
    def build(**lengths: int) -> dict[str, Any]:
        ids = {"type": "array", "maxItems": 2, "items": {"type": "string", "enum": ["m1"]}}
        return {"type": "object", "properties": {"ids": ids, "text": {"anyOf": [{"type": "string", **lengths}, {"type": "null"}]}}}

    endpoint.steps = [as_step("{}")]
    run_with(endpoint, lambda client: client.chat(ASK, schema=build(maxLength=9)), schema_mode=mode)
    asked = {"type": "json_schema", "json_schema": {"name": "reply", "schema": build(**lengths), "strict": True}}
    assert endpoint.requests[0]["response_format"] == asked


def test_an_endpoint_without_schemas_is_asked_for_an_object_or_for_nothing(endpoint: Endpoint) -> None:
    endpoint.steps = [as_step("{}")]
    for mode in ("json_object", "off"):
        run_with(endpoint, lambda client: client.chat(ASK, schema={"type": "object"}), schema_mode=mode)
    assert endpoint.requests[0]["response_format"] == {"type": "json_object"} and "response_format" not in endpoint.requests[1]


def test_a_reasoning_model_is_sent_no_temperature_and_its_own_limit_and_may_be_cached(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.steps = [as_step("Oslo")]
    settings = {"reasoning": True, "cache_dir": str(tmp_path), "top_p": 0.9, "budget": Budget(max_tokens=100)}
    for _ in range(2):
        assert run_with(endpoint, lambda client: client.chat(ASK, max_tokens=50), **settings) == "Oslo"
    (request,) = endpoint.requests
    assert request["max_completion_tokens"] == 50 and not {"max_tokens", "temperature", "top_p"} & set(request)
    with pytest.raises(BudgetError, match="may use up to"):
        run_with(endpoint, lambda client: client.chat(ASK, max_tokens=90), **settings)


def test_an_unknown_schema_mode_is_refused() -> None:
    with pytest.raises(ConfigError, match="schema_mode: is unknown; got 'xml'"):
        OpenAIChat(model="m", api_key_env="", schema_mode="xml")


def test_a_cut_reply_and_a_refusal_are_told_apart_from_an_answer(endpoint: Endpoint) -> None:
    endpoint.steps = [as_step("Os", finish="length"), as_step(None, refusal="I cannot.")]

    async def use(client: OpenAIChat) -> tuple[ChatReply, ChatReply]:
        return await client.complete(ASK), await client.complete(ASK)

    assert run_with(endpoint, use) == (ChatReply(text="Os", is_truncated=True), ChatReply(text="I cannot."))


def test_a_missing_key_or_model_and_a_cache_of_samples_are_config_errors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ABSENT_KEY", raising=False)
    with pytest.raises(ConfigError, match="the environment variable ABSENT_KEY is not set.*export ABSENT_KEY"):
        OpenAIChat(model="m", api_key_env="ABSENT_KEY")
    with pytest.raises(ConfigError, match="no model is named"):
        OpenAIChat(model=None, api_key_env="")
    with pytest.raises(ConfigError, match="expected temperature 0"):
        OpenAIChat(model="m", api_key_env="", temperature=1.0, cache_dir=str(tmp_path))


def test_the_preflight_says_what_to_do(endpoint: Endpoint) -> None:
    endpoint.steps = [as_step("ready")]
    run_with(endpoint, lambda client: client.check_endpoint())
    for status, advice in ((401, "The key was refused"), (404, "base_url` ends where the API starts"), (400, "check `model` and `temperature`")):
        endpoint.steps = [as_refusal(status)]
        with pytest.raises(ConfigError, match=advice):
            run_with(endpoint, lambda client: client.check_endpoint())


def test_an_unreachable_endpoint_fails_the_preflight_with_its_address(endpoint: Endpoint) -> None:
    with pytest.raises(ConfigError, match=r"127.0.0.1:9/v1.*Nothing answers there"):
        run_with(endpoint, lambda client: client.check_endpoint(), base_url="http://127.0.0.1:9/v1", max_retries=0)


def as_call(name: str, arguments: str, call_id: str = "c1") -> RawToolCall:
    return RawToolCall(call_id=call_id, name=name, arguments=arguments)


def generate_from(reply: ChatReply | str) -> Any:
    return asyncio.run(ChatGenerate(ScriptedChat([reply]))(ASK, MEMORY_TOOLS))


def test_native_tool_calls_become_parsed_calls_with_their_ids() -> None:
    calls = (as_call("search_records", '{"query": "</tool_call> Oslo"}', "c1"), as_call("get_records", '{"record_ids": ["rec:7"]}', "c2"))
    turn = generate_from(ChatReply(text="Let me look.", tool_calls=calls))
    assert turn.parsed.calls == (
        ToolCall(name="search_records", arguments={"query": "</tool_call> Oslo"}),
        ToolCall(name="get_records", arguments={"record_ids": ["rec:7"]}),
    )
    assert (turn.parsed.error, turn.tool_call_ids, turn.message["content"]) == (None, ("c1", "c2"), "Let me look.")
    assert turn.message["tool_calls"][1] == {"id": "c2", "type": "function", "function": {"name": "get_records", "arguments": '{"record_ids": ["rec:7"]}'}}


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (ChatReply(text="", tool_calls=(as_call("search_records", '{"query": '),)), "valid JSON"),
        (ChatReply(text="", tool_calls=(as_call("search_records", ""),)), "valid JSON"),
        (ChatReply(text="", tool_calls=(as_call("delete_bank", "{}"),)), "unknown tool"),
        (ChatReply(text="", tool_calls=(as_call("search_records", '{"query": 3}'),)), "must be of type string"),
        (ChatReply(text="<answer>Oslo</answer>", tool_calls=(as_call("search_records", '{"query": "x"}'),)), "after the final answer"),
        (
            ChatReply(
                text='<tool_call>{"name": "search_records", "arguments": {"query": "a"}}</tool_call>', tool_calls=(as_call("search_records", '{"query": "x"}'),)
            ),
            "mixed",
        ),
        (ChatReply(text="no idea"), "neither a tool call nor an <answer>"),
    ],
)
def test_what_does_not_parse_is_an_error_of_the_turn(reply: ChatReply, error: str) -> None:
    turn = generate_from(reply)
    assert error in turn.parsed.error
    assert turn.parsed.calls == () and turn.parsed.answer is None


def test_calls_written_as_text_and_answers_are_read_too() -> None:
    assert generate_from("<answer> Oslo </answer>").parsed.answer == "Oslo"
    turn = generate_from('<tool_call>{"name": "search_records", "arguments": {"query": "a"}}</tool_call>')
    assert [call.name for call in turn.parsed.calls] == ["search_records"] and turn.message is None
