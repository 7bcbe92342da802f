"""Who decides whether a final answer is correct. A judge that gives no usable verdict raises JudgeError: the trajectory is then abstained from.

Multiple choice is decided by the exact letter under every judge. Open questions are decided by what their references are (`AnswerKey.kind`): accepted
answers, a rubric, or the reason why there is no answer. A verdict is a JSON object that is read strictly, never a word looked for in a text; what is graded
reaches a model as data (`judge_request`), by the rules of one of the protocols (`judge_protocols`).
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from napmem_rl.config.sections import JudgeConfig
from napmem_rl.errors import ConfigError, DataError, JudgeError, LLMError
from napmem_rl.llm.base import ChatClient
from napmem_rl.llm.openai_client import OpenAIChat
from napmem_rl.llm.served import SERVED, ServedEndpoint, require_served
from napmem_rl.rewards.abstention import is_abstention
from napmem_rl.rewards.judge_cache import VerdictCache
from napmem_rl.rewards.judge_protocols import REMINDER, Instruction, find_protocol
from napmem_rl.rewards.judge_request import build_messages
from napmem_rl.rewards.text_match import match_answer, normalise
from napmem_rl.rewards.verdict import VERDICT_SCHEMA, Verdict, parse_verdict
from napmem_rl.schema import AnswerKey, AnswerKind, Task

_MAX_TRIES = 3  # replies asked for until one holds a verdict


class Judge(Protocol):
    """Decides whether an answer is correct. `name` tells apart judges whose verdicts may differ."""

    name: str

    async def judge(self, task: Task, key: AnswerKey, answer: str) -> Verdict:
        """Raises JudgeError where there is no usable verdict, DataError where the answer key cannot be used."""
        ...


class LexicalJudge:
    """Open questions by equal text, date or number (`text_match`), unanswerable ones by whole-answer forms of not knowing (`abstention`).

    Needs no model. Strict: other wording counts as incorrect. It cannot judge a rubric, and says so.
    """

    name = "lexical"

    async def judge(self, task: Task, key: AnswerKey, answer: str) -> Verdict:
        """Raises JudgeError for a rubric, DataError where the answer key cannot be used."""
        return self.decide(task, key, answer)

    def decide(self, task: Task, key: AnswerKey, answer: str) -> Verdict:
        """The same, without an event loop."""
        check_key(task, key)
        if task.options:
            return judge_choice(task, key, answer)
        if key.kind is AnswerKind.RUBRIC:
            problem = "cannot judge a rubric: no text equals one"
            raise JudgeError.of(f"judge {self.name}, task {task.task_id}", problem, fix="A language model can: judge.kind=openai.")
        if key.kind is AnswerKind.UNANSWERABLE:
            return _judge_abstention(key, answer)
        rule = match_answer(answer, key.references)
        return Verdict(is_correct=rule is not None, reason=f"equal {rule}" if rule else "equals no reference")


class LLMJudge:
    """Open questions by a chat model with a structured verdict.

    Args:
        client: the model; sampling settings are the client's.
        protocol: by which rules (`judge_protocols`).
        cache_dir: verdicts are kept there, keyed by model, instruction and its version, `settings`, question, references and answer; None keeps none. May be
            shared among processes.
        settings: what else of the client decides its verdicts, such as its endpoint.

    Raises:
        ConfigError: an unknown protocol.
    """

    def __init__(self, client: ChatClient, *, protocol: str = "napmem", cache_dir: str | None = None, settings: Mapping[str, Any] | None = None) -> None:
        self._protocol = find_protocol(protocol)
        self.name = f"{client.name}/{self._protocol.version}"
        self._client = client
        self._cache = VerdictCache(cache_dir) if cache_dir is not None else None
        self._settings = dict(settings or {})

    async def judge(self, task: Task, key: AnswerKey, answer: str) -> Verdict:
        """Raises JudgeError after all retries, DataError where the answer key cannot be used."""
        check_key(task, key)
        if task.options:
            return judge_choice(task, key, answer)
        instruction = self._protocol.choose(task, key)
        data = {"question": task.question, instruction.field: list(key.references), "answer": answer}
        if self._cache is None:
            return await self._ask(task.task_id, instruction, data)
        stamp = {"judge": self._client.name, "instruction": instruction.name, "prompt_version": instruction.version, "settings": self._settings}
        return await self._cache.fetch(stamp | data, lambda: self._ask(task.task_id, instruction, data))

    async def check_connection(self) -> None:
        """Ask for one short reply, whatever it says. Raises ConfigError where the endpoint, the key or the model are unusable."""
        if isinstance(self._client, OpenAIChat):
            await self._client.check_endpoint()

    async def check_endpoint(self) -> None:
        """Grade one plain example, past the cache. Raises ConfigError where the endpoint, the key, the model or its verdicts are unusable."""
        await self.check_connection()
        task = Task(task_id="preflight", bank_id="preflight", question="Which city is the capital of France?", category="", needs_memory=False)
        instruction = self._protocol.choose(task, AnswerKey(task_id="preflight", references=("Paris",)))
        try:
            verdict = await self._ask(task.task_id, instruction, {"question": task.question, instruction.field: ["Paris"], "answer": "Paris"})
        except JudgeError as error:
            raise ConfigError.of(f"judge {self.name}", "gives no usable verdict", got=error.message, fix="Choose another judge.model.") from error
        if not verdict.is_correct:
            raise ConfigError.of(f"judge {self.name}", "rejects an answer equal to its reference", got=verdict.reason, fix="Choose another judge.model.")

    async def close(self) -> None:
        """Close the client's connections, where it has any."""
        if isinstance(self._client, OpenAIChat):
            await self._client.close()

    async def _ask(self, task_id: str, instruction: Instruction, data: Mapping[str, Any]) -> Verdict:
        """Ask until a reply holds a verdict; each retry shows the model its unusable reply."""
        messages = build_messages(instruction.system, data)
        reply = ""
        for _ in range(_MAX_TRIES):
            try:
                reply = await self._client.chat(messages, schema=VERDICT_SCHEMA)
            except LLMError as error:
                raise JudgeError.of(f"judge {self.name}, task {task_id}", "could not be asked", got=error.message) from error
            verdict = parse_verdict(reply)
            if verdict is not None:
                return verdict
            messages = [*messages, {"role": "assistant", "content": reply}, {"role": "user", "content": REMINDER}]
        raise JudgeError.of(f"judge {self.name}, task {task_id}", f"gave no verdict in {_MAX_TRIES} replies", got=reply, expected="the JSON object asked for")


def build_judge(config: JudgeConfig, served: ServedEndpoint | None = None) -> Judge:
    """The judge that a recipe names; `served` is the model beside training, for kind served.

    Raises:
        ConfigError: an unknown kind or protocol, a missing model or key, a cache for a sampled judge, or nothing is served.
    """
    if config.kind == "lexical":
        return LexicalJudge()
    if config.kind not in ("openai", SERVED):
        raise ConfigError.of("judge.kind", "is not a known judge", got=config.kind, expected="lexical, openai or served")
    if config.cache_dir is not None and config.temperature != 0:
        raise ConfigError.of("judge.cache_dir", "would give sampled verdicts again and again", got=config.temperature, expected="judge.temperature=0")
    known_as = None
    if config.kind == SERVED:
        served = require_served(served, "judge.kind")
        known_as, config = served.name, replace(config, base_url=served.base_url, model=served.model, api_key_env="")
    client = OpenAIChat(
        model=config.model,
        base_url=config.base_url,
        api_key_env=config.api_key_env,
        timeout_s=config.timeout_s,
        max_retries=config.max_retries,
        max_concurrency=config.max_concurrency,
        temperature=config.temperature,
    )
    settings = {"endpoint": known_as or client.endpoint, "temperature": config.temperature}
    return LLMJudge(client, protocol=config.protocol, cache_dir=config.cache_dir, settings=settings)


async def check_judge(judge: Judge) -> None:
    """Have a judging model grade one plain example; a judge without a model needs none. Raises ConfigError where its verdicts cannot be used."""
    if isinstance(judge, LLMJudge):
        await judge.check_endpoint()


def judge_choice(task: Task, key: AnswerKey, answer: str) -> Verdict:
    """Multiple choice: the answer must be the one letter, in either case, bare or as (B), B. or B)."""
    match = re.fullmatch(r"\(?([A-Za-z])\)?[.:]?", answer.strip())
    if match is None:
        return Verdict(is_correct=False, reason="not one option letter")
    letter = match[1].upper()
    return Verdict(is_correct=letter == key.references[0].upper(), reason=f"option {letter}")


def check_key(task: Task, key: AnswerKey) -> None:
    """Raises DataError where the key belongs to another task, holds no reference, or not exactly one letter of the options."""
    what = f"answer key of task {task.task_id}"
    if key.task_id != task.task_id:
        raise DataError.of(what, "belongs to another task", got=key.task_id)
    if not key.references or not all(reference.strip() for reference in key.references):
        raise DataError.of(what, "holds no usable reference", got=key.references, expected="at least one non-empty text")
    letters = string.ascii_uppercase[: len(task.options)]
    if task.options and not (len(key.references) == 1 and len(key.references[0]) == 1 and key.references[0].upper() in letters):
        raise DataError.of(what, "must hold the letter of one option", got=key.references, expected=f"one of {', '.join(letters)}")


def _judge_abstention(key: AnswerKey, answer: str) -> Verdict:
    """Right is to say that there is no answer, in a form of ours or in the words of the key."""
    if is_abstention(answer):
        return Verdict(is_correct=True, reason="says that it is not known")
    is_equal = any(normalise(answer) == normalise(reference) for reference in key.references)
    return Verdict(is_correct=is_equal, reason="equal text" if is_equal else "does not say that it is not known")
