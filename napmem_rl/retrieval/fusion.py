"""How scores of several kinds become one ranking: pure functions over arrays of scores.

`fuse_scores` is our own: keyword and vector scores, each divided by its highest, are added with weights; a passage gains from the best of the turns around it
in its session (the question before an answer, the remark after it), and where the query names a speaker or a date, from being theirs or near it. Its weights
were chosen on the six training conversations of LoCoMo's split, by the mean of recall@5, @10 and @20 over a grid of 540 settings; docs/algorithms.md holds what
each part is worth on the two others.

Reciprocal rank fusion: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods", SIGIR 2009:
score(d) = sum over rankings of 1 / (k + rank of d), ranks counted from 1, k = 60.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

RRF_K = 60
CANDIDATES = 20  # how deep each ranking is read, and at least twice k: on LoCoMo deeper rankings lower the recall (recall@5 .518 at 20, .503 at 50 and 100)


class Ranking(StrEnum):
    """How a search ranks."""

    FUSED = "fused"  # scores fused, with neighbours, speakers and dates
    RRF = "rrf"  # reciprocal rank fusion, as NapMem searches
    BM25 = "bm25"
    DENSE = "dense"


@dataclass(frozen=True, kw_only=True, slots=True)
class FusionWeights:
    """What each part of the fused ranking counts; 0 switches it off. Passages without an encoder are ranked by the keyword part alone."""

    dense: float = 0.4  # of the vector score; the keyword score has the rest
    neighbours: float = 0.8  # of the best neighbour's score, once for each turn of distance
    reach: int = 2  # turns to each side
    speaker: float = 0.4  # for the passages of a speaker whom the query names
    date: float = 0.4  # for the passages of a day that the query names
    drop_asking_words: bool = True  # "what did", "when was" and the like do not count as keywords


def scale_scores(scores: np.ndarray) -> np.ndarray:
    """Scores divided by the highest, those below 0 set to 0, [m]; all 0 where none is above."""
    highest = float(scores.max(initial=0.0))
    return np.maximum(scores, 0) / np.float32(highest) if highest > 0 else np.zeros_like(scores)


def lend_scores(scores: np.ndarray, places: np.ndarray, sessions: np.ndarray, *, decay: float, reach: int) -> np.ndarray:
    """What each passage gets from its neighbours: the highest of their scores, times `decay` for each turn between.

    Args:
        scores: [m], in order of `places`.
        places: [m] ascending; passages of one session lie next to each other, in order, where nothing is left out.
        sessions: [m] codes; other sessions lend nothing.
        decay: in [0, 1].
        reach: how many turns to each side.

    Returns:
        [m] float32. Example: scores [1, 0, 0] of one session with decay 0.8 and reach 2 give [0, 0.8, 0.64].
    """
    lent = np.zeros_like(scores)
    shares = np.float32(decay) ** np.arange(reach + 2, dtype=np.float32)  # by distance
    shares[-1] = 0
    for step in range(1, min(reach, len(scores) - 1) + 1):
        distance = places[step:] - places[:-step]
        weight = shares[np.minimum(distance, reach + 1)] * (sessions[step:] == sessions[:-step])
        np.maximum(lent[step:], weight * scores[:-step], out=lent[step:])
        np.maximum(lent[:-step], weight * scores[step:], out=lent[:-step])
    return lent


def find_top(scores: np.ndarray, recency: np.ndarray, depth: int) -> np.ndarray:
    """Positions of the best positive scores, best first; equal scores put the more recent first.

    Args:
        scores: [n]; 0 and below are no hits.
        recency: [n], all different; higher is newer.
        depth: how many at most.

    Returns:
        [at most depth] positions.
    """
    hits = np.flatnonzero(scores > 0)
    if len(hits) > depth > 0:
        values = scores[hits]
        hits = hits[values >= np.partition(values, len(hits) - depth)[len(hits) - depth]]  # all that tie with the last one stay until they are ordered
    return hits[np.lexsort((-recency[hits], -scores[hits]))][: max(depth, 0)]


def compute_rrf_scores(rankings: Sequence[Sequence[int]], *, rrf_k: int = RRF_K) -> dict[int, float]:
    """Fused score of every position that occurs in a ranking.

    Example: ``compute_rrf_scores([[3, 5], [5]])`` gives ``{3: 1/61, 5: 1/62 + 1/61}``.
    """
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, position in enumerate(ranking, start=1):
            scores[position] = scores.get(position, 0.0) + 1.0 / (rrf_k + rank)
    return scores


def rank_rrf(rankings: Sequence[np.ndarray], recency: np.ndarray, *, k: int, rrf_k: int = RRF_K) -> list[int]:
    """The k best positions by reciprocal rank fusion of rankings, best first; equal scores put the more recent ([n]) first."""
    fused = compute_rrf_scores([ranking.tolist() for ranking in rankings], rrf_k=rrf_k)
    return sorted(fused, key=lambda position: (-fused[position], -recency[position]))[:k]


def fuse_scores(
    words: np.ndarray,
    vectors: np.ndarray | None,
    *,
    places: np.ndarray,
    sessions: np.ndarray,
    is_speaker: np.ndarray | None,
    nearness: np.ndarray | None,
    weights: FusionWeights,
) -> np.ndarray:
    """The fused score of the passages that take part in a search.

    Args:
        words: [m] keyword scores, in order of `places`.
        vectors: [m] similarities, or None where there is no encoder.
        places, sessions: see `lend_scores`.
        is_speaker: [m] bool, True for passages of a speaker whom the query names; None where it names none.
        nearness: [m] in [0, 1], how near to a date of the query; None where it names none.
        weights: of the parts.

    Returns:
        [m] float32. 0 is no hit: a passage without a word or meaning in common, and without such a neighbour, gains nothing from its speaker or date.
    """
    scores = scale_scores(words)
    if vectors is not None:
        scores = np.float32(1 - weights.dense) * scores + np.float32(weights.dense) * scale_scores(vectors)
    if weights.neighbours > 0:
        scores = scores + lend_scores(scores, places, sessions, decay=weights.neighbours, reach=weights.reach)
    gain = np.zeros_like(scores)
    if is_speaker is not None:
        gain += np.float32(weights.speaker) * is_speaker
    if nearness is not None:
        gain += np.float32(weights.date) * nearness
    return np.where(scores > 0, scores + gain, 0)
