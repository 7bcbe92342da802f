"""A judge's endpoint in this process: an OpenAI-compatible server that says what a function says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def serve_judge(
    reply: Callable[[list[dict[str, Any]]], str], *, usage: tuple[int, int] | None = None, requests: list[dict[str, Any]] | None = None
) -> tuple[str, Callable[[], None]]:
    """Answer every request with `reply(messages)`, said to have cost `usage` tokens (prompt, completion). Returns the base URL and what ends the server.

    Requests as they came are added to `requests`.
    """
    counted = {"usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}} if usage else {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if requests is not None:
                requests.append(request)
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": reply(request["messages"])}}
            body = json.dumps({"id": "x", "object": "chat.completion", "created": 0, "model": "judge", "choices": [choice], **counted}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Silent."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 256  # many may connect at once

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def stop() -> None:
        server.shutdown()
        server.server_close()

    return f"http://127.0.0.1:{server.server_port}/v1", stop
