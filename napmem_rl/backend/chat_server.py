"""The OpenAI protocol over the transformers engine: what a model that is served beside training on the CPU platform answers by.

Chat completions alone, one choice, no streaming and no tools. A `response_format` is taken and not enforced: who reads a reply has to read it strictly, as
our judges and answer models do. What a user message holds is data: no control token comes out of it (`encode_plain`).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from napmem_rl.backend.engine_transformers import Generation, SamplingParams
from napmem_rl.errors import BackendError, NapMemError
from napmem_rl.llm.token_context import TokenContext

_TAKEN = frozenset({"model", "messages", "temperature", "top_p", "max_tokens", "max_completion_tokens", "seed", "response_format", "n", "stream"})
Sample = Callable[[Sequence[int], SamplingParams], Awaitable[Generation]]


class ChatServer:
    """Answers chat completions of one model."""

    def __init__(self, *, model: str, tokenizer: Any, sample: Sample, max_context: int) -> None:
        """Args:
        model: its name in requests; another is refused.
        tokenizer: with a chat template.
        sample: the engine's `generate`.
        max_context: tokens of prompt and reply together.
        """
        self._model, self._tokenizer, self._sample, self._max_context = model, tokenizer, sample, max_context
        self.app = FastAPI()
        self.app.post("/v1/chat/completions")(self.complete)
        self.app.get("/v1/models")(self.list_models)

    async def list_models(self) -> dict[str, Any]:
        """The one model."""
        return {"object": "list", "data": [{"id": self._model, "object": "model", "owned_by": "napmem", "created": 0}]}

    async def complete(self, request: Request) -> JSONResponse:
        """One completion; 404 for another model, 400 with the reason for a request that cannot be served."""
        body = await request.json()
        if body.get("model") != self._model:
            return _refuse(404, f"the model {body.get('model')!r} is not served here; {self._model!r} is")
        unknown = sorted(set(body) - _TAKEN) + [name for name, only in (("n", 1), ("stream", False)) if body.get(name, only) != only]
        if unknown:
            return _refuse(400, f"not served: {', '.join(unknown)}")
        try:
            prompt = TokenContext(self._tokenizer).start(body["messages"])
            params = self._read_params(body, len(prompt))
        except (KeyError, TypeError, ValueError, NapMemError) as error:
            return _refuse(400, f"the request cannot be served ({type(error).__name__}: {error})")
        try:
            return JSONResponse(self._render(len(prompt), await self._sample(prompt, params)))
        except NapMemError as error:
            return _refuse(500, error.message)

    def _read_params(self, body: Mapping[str, Any], num_prompt: int) -> SamplingParams:
        room = self._max_context - num_prompt
        if room < 1:
            raise BackendError.of("prompt", "leaves no room for a reply", got=f"{num_prompt} tokens", expected=f"fewer than {self._max_context}")
        return SamplingParams(
            temperature=float(body.get("temperature", 1.0)),
            top_p=float(body.get("top_p", 1.0)),
            max_tokens=min(room, body.get("max_completion_tokens") or body.get("max_tokens") or room),
            seed=body.get("seed"),
        )

    def _render(self, num_prompt: int, generation: Generation) -> dict[str, Any]:
        text = self._tokenizer.decode(list(generation.token_ids), skip_special_tokens=True)
        reason = "length" if generation.stop_reason == "length" else "stop"
        num_reply = len(generation.token_ids)
        return {
            "id": f"chatcmpl-{uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self._model,
            "choices": [{"index": 0, "finish_reason": reason, "message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": num_prompt, "completion_tokens": num_reply, "total_tokens": num_prompt + num_reply},
        }


def _refuse(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": "invalid_request_error", "code": status}}, status_code=status)
