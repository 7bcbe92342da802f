"""Scripted models, and modules that must import without the openai package."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from napmem_rl.errors import LLMError
from napmem_rl.llm.base import ChatReply
from napmem_rl.llm.scripted import ScriptedChat, ScriptedGenerate
from napmem_rl.tools.spec import MEMORY_TOOLS

ASK = [{"role": "user", "content": "Where?"}]


def test_a_script_is_followed_and_an_exception_in_it_is_raised() -> None:
    generate = ScriptedGenerate(["<answer>Oslo</answer>", LLMError("down")])
    assert asyncio.run(generate(ASK, MEMORY_TOOLS)).parsed.answer == "Oslo"
    with pytest.raises(LLMError, match="down"):
        asyncio.run(generate(ASK, MEMORY_TOOLS))
    assert generate.seen == [ASK, ASK]


def test_the_qwen3_coder_format_is_read_where_asked_for() -> None:
    text = "<tool_call>\n<function=search_records>\n<parameter=query>\nAna\n</parameter>\n</function>\n</tool_call>"
    turn = asyncio.run(ScriptedGenerate([text], tool_format="qwen3_coder")(ASK, MEMORY_TOOLS))
    assert turn.parsed.calls[0].arguments == {"query": "Ana"}


def test_a_script_that_has_ended_fails_loudly() -> None:
    with pytest.raises(AssertionError, match="step 1 of a script of 0"):
        asyncio.run(ScriptedGenerate([])(ASK, MEMORY_TOOLS))


def test_a_scripted_endpoint_notes_what_it_was_asked() -> None:
    chat = ScriptedChat(["yes", ChatReply(text="cut", is_truncated=True)])
    assert asyncio.run(chat.chat(ASK, schema={"type": "object"}, max_tokens=3)) == "yes"
    assert asyncio.run(chat.complete(ASK)).is_truncated
    assert (chat.requests[0]["schema"], chat.requests[0]["max_tokens"], chat.requests[1]["schema"]) == ({"type": "object"}, 3, None)


def test_judges_and_episodes_import_without_openai_numpy_or_torch() -> None:
    blocked = "; ".join(f"sys.modules[{name!r}] = None" for name in ("openai", "torch", "numpy", "ray", "verl", "vllm"))
    imports = "import napmem_rl.rewards.judge, napmem_rl.systems.napmem.episode, napmem_rl.systems.napmem.reward, napmem_rl.llm.sample"
    done = subprocess.run([sys.executable, "-c", f"import sys; {blocked}; {imports}"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
