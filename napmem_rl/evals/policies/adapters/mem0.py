"""Mem0 in place of the bank, by its own package (mem0ai 2.2.1, ``pip install napmem-rl[mem0]``; not among the locked versions).

Mem0 stores what it is told and searches it; our reader answers from what it finds. Two ways of telling it:

- ``mem0_raw``: every message as it was said (Mem0's ``infer=False``). Runs offline.
- ``mem0``: each message and its reply, out of which Mem0's own pipeline writes memories through a language model, the one that `policy` names; a call or more a
  pair of messages, once a bank and process.

The encoder is the recipe's, so that both stores see the same vectors. Its history database and its Qdrant collection lie in a temporary directory. Memories
written from what was said after the question are left out of what a search found. Mem0 says nothing of provenance: what it wrote rests on the pair of messages
it was told then, a wider claim than a record's. Without its extras ``nlp`` and ``extras`` (spaCy, fastembed) Mem0 searches by vectors alone, as it says itself.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from napmem_rl.config.evaluation_sections import ADAPTERS, PolicyConfig
from napmem_rl.config.sections import MemoryConfig
from napmem_rl.errors import ConfigError
from napmem_rl.evals.policies.contexts import Context, Passage
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.retrieval.encoder import Encoder, load_encoder
from napmem_rl.schema import Message, Task

if TYPE_CHECKING:
    from mem0 import Memory

INFERRED, RAW = ADAPTERS
MESSAGES_A_TIME = 2  # that Mem0 is told at once where it writes memories itself: a message and its reply
WIDER = 3  # searches ask for so many times `top_k`, since later memories are left out afterwards


class Mem0Context:
    """A `ContextSource` over Mem0's memories of each bank; a bank is told once, at its first question."""

    has_memory = True

    def __init__(self, policy: PolicyConfig, encoder: Encoder, *, infers: bool) -> None:
        """Args:
            policy: `top_k`, and the endpoint of Mem0's language model where `infers`.
            encoder: of memories and queries.
            infers: let Mem0 write memories; False stores messages as they are.
        """
        self._policy, self._encoder, self._infers = policy, encoder, infers
        self._directory = Path(tempfile.mkdtemp(prefix="napmem-mem0-"))
        self._stores: dict[tuple[str, str], Memory] = {}
        self._lock = threading.Lock()  # Mem0's local Qdrant takes one caller at a time

    async def find(self, task: Task, bank: MemoryBank) -> Context:
        """Mem0's best memories that were there at the question, best first."""
        return Context(passages=await asyncio.to_thread(self._find, task, bank), is_ranked=True)

    async def close(self) -> None:
        """Forget everything."""
        for store in self._stores.values():
            store.vector_store.client.close()
        self._stores.clear()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _find(self, task: Task, bank: MemoryBank) -> tuple[Passage, ...]:
        with self._lock:
            store = self._stores.get((bank.bank_id, bank.version)) or self._tell(bank)
            found = store.search(task.question, filters={"user_id": bank.bank_id}, top_k=self._policy.top_k * WIDER, threshold=0.0)["results"]
        passages = (_as_passage(row, place) for place, row in enumerate(found))
        return tuple(passage for passage in passages if task.asked_at is None or passage.time <= task.asked_at)[: self._policy.top_k]

    def _tell(self, bank: MemoryBank) -> Memory:
        store = _open_store(self._policy, self._encoder, self._directory / f"{len(self._stores)}")
        size = MESSAGES_A_TIME if self._infers else 1
        for batch in _batches(bank.messages, size):
            metadata = {"time": batch[-1].time, "message_ids": [message.message_id for message in batch]}
            told = [{"role": message.role, "content": _render(message)} for message in batch]
            store.add(told, user_id=bank.bank_id, infer=self._infers, metadata=metadata)
        self._stores[bank.bank_id, bank.version] = store
        return store


def build_mem0(name: str, policy: PolicyConfig, memory: MemoryConfig) -> Mem0Context:
    """The adapter of this name.

    Raises:
        ConfigError: Mem0 is not installed, there is no encoder, or ``mem0`` without an endpoint whose model could write.
    """
    if importlib.util.find_spec("mem0") is None:
        raise ConfigError.of(f"policy.adapter {name}", "Mem0 is not installed", fix="Install it with `pip install napmem-rl[mem0]`.")
    if name == INFERRED and policy.engine != "endpoint":
        fix = f"Set policy.engine=endpoint, or policy.adapter={RAW} to store messages as they are."
        raise ConfigError.of(f"policy.adapter {name}", "needs the language model of an endpoint to write memories", got=policy.engine, fix=fix)
    encoder = load_encoder(memory.encoder, device=memory.encoder_device)
    if encoder is None:
        raise ConfigError.of(f"policy.adapter {name}", "needs vectors", got=memory.encoder, fix="Set memory.encoder=minilm.")
    return Mem0Context(policy, encoder, infers=name == INFERRED)


class _Embedder:
    """Our encoder as Mem0 calls one."""

    def __init__(self, encoder: Encoder, config: Any) -> None:
        self._encoder, self.config = encoder, config

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return self._encoder.encode([text])[0].tolist()

    def embed_batch(self, texts: Sequence[str], memory_action: str = "add") -> list[list[float]]:
        return self._encoder.encode(list(texts)).tolist()


def _open_store(policy: PolicyConfig, encoder: Encoder, directory: Path) -> Memory:
    os.environ.setdefault("MEM0_TELEMETRY", "False")  # read when the package is imported
    os.environ.setdefault("MEM0_DIR", str(directory.parent))
    from mem0 import Memory

    key = os.environ.get(policy.api_key_env, "") if policy.api_key_env else ""
    model = {"model": policy.model, "openai_base_url": policy.base_url} if policy.engine == "endpoint" else {}
    vectors = {"path": str(directory / "vectors"), "collection_name": "bank", "embedding_model_dims": encoder.dim}
    store = Memory.from_config(
        {
            "vector_store": {"provider": "qdrant", "config": vectors},
            "embedder": {"provider": "openai", "config": {"api_key": "none", "embedding_dims": encoder.dim}},  # never asked: replaced below
            "llm": {"provider": "openai", "config": {"api_key": key or "none", "temperature": 0.0} | model},
            "history_db_path": str(directory / "history.db"),
        }
    )
    store.embedding_model = _Embedder(encoder, store.embedding_model.config)  # Mem0 takes none of one's own by configuration
    return store


def _batches(messages: Sequence[Message], size: int) -> Iterator[list[Message]]:
    """Messages in order, up to `size` of one session together."""
    batch: list[Message] = []
    for message in messages:
        if batch and (len(batch) == size or batch[-1].session_id != message.session_id):
            yield batch
            batch = []
        batch.append(message)
    if batch:
        yield batch


def _render(message: Message) -> str:
    image = f" [image: {message.caption}]" if message.caption else ""
    return f"{message.speaker}: {message.text}{image}"


def _as_passage(row: Mapping[str, Any], place: int) -> Passage:
    metadata = row.get("metadata") or {}
    return Passage(text=row["memory"], time=metadata.get("time", ""), place=place, message_ids=tuple(metadata.get("message_ids", ())))
