"""Starting, asking and ending a server process. The server here is a few lines of Python; the real one is in tests/e2e."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import napmem_rl.backend.vllm_server as vllm_server
from napmem_rl.backend.vllm_server import HTTPTokenServer, ServerSize, build_command, read_completion, run_vllm
from napmem_rl.errors import BackendError

READY = """
import sys, http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
print("loading weights", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
SAMPLING = {"max_tokens": 8, "temperature": 0.7, "top_p": 1.0, "seed": 3, "stop_token_ids": (2,)}


def serve_with(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Run these lines of Python where vLLM's server would run."""
    monkeypatch.setattr(vllm_server, "build_command", lambda model, *, size, host, port: [sys.executable, "-c", code, str(port)])


def test_a_server_is_there_within_the_context_and_gone_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_with(monkeypatch, READY)
    with run_vllm(tmp_path, size=ServerSize(max_context=64), log=tmp_path / "out" / "vllm.log", start_timeout_s=30) as url:
        assert url.startswith("http://127.0.0.1:") and url.endswith("/v1")
        assert "loading weights" in (tmp_path / "out" / "vllm.log").read_text()
    with pytest.raises(BackendError, match="failed"):
        asyncio.run(HTTPTokenServer(url, max_retries=0).generate("r", [1], SAMPLING))


def test_a_server_that_dies_is_told_with_the_end_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_with(monkeypatch, "print('line of no use\\n' * 40 + 'out of memory'); raise SystemExit(3)")
    with pytest.raises(BackendError, match=r"exit code 3(.|\n)*out of memory"):
        with run_vllm(tmp_path, size=ServerSize(max_context=64), log=tmp_path / "vllm.log", start_timeout_s=30):
            pass


def test_a_server_that_never_gets_ready_is_given_up_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_with(monkeypatch, "import time; print('compiling', flush=True); time.sleep(600)")
    with pytest.raises(BackendError, match=r"not ready within 2 s(.|\n)*compiling"):
        with run_vllm(tmp_path, size=ServerSize(max_context=64), log=tmp_path / "vllm.log", start_timeout_s=2):
            pass


def test_a_server_ends_with_the_process_that_started_it_also_where_that_is_killed(tmp_path: Path) -> None:
    code = f"""
import os, signal, sys
from pathlib import Path
import napmem_rl.backend.vllm_server as server
server.build_command = lambda model, *, size, host, port: [sys.executable, "-c", {READY!r}, str(port)]
with server.run_vllm(Path("."), size=server.ServerSize(max_context=64), log=Path({str(tmp_path / "log")!r}), start_timeout_s=60) as url:
    print(url, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    host, port = done.stdout.strip().removeprefix("http://").removesuffix("/v1").split(":")
    deadline = time.monotonic() + 30
    while is_open(host, int(port)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not is_open(host, int(port))


def is_open(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def test_the_command_names_checkpoint_and_limits_and_takes_no_defaults_of_the_checkpoint() -> None:
    command = build_command(Path("/models/m"), size=ServerSize(max_context=1048, max_sequences=7), host="127.0.0.1", port=5)
    pairs = dict(zip(command, command[1:], strict=False))
    assert (pairs["--model"], pairs["--max-model-len"], pairs["--max-num-seqs"], pairs["--generation-config"]) == ("/models/m", "1048", "7", "vllm")


@pytest.fixture
def completions() -> Iterator[tuple[str, list[dict[str, Any]], list[dict[str, Any]]]]:
    """(URL of an endpoint, what it was asked, the choices that it will give)."""
    asked: list[dict[str, Any]] = []
    choices: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            body = json.dumps({"id": "x", "object": "text_completion", "created": 0, "model": "policy", "choices": choices}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1", asked, choices
    server.shutdown()
    server.server_close()


def test_tokens_go_out_and_come_back_as_ids_with_the_requests_own_seed(completions: tuple[str, list[dict[str, Any]], list[dict[str, Any]]]) -> None:
    url, asked, choices = completions
    choices.append({"index": 0, "text": "Oslo", "finish_reason": "stop", "token_ids": [7, 9, 2]})
    turn = asyncio.run(HTTPTokenServer(url).generate("r", [4, 5, 6], SAMPLING))
    assert (turn.token_ids, turn.is_length_stop, turn.is_aborted) == ((7, 9, 2), False, False)
    sent = asked[0]
    assert (sent["prompt"], sent["seed"], sent["stop_token_ids"], sent["return_token_ids"], sent["temperature"]) == ([4, 5, 6], 3, [2], True, 0.7)


def test_a_schema_goes_to_the_server_as_what_the_turn_is_bound_to(completions: tuple[str, list[dict[str, Any]], list[dict[str, Any]]]) -> None:
    url, asked, choices = completions
    choices.append({"index": 0, "text": "{}", "finish_reason": "stop", "token_ids": [7, 2]})
    asyncio.run(HTTPTokenServer(url).generate("r", [4], {**SAMPLING, "schema": {"type": "object"}}))
    asyncio.run(HTTPTokenServer(url).generate("r", [4], SAMPLING))
    assert asked[0]["structured_outputs"] == {"json": {"type": "object"}, "disable_any_whitespace": True} and "structured_outputs" not in asked[1]


def test_a_turn_without_its_end_was_cut_and_one_without_ids_is_an_error() -> None:
    choice = SimpleNamespace(finish_reason="length", token_ids=[7, 9])
    assert read_completion([choice], end_ids=[2]).is_length_stop
    assert read_completion([SimpleNamespace(finish_reason="abort", token_ids=[7])], end_ids=[2]).is_aborted
    for broken in ([], [SimpleNamespace(finish_reason="stop", token_ids=None)]):
        with pytest.raises(BackendError, match="no token ids"):
            read_completion(broken, end_ids=[2])
