"""A reply as people read it on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from napmem_rl.assistant.asking import Evidence, Reply
from napmem_rl.assistant.terminal import flatten

MAX_SHOWN = 5
_QUOTE = 220  # characters of a memory
_STATUS = {
    "over_budget": "the policy wanted to look further than it is allowed to",
    "truncated": "the policy was cut at its length limit before it answered",
    "error_parse": "the policy wrote something that cannot be read",
    "error_tool": "looking into memory failed",
    "error_llm": "the model could not be reached, or failed",
}


def render_answer(reply: Reply) -> str:
    """The answer in one paragraph, an abstention and a failure as such."""
    if reply.answer is None:
        detail = f": {flatten(reply.detail, 300)}" if reply.detail else ""
        return f"No answer; {_STATUS.get(reply.status, reply.status)}{detail}"
    answer = "\n".join(flatten(line) for line in reply.answer.splitlines() if line.strip())
    if reply.unread_words and reply.is_abstention:
        nearest = f" The nearest: {answer}" if reply.evidence else ""
        return f"Not in this memory, it seems: nothing that was read says {', '.join(reply.unread_words)}.{nearest}"
    return f"Not in this memory, says the policy: {answer}" if reply.is_abstention else answer


def render_reasons(reply: Reply, *, max_shown: int = MAX_SHOWN) -> Iterator[str]:
    """What was looked up and what was read, a line each."""
    if reply.steps:
        yield "looked up:"
        for step in reply.steps:
            asked = ", ".join(flatten(str(value), 100) for value in step.arguments.values())
            yield f"  {step.tool}({asked}) -> {step.failure or ' '.join(step.item_ids)}"
    elif not reply.evidence:
        yield "nothing in memory was read"
    if reply.evidence:
        holding = sum(one.holds_answer for one in reply.evidence)
        mark = "; * has the words of the answer" if holding else ""
        noun = "memory" if len(reply.evidence) == 1 else "memories"
        yield f"read {len(reply.evidence)} {noun}{mark}:"
        yield from (_render_evidence(one) for one in reply.evidence[:max_shown])
        if len(reply.evidence) > max_shown:
            yield f"  … and {len(reply.evidence) - max_shown} more (--all shows them)"
    if reply.unread_words and not reply.is_abstention:
        yield f"note: nothing that was read says {', '.join(reply.unread_words)}"
    if reply.answer is not None and reply.detail:
        yield f"note: {flatten(reply.detail, 300)}"
    yield f"by {flatten(reply.policy, 120)}, bank {flatten(reply.bank_id, 120)}, version {reply.version}"


def _render_evidence(one: Evidence) -> str:
    sources = f" <- {' '.join(one.source_ids[:8])}{' …' if len(one.source_ids) > 8 else ''}" if one.source_ids else ""
    return f"{'*' if one.holds_answer else ' '} {one.id}  {one.time[:10]}  {flatten(one.who, 60)}: {flatten(one.text, _QUOTE)}{sources}"
