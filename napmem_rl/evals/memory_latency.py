"""How long one search takes, in one thread and with the query's vector at hand, beside plain bm25s and plain faiss over the same passages.

The passages are those of `memory_scale`; their vectors are unit rows around a few thousand centres, seeded by the text, since uniformly random ones resemble
no embedding. Every search is a new query.
"""

from __future__ import annotations

import random
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from napmem_rl.evals.memory_scale import SESSION_MESSAGES, generate_session
from napmem_rl.memory.bank_tables import render_message_passage
from napmem_rl.retrieval.bm25 import tokenize_words
from napmem_rl.retrieval.index import PassageIndex
from napmem_rl.retrieval.passages import PassageList, SearchFilter
from napmem_rl.schema import Message

DIM = 384
NUM_CENTRES = 2000
NUM_QUERIES = 200
K = 5


class ClusteredEncoder:
    """Unit rows around fixed centres, seeded by the text; no model."""

    name, dim = f"clustered-{DIM}", DIM

    def __init__(self) -> None:
        self._centres = np.random.default_rng(0).standard_normal((NUM_CENTRES, DIM), dtype=np.float32)
        self._rows: dict[str, np.ndarray] = {}

    def remember(self, texts: Sequence[str]) -> None:
        """Encode texts now, so that a search finds their rows ready."""
        self._rows.update(zip(texts, self.encode(texts), strict=True))

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """See `retrieval.encoder.Encoder`."""
        if len(texts) == 1 and texts[0] in self._rows:
            return self._rows[texts[0]][None]
        rows = np.empty((len(texts), DIM), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            seed = zlib.crc32(text.encode())
            row[:] = self._centres[seed % NUM_CENTRES] + 0.8 * np.random.default_rng(seed).standard_normal(DIM, dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def measure_latency(sizes: Sequence[int], *, report: Callable[[str], None]) -> list[dict[str, Any]]:
    """Milliseconds of a search of K passages, p50 over NUM_QUERIES queries.

    Args:
        sizes: numbers of passages.
        report: takes progress, one line at a time.

    Returns:
        One row a size: the fused ranking, the same limited by time and role, reciprocal rank fusion, bm25s, faiss' flat index, and how the fused search
        relates to the sum of the two.
    """
    import faiss

    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        rows = []
        for size in sizes:
            rows.append(_measure_size(size))
            report(f"latency: {size} passages")
        return rows
    finally:
        faiss.omp_set_num_threads(threads)


def _measure_size(size: int) -> dict[str, Any]:
    messages = [message for number in range(-(-size // SESSION_MESSAGES)) for message in generate_session(number)][:size]
    texts = [render_message_passage(message) for message in messages]
    queries = _draw_queries(texts)
    encoder = ClusteredEncoder()
    encoder.remember(queries)
    filtered = SearchFilter(before=messages[size // 2].time, kinds=("user",))
    with tempfile.TemporaryDirectory() as scratch:
        started = time.perf_counter()
        fused = PassageIndex(_list_passages(messages, texts), level="raw", encoder=encoder, directory=Path(scratch))
        build_s = time.perf_counter() - started
        rrf = PassageIndex(_list_passages(messages, texts), level="raw", encoder=encoder, directory=Path(scratch), ranking="rrf")
        row = {
            "passages": size,
            "fused_p50_ms": _time(lambda query: fused.search(query, k=K), queries),
            "fused_filtered_p50_ms": _time(lambda query: fused.search(query, k=K, where=filtered), queries),
            "rrf_p50_ms": _time(lambda query: rrf.search(query, k=K), queries),
        }
    row |= {"bm25s_p50_ms": _time_bm25s(texts, queries), "faiss_flat_p50_ms": _time_faiss(encoder, texts, queries)}
    return row | {"fused_to_plain": row["fused_p50_ms"] / (row["bm25s_p50_ms"] + row["faiss_flat_p50_ms"]), "build_s": build_s}


def _list_passages(messages: Sequence[Message], texts: Sequence[str]) -> PassageList:
    return PassageList(
        texts,
        [message.time for message in messages],
        kinds=[message.role for message in messages],
        sessions=[message.session_id for message in messages],
        speakers=[message.speaker for message in messages],
    )


def _draw_queries(texts: Sequence[str]) -> list[str]:
    """Questions of four words of one passage each."""
    rng = random.Random(0)
    queries = []
    for _ in range(NUM_QUERIES):
        words = rng.choice(texts).partition(": ")[2].split()
        queries.append(f"What did Ana say about the {' '.join(rng.sample(words, min(4, len(words))))}?")
    return queries


def _time(search: Callable[[str], Any], queries: Sequence[str]) -> float:
    """p50 in milliseconds; a few searches come before, uncounted."""
    for query in queries[:5]:
        search(query)
    times = []
    for query in queries:
        started = time.perf_counter()
        search(query)
        times.append(1000 * (time.perf_counter() - started))
    return float(np.median(times))


def _time_bm25s(texts: Sequence[str], queries: Sequence[str]) -> float:
    import bm25s

    index = bm25s.BM25()
    index.index([tokenize_words(text) for text in texts], show_progress=False)
    return _time(lambda query: index.retrieve([tokenize_words(query)], k=min(20, len(texts)), show_progress=False), queries)


def _time_faiss(encoder: ClusteredEncoder, texts: Sequence[str], queries: Sequence[str]) -> float:
    import faiss

    index = faiss.IndexFlatIP(DIM)
    index.add(encoder.encode(texts))
    return _time(lambda query: index.search(encoder.encode([query]), min(20, len(texts))), queries)
