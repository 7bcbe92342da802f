"""A judge's decision, and how it is read out of a model's reply: one JSON object, strictly, never a word looked for in a text."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from napmem_rl.llm.structured import refuse_repeats

VERDICT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"verdict": {"type": "string", "enum": ["correct", "incorrect"]}, "reason": {"type": "string"}},
    "required": ["verdict", "reason"],
    "additionalProperties": False,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A judge's decision, with the reason in words."""

    is_correct: bool
    reason: str


def parse_verdict(reply: str) -> Verdict | None:
    """Read a verdict: one JSON object with exactly `verdict` and `reason`, alone or in one code fence; None for anything else."""
    fenced = re.fullmatch(r"\s*```(?:json)?\s*(.*?)\s*```\s*", reply, re.DOTALL)
    try:
        value = json.loads(fenced[1] if fenced else reply, object_pairs_hook=refuse_repeats)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or set(value) != {"verdict", "reason"} or not isinstance(value["reason"], str):
        return None
    return Verdict(is_correct=value["verdict"] == "correct", reason=value["reason"]) if value["verdict"] in ("correct", "incorrect") else None
