"""Demonstrations of the episode's format, played with the real tools and kept as the very tokens that a rollout would have.

A script takes the policy's place in `run_episode`: it searches with the question's own words and then gives the gold answer. Only episodes whose results
hold gold evidence are kept: at least one gold message, so a question that rests on several may be answered from a part of them. Prompts, tool results and
masks come from the same code as in training (`TokenContext`, `build_sample`): there is no second rendering that could drift from the first.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from napmem_rl.atomic import open_replacement
from napmem_rl.config.sections import AgentConfig, MemoryConfig
from napmem_rl.errors import DataError
from napmem_rl.llm.base import AssistantTurn
from napmem_rl.llm.sample import build_sample
from napmem_rl.llm.token_context import TokenContext, encode_plain
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.retrieval.bm25 import tokenize_words
from napmem_rl.schema import AnswerKey, Status, Task, ToolCall, Trajectory
from napmem_rl.systems.napmem.episode import Toolbox, run_episode
from napmem_rl.tools.memory_tools import MemoryToolbox, ToolLimits
from napmem_rl.tools.parse import parse_turn, render_call
from napmem_rl.tools.spec import ToolSpec

_QUESTION_WORDS = frozenset("who whom whose what when where which why how do does did is are was were has have had can could would".split())
SEARCHES = ("search_records", "search_conversation")


@dataclass(frozen=True, kw_only=True, slots=True)
class Demonstration:
    """One episode as tokens. `loss_mask` is 1 exactly on the policy's own tokens; both [L]."""

    task_id: str
    token_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.token_ids) != len(self.loss_mask):
            raise ValueError(f"Demonstration {self.task_id}: {len(self.token_ids)} tokens, {len(self.loss_mask)} mask entries; expected as many")
        if not any(self.loss_mask) or self.loss_mask[0]:
            raise ValueError(f"Demonstration {self.task_id}: the mask must be 0 on the first token and 1 somewhere")


class ScriptedTokens:
    """A `Generate` that says the texts it is handed, with the tokens an engine would have sampled for them. One episode each."""

    def __init__(self, next_text: Callable[[], str], *, tokenizer: Any, tool_format: str) -> None:
        """`next_text` gives the text of the next turn when its time comes, so that a demonstrator can look at the results first."""
        self._next_text = next_text
        self._tokenizer = tokenizer
        self._tool_format = tool_format
        self._context = TokenContext(tokenizer)
        self._num_messages = 0

    async def __call__(self, messages: list[dict[str, Any]], tools: Sequence[ToolSpec]) -> AssistantTurn:
        """The next text of the script as a turn."""
        if self._num_messages == 0:
            self._context.start(messages, tools)
        else:
            self._context.append_tool_results([message["content"] for message in messages[self._num_messages + 1 :]])
        self._num_messages = len(messages)
        text = self._next_text()
        prompt_ids, response_ids = self._context.token_ids, self._encode_turn(text)
        self._context.append_response(response_ids)
        parsed = parse_turn(text, tool_format=self._tool_format, tools=tools)
        return AssistantTurn(text=text, parsed=parsed, prompt_ids=tuple(prompt_ids), response_ids=tuple(response_ids))

    def _encode_turn(self, text: str) -> list[int]:
        """Tokens of a turn and its end. The markup of calls may be added tokens of the vocabulary; special tokens may not come up."""
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        if set(ids) & set(self._tokenizer.all_special_ids):
            raise DataError.of("demonstration", "the text of a turn holds a special token", got=text, fix="Leave this question out.")
        return [*ids, self._context.end_of_turn_id]


async def play(task: Task, next_text: Callable[[], str], toolbox: Toolbox, tokenizer: Any, *, agent: AgentConfig) -> tuple[Trajectory, Demonstration]:
    """One episode with a demonstrator in the policy's place, and its tokens."""
    generate = ScriptedTokens(next_text, tokenizer=tokenizer, tool_format=agent.tool_format)
    trajectory = await run_episode(task, generate, toolbox, agent)
    sample = build_sample(trajectory)
    mask = (*([0] * len(sample.prompt_ids)), *sample.response_mask)
    return trajectory, Demonstration(task_id=task.task_id, token_ids=(*sample.prompt_ids, *sample.response_ids), loss_mask=mask)


def build_demonstrations(
    pairs: Sequence[tuple[Task, AnswerKey]],
    open_bank: Callable[[str], MemoryBank],
    tokenizer: Any,
    *,
    agent: AgentConfig,
    memory: MemoryConfig,
    count: int,
) -> list[Demonstration]:
    """Demonstrate up to `count` of the questions, in the order of the SHA-256 of their task ids.

    Args:
        pairs: questions of the TRAINING split, with keys that name gold evidence.
        open_bank: bank id -> bank.
        tokenizer: of the policy.
        agent: limits and format, as in the training that follows.
        memory: how many results a search returns.
        count: how many to make.

    Raises:
        DataError: no question could be demonstrated within the limits.
    """
    ordered = sorted(pairs, key=lambda pair: _digest(pair[0].task_id))
    made: list[Demonstration] = []
    tried = 0
    for task, key in ordered:
        if len(made) == count:
            break
        tried += 1
        toolbox_of = _toolbox_builder(open_bank(task.bank_id), task, tokenizer, agent, memory)
        demonstration = asyncio.run(demonstrate(task, key, toolbox_of, tokenizer, agent=agent))
        made += [demonstration] if demonstration else []
    if not made:
        problem = f"none of {tried} questions could be demonstrated"
        fix = "Raise agent.max_context_tokens, or give rows with evidence."
        raise DataError.of("demonstrations", problem, expected="gold evidence within reach of one or two searches", fix=fix)
    return made


async def demonstrate(task: Task, key: AnswerKey, toolbox_of: Callable[[], MemoryToolbox], tokenizer: Any, *, agent: AgentConfig) -> Demonstration | None:
    """The first script of `scripts_of` that finds gold evidence and fits the limits, as tokens; None where there is none."""
    for texts in scripts_of(task, key, agent=agent):
        trajectory, demonstration = await play(task, iter(texts).__next__, toolbox_of(), tokenizer, agent=agent)
        if trajectory.status is Status.COMPLETED and _has_evidence(trajectory, key) and len(demonstration.token_ids) <= agent.max_context_tokens:
            return demonstration
    return None


def scripts_of(task: Task, key: AnswerKey, *, agent: AgentConfig) -> Iterator[list[str]]:
    """Texts of the turns of each script to try: no call for a question that needs no memory, else one search or, where that is not enough, two.

    Which level is searched first changes from task to task, so that no level becomes a habit. Every text closes on one answer, the first reference.
    """
    answer = f"<answer>{key.references[0]}</answer>"
    if not task.needs_memory:
        yield [answer]
        return
    first, second = SEARCHES if _digest(task.task_id)[-1] in "02468ace" else SEARCHES[::-1]
    calls = {name: render_call(ToolCall(name=name, arguments={"query": extract_keywords(task.question)}), agent.tool_format) for name in SEARCHES}
    yield [calls[first], answer]
    yield [calls[second], answer]
    if agent.max_tool_steps > 1:
        yield [calls[first], calls[second], answer]


def extract_keywords(question: str) -> str:
    """The question's words as they stand, without question words and those that a search ignores; the whole question where nothing is left."""
    words = [word.strip("?!.,;:\"'()") for word in question.split()]
    return " ".join(word for word in words if word.lower() not in _QUESTION_WORDS and tokenize_words(word)) or question


def save_demonstrations(path: Path, demonstrations: Sequence[Demonstration]) -> None:
    """Write one parquet file (columns task_id, input_ids, loss_mask), atomically."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "task_id": [demonstration.task_id for demonstration in demonstrations],
            "input_ids": pa.array([list(demonstration.token_ids) for demonstration in demonstrations], pa.list_(pa.int32())),
            "loss_mask": pa.array([list(demonstration.loss_mask) for demonstration in demonstrations], pa.list_(pa.int8())),
        }
    )
    with open_replacement(path) as file:
        pq.write_table(table, file)


def load_demonstrations(path: Path) -> list[Demonstration]:
    """Read what `save_demonstrations` wrote.

    Raises:
        DataError: missing, not parquet, other columns, a mask that does not fit.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    what = f"demonstrations {path}"
    try:
        rows: list[Mapping[str, Any]] = pq.read_table(path, columns=["task_id", "input_ids", "loss_mask"]).to_pylist()
        return [Demonstration(task_id=row["task_id"], token_ids=tuple(row["input_ids"]), loss_mask=tuple(row["loss_mask"])) for row in rows]
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        raise DataError.of(what, f"cannot be read ({error})", expected="parquet with task_id, input_ids and loss_mask") from error


def _toolbox_builder(bank: MemoryBank, task: Task, tokenizer: Any, agent: AgentConfig, memory: MemoryConfig) -> Callable[[], MemoryToolbox]:
    limits = ToolLimits(top_k=memory.top_k, max_result_tokens=agent.max_result_tokens, max_episode_tokens=agent.max_episode_tool_tokens)
    return lambda: MemoryToolbox(bank, asked_at=task.asked_at, limits=limits, count_tokens=lambda text: len(encode_plain(tokenizer, text)))


def _has_evidence(trajectory: Trajectory, key: AnswerKey) -> bool:
    """Whether the results rest on a gold message; a question that needs none has it from the start."""
    if not trajectory.task.needs_memory:
        return True
    return any(set(result.message_ids) & set(key.evidence_ids) for result in trajectory.tool_results)


def _digest(task_id: str) -> str:
    return hashlib.sha256(task_id.encode()).hexdigest()
