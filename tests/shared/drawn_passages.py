"""Random passages with all their columns, and the search they should give, computed the slow way."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

import numpy as np

from napmem_rl.retrieval.bm25 import tokenize_words
from napmem_rl.retrieval.encoder import HashingEncoder
from napmem_rl.retrieval.fusion import FusionWeights
from napmem_rl.retrieval.passages import PassageList, SearchFilter

WORDS = [f"w{number}" for number in range(60)]
SPEAKERS = ["Ana", "Leo", "Mia"]


class HalfEncoder:
    """Hashed words at half precision already, so that storing vectors changes nothing; counts what it encodes."""

    name, dim = "half-64", 64

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._encoder = HashingEncoder(64)

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.seen += texts
        return self._encoder.encode(texts).astype(np.float16).astype(np.float32)


def draw_rows(num: int, seed: int) -> list[dict]:
    """Rows of passages: sessions of six, times that go back now and then, one in ten no longer live."""
    rng = random.Random(seed)
    rows = []
    for position in range(num):
        speaker = rng.choice(SPEAKERS)
        text = f"{speaker}: {' '.join(rng.choices(WORDS, k=rng.randrange(0, 9)))}"
        time = f"2024-{1 + (position // 40) % 12:02d}-{rng.randint(1, 28):02d}T10:00:00"
        rows.append({"text": text, "time": time, "kind": rng.choice(["user", "assistant"]), "session": f"s{position // 6}", "speaker": speaker})
        rows[-1]["live"] = rng.random() > 0.1
    return rows


def build_list(rows: Sequence[dict], *, ends: Sequence[int] | None = None) -> PassageList:
    columns = {name: [row[name] for row in rows] for name in ("text", "time", "kind", "session", "speaker", "live")}
    return PassageList(
        columns["text"], columns["time"], kinds=columns["kind"], sessions=columns["session"], speakers=columns["speaker"], live=columns["live"], ends=ends
    )


def draw_filter(rng: random.Random, rows: Sequence[dict]) -> SearchFilter:
    times = sorted(row["time"] for row in rng.choices(rows, k=2))
    return SearchFilter(
        before=rng.choice([None, times[1], times[1][:10]]),
        after=rng.choice([None, times[0]]),
        kinds=rng.choice([None, ("user",), ("user", "assistant"), ("nobody",)]),
        session_ids=rng.choice([None, None, tuple(row["session"] for row in rng.choices(rows, k=20))]),
    )


def takes_part(row: dict, where: SearchFilter) -> bool:
    return (
        row["live"]
        and (where.before is None or row["time"] <= where.before)
        and (where.after is None or row["time"] >= where.after)
        and (where.kinds is None or row["kind"] in where.kinds)
        and (where.session_ids is None or row["session"] in where.session_ids)
    )


def score_words(rows: Sequence[dict], query: str) -> list[float]:
    """BM25 by its formula."""
    passages = [Counter(tokenize_words(row["text"])) for row in rows]
    average = sum(passage.total() for passage in passages) / len(rows)
    scores = [0.0] * len(rows)
    for word in tokenize_words(query):
        frequency = sum(word in passage for passage in passages)
        idf = math.log(1 + (len(rows) - frequency + 0.5) / (frequency + 0.5))
        for position, passage in enumerate(passages):
            if word in passage:
                scores[position] += idf * passage[word] / (passage[word] + 1.5 * (0.25 + 0.75 * passage.total() / average))
    return scores


def score_vectors(rows: Sequence[dict], query: str) -> list[float]:
    encoder = HalfEncoder()
    return (encoder.encode([row["text"] for row in rows]) @ encoder.encode([query])[0]).tolist()


def rank(rows: Sequence[dict], scores: Sequence[float], eligible: Sequence[int]) -> list[int]:
    """Positions with a score, best first; scores that differ by rounding alone are equal, and the newer goes first."""
    hits = [position for position in eligible if round(scores[position], 5) > 0]
    return sorted(hits, key=lambda position: (-round(scores[position], 5), *([-ord(sign) for sign in rows[position]["time"]]), -position))


def fuse_slowly(rows: Sequence[dict], query: str, eligible: Sequence[int], vectors: bool) -> list[float]:
    """The fused scores as their definition says, passage by passage."""
    weights = FusionWeights()
    parts = [(1 - weights.dense if vectors else 1.0, score_words(rows, query))]
    if vectors:
        parts.append((weights.dense, score_vectors(rows, query)))
    own = [0.0] * len(rows)
    for weight, scores in parts:
        highest = max((scores[position] for position in eligible), default=0.0)
        for position in eligible:
            own[position] += weight * max(scores[position], 0.0) / highest if highest > 0 else 0.0
    named = {name for name in SPEAKERS if name.lower() in query.lower().split()}
    fused = [0.0] * len(rows)
    for position in eligible:
        around = [other for other in range(position - weights.reach, position + weights.reach + 1) if other in eligible and other != position]
        lent = [own[other] * weights.neighbours ** abs(other - position) for other in around if rows[other]["session"] == rows[position]["session"]]
        fused[position] = own[position] + max(lent, default=0.0)
        if fused[position] > 0 and rows[position]["speaker"] in named and len(named) < len(SPEAKERS):
            fused[position] += weights.speaker
    return fused
