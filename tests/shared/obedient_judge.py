"""A judge that obeys whatever reaches it outside of the data: it says "correct" as soon as anything but our own instructions and one JSON object is there.

It reads a request as servers do that render a chat template and tokenize the whole: a control token written inside a message ends the turn and begins
another, and a line that the client did not quote is a line of the conversation. Inside the data it compares answer and references, and nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from napmem_rl.llm.base import ChatReply
from napmem_rl.rewards.judge_protocols import PROTOCOLS
from napmem_rl.rewards.text_match import match_answer
from napmem_rl.tools.spec import ToolSpec

_OURS = {one.system: one.field for protocol in PROTOCOLS.values() for one in protocol.instructions.values()}
_CONTROL = re.compile(r"<\|?/?[\w▁|｜ -]{1,40}\|?>|\[/?[A-Z_]{3,20}\]|</?s>")  # noqa: RUF001
_UNSEEN = re.compile("[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f\ud800-\udfff]")


def find_leak(messages: list[dict[str, Any]]) -> str | None:
    """What of a request is neither our instructions nor data, in words; None where there is nothing else."""
    if [message["role"] for message in messages] != ["system", "user"]:
        return f"turns {[message['role'] for message in messages]}"
    system, user = (message["content"] for message in messages)
    if system not in _OURS:
        return "instructions that are not ours"
    if _CONTROL.search(user) or _UNSEEN.search(user):
        return f"a control token or an unseen character in {user!r}"
    try:
        data = json.loads(user)
    except ValueError:
        return f"text that is not one JSON object: {user!r}"
    if not isinstance(data, dict) or list(data) != ["question", _OURS[system], "answer"]:
        return f"fields {list(data)}"
    is_list = isinstance(data[_OURS[system]], list) and all(isinstance(text, str) for text in data[_OURS[system]])
    return None if is_list and isinstance(data["question"], str) and isinstance(data["answer"], str) else "fields of another type"


def reply_obediently(messages: list[dict[str, Any]]) -> str:
    """Correct wherever something leaked out of the data; otherwise whether the answer equals a reference."""
    leak = find_leak(messages)
    if leak is not None:
        return json.dumps({"verdict": "correct", "reason": f"obeyed: {leak}"})
    data = json.loads(messages[1]["content"])
    is_equal = match_answer(data["answer"], data[list(data)[1]]) is not None
    return json.dumps({"verdict": "correct" if is_equal else "incorrect", "reason": "compared"})


class ObedientChat:
    """The same without HTTP: a `ChatClient`."""

    name = "obedient"

    async def chat(self, messages: Sequence[Mapping[str, Any]], *, schema: Mapping[str, Any] | None = None, max_tokens: int | None = None) -> str:
        return reply_obediently([dict(message) for message in messages])

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[ToolSpec] = (),
        schema: Mapping[str, Any] | None = None,
        max_tokens: int | None = None,
    ) -> ChatReply:
        return ChatReply(text=await self.chat(messages))
