"""The quickstart's data: synthetic users with their banks, the rows of each split, and the texts that cold-start the policy."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from napmem_rl.backend.bank_search import build_search
from napmem_rl.backend.tiny_sft import Document
from napmem_rl.config.sections import AgentConfig, MemoryConfig
from napmem_rl.data.demonstrations import play
from napmem_rl.data.rows import save_rows
from napmem_rl.data.world_demos import Demonstrator, Habits
from napmem_rl.data.world_practice import PracticeText, ReadableUser, build_practice
from napmem_rl.data.worlds import UNKNOWN, SyntheticQuestion, SyntheticUser, all_words, generate_user
from napmem_rl.llm.token_context import encode_plain
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.builder import build_bank
from napmem_rl.memory.storage import find_bank_dir
from napmem_rl.memory.writers.rules import build_pyramid
from napmem_rl.retrieval.encoder import Encoder, load_encoder
from napmem_rl.schema import AnswerKey, Status, Task, ToolCall, ToolResult
from napmem_rl.systems.napmem.episode import Toolbox
from napmem_rl.tools.memory_tools import MemoryToolbox, ToolLimits
from napmem_rl.tools.parse import render_call
from napmem_rl.tools.result_text import render_file, render_message, render_record

TEXTS_PER_USER = 8  # practice texts about one user, about
QUESTIONS_PER_READER = 36


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """One population of users, with `num_questions` questions each, cycling through the question types."""

    name: str
    num_users: int
    num_questions: int


def generate_split(split: Split, seed: int) -> list[SyntheticUser]:
    """The split's users; splits of one seed and splits of two seeds share no draw."""
    return [generate_user(f"{split.name}-{seed}", index, num_questions=split.num_questions) for index in range(split.num_users)]


def _build_banks(users: Sequence[SyntheticUser], banks_dir: Path, memory: MemoryConfig) -> dict[str, str]:
    """Runs in a worker process. Returns bank id -> version."""
    import torch

    torch.set_num_threads(1)
    encoder = load_encoder(memory.encoder)
    versions = {}
    for user in users:
        versions[user.bank_id] = build_bank(find_bank_dir(banks_dir, user.bank_id), bank_id=user.bank_id, messages=user.messages, writer=memory.writer)
        MemoryBank.open(find_bank_dir(banks_dir, user.bank_id), **build_search(memory, encoder)).build_index()
    return versions


def build_world(splits: Sequence[Split], seed: int, data_dir: Path, memory: MemoryConfig, *, num_workers: int, on_progress: Callable[[int, int], None]) -> None:
    """Build every user's bank with its vectors, and <split>.parquet for each split.

    Args:
        num_workers: processes, one thread each.
        on_progress: called with (banks built, banks in all).
    """
    users = {split.name: generate_split(split, seed) for split in splits}
    everyone = [user for members in users.values() for user in members]
    chunks = [everyone[i : i + 8] for i in range(0, len(everyone), 8)]
    with ProcessPoolExecutor(num_workers, mp_context=get_context("spawn")) as pool:
        built = 0
        for versions in pool.map(_build_banks, chunks, [data_dir / "banks"] * len(chunks), [memory] * len(chunks)):
            built += len(versions)
            on_progress(built, len(everyone))
    for name, members in users.items():
        items = [(question.task, question.key) for user in members for question in user.questions]
        random.Random(f"{name}-{seed}").shuffle(items)
        save_rows(data_dir / f"{name}.parquet", items, data_source=f"worlds/{name}")


class World:
    """The banks of a built world, opened once, and toolboxes over them."""

    def __init__(self, data_dir: Path, users: Sequence[SyntheticUser], memory: MemoryConfig, agent: AgentConfig, encoder: Encoder | None) -> None:
        self.users = tuple(users)
        self._limits = ToolLimits(top_k=memory.top_k, max_result_tokens=agent.max_result_tokens, max_episode_tokens=agent.max_episode_tool_tokens)
        search = build_search(memory, encoder)
        self.banks = {user.bank_id: MemoryBank.open(find_bank_dir(data_dir / "banks", user.bank_id), **search) for user in users}

    @property
    def items(self) -> list[tuple[Task, AnswerKey]]:
        """All questions with their keys, user by user."""
        return [(question.task, question.key) for user in self.users for question in user.questions]

    def toolbox_builder(self, count_tokens: Callable[[str], int]) -> Callable[[Task], MemoryToolbox]:
        """Builds a fresh toolbox over a task's own bank; `count_tokens` is the policy's."""
        return lambda task: MemoryToolbox(self.banks[task.bank_id], asked_at=task.asked_at, limits=self._limits, count_tokens=count_tokens)

    def texts(self) -> Iterator[str]:
        """Everything that a policy over these banks may read or write."""
        yield from (" ".join(all_words()), UNKNOWN, f"{UNKNOWN} No records found. No messages found. Unknown record id. Unknown message id.")
        for user in self.users:
            yield from (text for q in user.questions for text in (q.task.question, q.keywords, *q.key.references))
            yield from (str(value) for q in user.questions for call in q.plan for value in call.arguments.values())
            bank = self.banks[user.bank_id]
            yield from (render_message(message) for message in bank.messages)
            yield from (render_record(record) for record in bank.records)
            yield from ("\n".join(render_file(bank.item_of_file(name), bank.file(name) or "")) + f" {name}" for name in bank.file_names)


class RecordingToolbox:
    """A toolbox that remembers its results, so that a demonstrator can look at them."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox
        self.results: list[ToolResult] = []

    @property
    def file_names(self) -> Sequence[str]:
        """See `Toolbox.file_names`."""
        return self._toolbox.file_names

    async def call(self, call: ToolCall) -> ToolResult:
        """See `Toolbox.call`."""
        self.results.append(await self._toolbox.call(call))
        return self.results[-1]


def read_user(user: SyntheticUser) -> ReadableUser:
    """A user's history as tools would show it, without a bank on disk."""
    records, profile = build_pyramid(user.messages)
    return ReadableUser(
        user,
        messages={message.message_id: render_message(message) for message in user.messages},
        records={message_id: render_record(record) for record in records for message_id in record.source_ids},
        profile="\n".join(render_file(profile, profile.text)),
    )


def encode_practice(text: PracticeText, tokenizer: PreTrainedTokenizerFast) -> Document:
    """A practice text in the form of tool results and turns; only the answers are targets."""
    ids: list[int] = []
    mask: list[int] = []

    def add(part: str, is_target: int) -> None:
        tokens = tokenizer.encode(part, add_special_tokens=False)
        ids.extend(tokens)
        mask.extend([is_target] * len(tokens))

    if text.result:
        add(f"<|tool|>{text.result}<|end|>", 0)
    for question, answer in text.pairs:
        add(f"<|user|>{question}<|end|><|assistant|>", 0)
        add(f"<answer>{answer}</answer><|end|>", 1)
    return Document(ids, mask)


def encode_copying(tokenizer: PreTrainedTokenizerFast, rng: random.Random, *, num_words: int = 24) -> Document:
    """A random sequence of tokens, twice; the second time is the target."""
    words = [rng.randrange(len(tokenizer)) for _ in range(num_words)]
    return Document(words + words, [0] * (num_words + 1) + [1] * (num_words - 1))


def build_demonstrations(
    world: World, tokenizer: PreTrainedTokenizerFast, agent: AgentConfig, habits: Habits, *, number: int, rng: random.Random
) -> list[Document]:
    """Demonstrations of random questions of the world by a demonstrator with the given habits."""

    build_toolbox = world.toolbox_builder(lambda text: len(encode_plain(tokenizer, text)))

    async def build_one(question: SyntheticQuestion, seed: int) -> Document:
        toolbox = RecordingToolbox(build_toolbox(question.task))
        demonstrator = Demonstrator(question, habits, random.Random(seed), max_tool_steps=agent.max_tool_steps, file_names=toolbox.file_names)

        def next_text() -> str:
            decision = demonstrator.act(toolbox.results)
            return render_call(decision, agent.tool_format) if isinstance(decision, ToolCall) else f"<answer>{decision}</answer>"

        trajectory, played = await play(question.task, next_text, toolbox, tokenizer, agent=agent)
        assert trajectory.status is Status.COMPLETED, f"demonstration of {question.task.task_id} ended with {trajectory.status}: {trajectory.detail}"
        return Document(played.token_ids, played.loss_mask)

    async def build_all() -> list[Document]:
        questions = [question for user in world.users for question in user.questions]
        return [await build_one(rng.choice(questions), rng.randrange(1 << 30)) for _ in range(number)]

    return asyncio.run(build_all())


class Curriculum:
    """Pools of documents for `train_sft`: mostly practice at first, mostly demonstrations at the end.

    Practice is about users that are drawn for it and then forgotten. Read the same users over and over, and a policy learns their lives by heart instead
    of learning to read.
    """

    def __init__(
        self,
        population: str,
        demonstrations: Sequence[Document],
        tokenizer: PreTrainedTokenizerFast,
        rng: random.Random,
        *,
        start: float = 0.9,
        end: float = 0.3,
        until: float = 0.6,
        copying: float = 0.2,
        pool_size: int = 256,
    ) -> None:
        """Args:
        population: names the users to practise on; shares no user with any split.
        start, end: share of practice at the beginning and from `until` (a progress in (0, 1]) on; linear between them.
        copying: share of pure copying within practice.
        pool_size: documents a pool.
        """
        self._population, self._demonstrations, self._tokenizer, self._rng = population, list(demonstrations), tokenizer, rng
        self._start, self._end, self._until, self._copying, self._pool_size = start, end, until, copying, pool_size
        self._position = 0
        self._num_users = 0

    def next_documents(self, progress: float) -> list[Document]:
        """One pool for a progress in [0, 1), with fresh users to practise on."""
        first, self._num_users = self._num_users, self._num_users + self._pool_size // TEXTS_PER_USER
        users = [generate_user(self._population, index, num_questions=QUESTIONS_PER_READER) for index in range(first, self._num_users)]
        self._readers = [read_user(user) for user in users]
        share = max(self._end, self._start + (self._end - self._start) * progress / self._until)
        return [self._draw(share) for _ in range(self._pool_size)]

    def _draw(self, share: float) -> Document:
        draw = self._rng.random()
        if draw < share * self._copying:
            return encode_copying(self._tokenizer, self._rng)
        if draw < share:
            return encode_practice(build_practice(self._rng.choice(self._readers), self._rng), self._tokenizer)
        if self._position % len(self._demonstrations) == 0:
            self._rng.shuffle(self._demonstrations)
        self._position += 1
        return self._demonstrations[self._position % len(self._demonstrations)]
