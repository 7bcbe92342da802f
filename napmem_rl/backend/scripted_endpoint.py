"""An OpenAI-compatible endpoint that is no model: it waits, then says something that follows from the prompt. For speed measurements and tests.

    python -m napmem_rl.backend.scripted_endpoint [--latency-s 1] [--port 0] [--limit-every N] [--down-after N]

Prints its base URL on one line once it listens.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from napmem_rl.errors import BackendError

MODEL = "scripted"
_READY = "ready at "


@dataclass(kw_only=True, slots=True)
class ScriptedEndpoint:
    """The ASGI application. A reply leaves `latency_s` after its request came; every `limit_every`-th request is told to come again (429), and from
    `down_after` on all get 503; None never does."""

    latency_s: float = 0.0
    limit_every: int | None = None
    down_after: int | None = None
    num_requests: int = field(default=0, init=False)

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        due = asyncio.get_running_loop().time() + self.latency_s
        request = json.loads(await _read_body(receive) or b"{}")
        self.num_requests += 1
        if self.down_after is not None and self.num_requests > self.down_after:
            await _reply(send, 503, {"error": {"message": "the endpoint is down"}})
        elif self.limit_every is not None and self.num_requests % self.limit_every == 0:
            await _reply(send, 429, {"error": {"message": "too many requests"}}, (b"retry-after-ms", b"10"))
        else:
            completion = build_completion(request)
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            await _reply(send, 200, completion)


def build_completion(request: dict[str, Any]) -> dict[str, Any]:
    """A chat completion whose text is the same for the same messages; a judge that asks for a verdict gets one."""
    asked = json.dumps(request.get("messages", []), sort_keys=True)
    digest = hashlib.sha256(asked.encode()).hexdigest()[:8]
    text = json.dumps({"verdict": "incorrect", "reason": "scripted"}) if "verdict" in asked else f"It is answer {digest}."
    usage = {"prompt_tokens": len(asked) // 4, "completion_tokens": len(text) // 4, "total_tokens": (len(asked) + len(text)) // 4}
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    return {"id": digest, "object": "chat.completion", "created": 0, "model": MODEL, "choices": [choice], "usage": usage}


@contextmanager
def serve_scripted(**options: float) -> Iterator[str]:
    """The endpoint in a process of its own; gives its base URL and ends it with the block.

    Raises:
        BackendError: it did not start.
    """
    arguments = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    command = [sys.executable, "-m", "napmem_rl.backend.scripted_endpoint", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            line = process.stdout.readline()
            if not line.startswith(_READY):
                raise BackendError.of("scripted endpoint", "did not start", got=line.strip() or None)
            yield line.removeprefix(_READY).strip()
        finally:
            process.terminate()


async def _read_body(receive: Any) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


async def _reply(send: Any, status: int, content: dict[str, Any], *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps(content).encode()
    sent = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": body})


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until terminated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency-s", type=float, default=0.0, help="of every reply")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--limit-every", type=int, help="every N-th request gets 429")
    parser.add_argument("--down-after", type=int, help="after N requests all get 503")
    args = parser.parse_args(arguments)
    listening = socket.socket(proto=socket.IPPROTO_TCP)  # asyncio sets TCP_NODELAY only where this is named; without it a reply takes 40 ms more
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", args.port))
    app = ScriptedEndpoint(latency_s=args.latency_s, limit_every=args.limit_every, down_after=args.down_after)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", access_log=False))
    listening.listen(1024)
    print(f"{_READY}http://127.0.0.1:{listening.getsockname()[1]}/v1", flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    server.run(sockets=[listening])
    return 0


if __name__ == "__main__":
    sys.exit(main())
