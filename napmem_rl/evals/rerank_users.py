"""Users with questions, ready for a reranker: what each memory is searched by, which memories hold gold evidence, and the retriever's candidates.

A memory is one message as a bank indexes it (LoCoMo, where both speakers are people), or one exchange (LongMemEval): what the user said, cut as a summary would
be, is what searches look at; it holds that message and the replies to it. Candidates are the K memories nearest to the question by the encoder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from napmem_rl.atomic import open_replacement
from napmem_rl.data.source import DataSource, SourceBank
from napmem_rl.memory.bank_tables import render_message_passage
from napmem_rl.memory.writers.sentences import cut_at_word
from napmem_rl.retrieval.encoder import Encoder
from napmem_rl.schema import Message

MAX_KEY_CHARS = 400
CHUNK = 512  # texts of one file of stored vectors


@dataclass(frozen=True, kw_only=True, slots=True)
class RerankCase:
    """One question with its candidates. `group`: users of one group share what was said, and are held out together."""

    group: str
    user: str
    query: np.ndarray  # [d]
    memories: np.ndarray  # [K, d], nearest first
    is_gold: np.ndarray  # [K] bool, holds gold evidence
    num_gold: int  # memories of the user's bank that hold gold evidence


@dataclass(frozen=True, kw_only=True, slots=True)
class _Memory:
    key: str
    message_ids: frozenset[str]


def build_cases(
    source: DataSource, encoder: Encoder, *, by_exchange: bool, num_candidates: int, store: Path | None, report: Callable[[str], None]
) -> list[RerankCase]:
    """All questions of a source whose evidence is known.

    Args:
        source: banks and questions.
        encoder: of keys and questions.
        by_exchange: one memory for each exchange rather than each message.
        num_candidates: K.
        store: directory in which vectors are kept from run to run, in files of CHUNK texts; what was stopped goes on there.
        report: told what is encoded.
    """
    parts = list(source.parts())
    banks = {bank.bank_id: (bank, list(_list_memories(bank, by_exchange=by_exchange))) for part in parts for bank in part.banks}
    asked = [(task, key) for part in parts for task, key in part.items if key.evidence_ids]
    used = {task.bank_id for task, _ in asked}
    texts = [memory.key for bank_id in used for memory in banks[bank_id][1]] + [task.question for task, _ in asked]
    rows = encode_texts(encoder, texts, store=store, report=report)
    matrices = {bank_id: np.stack([rows[memory.key] for memory in banks[bank_id][1]]) for bank_id in used}
    cases = []
    for task, key in asked:
        bank, memories = banks[task.bank_id]
        gold = np.array([not memory.message_ids.isdisjoint(key.evidence_ids) for memory in memories])
        query = rows[task.question]
        nearest = np.argsort(-(matrices[task.bank_id] @ query), kind="stable")[:num_candidates]
        found = {"memories": matrices[task.bank_id][nearest], "is_gold": gold[nearest], "num_gold": int(gold.sum())}
        if gold.any():
            cases.append(RerankCase(group=bank.group_id, user=bank.bank_id, query=query, **found))
    return cases


def encode_texts(encoder: Encoder, texts: Sequence[str], *, store: Path | None, report: Callable[[str], None]) -> dict[str, np.ndarray]:
    """Text -> vector [d] float32, each text once; see `build_cases`."""
    unique = sorted(set(texts), key=lambda text: (len(text), text))
    rows: dict[str, np.ndarray] = {}
    for start in range(0, len(unique), CHUNK):
        chunk = unique[start : start + CHUNK]
        name = hashlib.sha256("\0".join([encoder.name, *chunk]).encode()).hexdigest()[:32]
        path = None if store is None else store / f"{name}.npy"
        if path is not None and path.is_file():
            vectors = np.load(path, allow_pickle=False)
        else:
            vectors = encoder.encode(chunk)
            report(f"encoded {start + len(chunk)} of {len(unique)} texts")
            if path is not None:
                with open_replacement(path, durable=False) as stream:
                    np.save(stream, vectors, allow_pickle=False)
        rows.update(zip(chunk, np.asarray(vectors, dtype=np.float32), strict=True))
    return rows


def _list_memories(bank: SourceBank, *, by_exchange: bool) -> Iterator[_Memory]:
    if not by_exchange:
        yield from (_Memory(key=render_message_passage(message), message_ids=frozenset({message.message_id})) for message in bank.messages)
        return
    open_exchange: list[Message] = []
    for message in bank.messages:
        is_new = message.role == "user" or (open_exchange and message.session_id != open_exchange[0].session_id)
        if open_exchange and is_new:
            yield _as_exchange(open_exchange)
            open_exchange = []
        open_exchange.append(message)
    if open_exchange:
        yield _as_exchange(open_exchange)


def _as_exchange(messages: Sequence[Message]) -> _Memory:
    return _Memory(key=cut_at_word(messages[0].text, MAX_KEY_CHARS), message_ids=frozenset(message.message_id for message in messages))
