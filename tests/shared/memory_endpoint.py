"""A model that writes memories, behind a real HTTP endpoint: it answers the four steps of the `llm` writer by simple rules, the same way every time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from judge_endpoint import serve_judge

from napmem_rl.memory.writers import llm_prompts as prompts


@dataclass
class MemoryModel:
    """Counts what it was asked, by step. `spoilt` names steps whose replies are prose; a message that says "garble" spoils the extraction of its batch."""

    asked: Counter[str] = field(default_factory=Counter)
    spoilt: set[str] = field(default_factory=set)
    url: str = ""

    def reply(self, messages: list[dict[str, Any]]) -> str:
        """The text of one reply."""
        system = messages[0]["content"]
        steps = {prompts.EXTRACT: "extract", prompts.RECONCILE: "reconcile"}
        step = steps.get(system) or ("topics" if system.startswith(prompts.TOPICS[:40]) else "profile" if system.startswith(prompts.PROFILE[:40]) else "check")
        self.asked[step] += 1
        if step == "check":
            return "ready"
        if step in self.spoilt or "garble" in messages[1]["content"]:
            return "I would rather not say."
        return json.dumps(getattr(self, f"_{step}")(json.loads(messages[1]["content"])))

    def _extract(self, data: dict[str, Any]) -> dict[str, Any]:
        said = [message for message in data["messages"] if message["role"] == "user"]
        texts = [f"{message['speaker']} said on {message['time'][:10]}: {message['text']}" for message in said]
        return {"records": [{"type": "fact", "text": text, "sources": [message["label"]]} for text, message in zip(texts, said, strict=True)]}

    def _reconcile(self, data: dict[str, Any]) -> dict[str, Any]:
        last = data["new"]["text"].split(": ")[-1]
        same = [item["label"] for item in data["related"] if item["text"].split(": ")[-1] == last]
        return {"decision": {"action": "skip", "same_as": same[0]} if same else {"action": "store"}}

    def _topics(self, data: dict[str, Any]) -> dict[str, Any]:
        narrative = "\n".join(f"- {item['text']} [{item['id']}]" for item in data["new_records"])
        create = {"do": "create", "title": data["new_records"][0]["text"][:60], "summary": "What was said.", "narrative": narrative}
        return {"actions": [create, {"do": "finish"}]}

    def _profile(self, data: dict[str, Any]) -> dict[str, Any]:
        return {"decision": {"action": "write", "text": f"Talks about much. [{data['topics'][0]['id']}]"}}


@contextmanager
def serve_memory_model() -> Iterator[MemoryModel]:
    """The model, listening; each request is said to have cost 100 and 20 tokens."""
    model = MemoryModel()
    model.url, stop = serve_judge(model.reply, usage=(100, 20))
    try:
        yield model
    finally:
        stop()
