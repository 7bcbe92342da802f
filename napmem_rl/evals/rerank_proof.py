"""Does a reranker that learns from citations find more evidence? On questions whose gold evidence is known, with simulated citations.

The citer is simulated throughout: it cites a shown memory if and only if that memory holds gold evidence, and each verdict is flipped with a probability. Arms:

- `learned`: learns on the users of all folds but one, is measured on the users of that fold, whom it never saw (groups share what was said, and stay together);
- `fixed_verdicts`: the same with a citer whose wrong verdicts never change, as those of a model at temperature 0: passes cannot average them away;
- `random_citations`: the same with citations by chance, as many on average: must not improve;
- `seen`: the learned reranker on the questions that it learned from;
- `own_first_half`, `own_second_half`: a reranker for each user alone, that learns on the first half of the user's questions and is measured on either half.

Measured is recall@M by the deterministic top M, against the retriever's own order and the best that any order of its K candidates could reach; `closed` is
the share of the gap between the two. Intervals are bootstrapped over groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from napmem_rl.errors import DataError
from napmem_rl.evals.rerank_users import RerankCase
from napmem_rl.retrieval.choice import compute_score_gradients, draw_many, rank_top
from napmem_rl.retrieval.rerank import ResidualReranker
from napmem_rl.retrieval.rerank_learner import RerankSettings

ARMS = ("learned", "fixed_verdicts", "random_citations", "seen", "own_first_half", "own_second_half")
NUM_RESAMPLES = 2000
NUM_POINTS = 6  # of a course


class Citer(StrEnum):
    """How verdicts are simulated."""

    FRESH = "fresh"  # gold, each flipped by chance whenever it is given
    FIXED = "fixed"  # gold, some of them flipped once and for all
    CHANCE = "chance"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProofSettings:
    """How a proof is run. Against the paper: a lower temperature, a baseline near the mean reward, larger batches, a higher rate that falls to 0, and passes.

    Found on four of LoCoMo's eight conversations (every other one by name), each held out in turn while the other three taught; LongMemEval had no part in it.
    """

    learner: RerankSettings = field(default_factory=lambda: RerankSettings(tau=0.05, baseline=-0.7, batch_size=32, learning_rate=0.01, init_std=0.001))
    passes: int = 12  # over the training questions, and more where these are so few that
    min_updates: int = 200  # would not be reached
    flip: float = 0.1  # of a simulated verdict
    num_folds: int = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Recalls:
    """Recall@M of each case, in order; NaN for cases that an arm does not measure.

    `courses`: of arms that learn from all others, the share of drawn memories that hold evidence, at `NUM_POINTS` moments from the first pass to the last.
    """

    retriever: np.ndarray  # [n]
    oracle: np.ndarray  # [n]
    arms: dict[str, np.ndarray]  # name -> [n]
    courses: dict[str, list[float]]  # name -> [NUM_POINTS]


def run_proof(cases: Sequence[RerankCase], settings: ProofSettings, *, seed: int, report: Callable[[str], None]) -> Recalls:
    """All arms for one seed."""
    num = settings.learner.num_chosen
    everyone = np.arange(len(cases))
    recalls = {name: np.full(len(cases), np.nan) for name in ARMS}
    courses: dict[str, list[np.ndarray]] = {"learned": [], "fixed_verdicts": [], "random_citations": []}
    seen: list[np.ndarray] = []
    for number, fold in enumerate(split_folds([case.group for case in cases], settings.num_folds)):
        is_held_out = np.isin(everyone, fold)
        train, held_out = [cases[index] for index in everyone[~is_held_out]], [cases[index] for index in fold]
        for name, citer in zip(courses, (Citer.FRESH, Citer.FIXED, Citer.CHANCE), strict=True):
            learner, course = learn_from_citations(train, settings, seed=seed, citer=citer)
            recalls[name][fold] = measure_recall(held_out, learner, num_chosen=num)
            courses[name].append(course)
            if citer is Citer.FRESH:
                seen.append(np.where(is_held_out, np.nan, 0.0))
                seen[-1][~is_held_out] = measure_recall(train, learner, num_chosen=num)
        report(f"seed {seed}, fold {number + 1}: {len(train)} questions to learn from, {len(fold)} held out")
    recalls["seen"] = np.nanmean(seen, axis=0)
    for user in dict.fromkeys(case.user for case in cases):
        _run_user(cases, np.array([index for index in everyone if cases[index].user == user]), settings, seed, recalls)
    retriever = np.array([case.is_gold[:num].sum() / case.num_gold for case in cases])
    oracle = np.array([min(num, case.is_gold.sum()) / case.num_gold for case in cases])
    means = {name: [round(float(value), 4) for value in np.mean(rows, axis=0)] for name, rows in courses.items()}
    return Recalls(retriever=retriever, oracle=oracle, arms=recalls, courses=means)


def learn_from_citations(cases: Sequence[RerankCase], settings: ProofSettings, *, seed: int, citer: Citer = Citer.FRESH) -> tuple[ResidualReranker, np.ndarray]:
    """A reranker after so many passes over some questions, in an order of chance, with simulated citations.

    The questions of a batch are computed together, as `RerankLearner` computes them one after the other: the maps move once a batch, and by the same mean.

    Returns:
        The reranker, and its course [NUM_POINTS]: the share of drawn memories that hold evidence.
    """
    learner, rng = settings.learner, np.random.default_rng([seed, 1])
    queries, memories, is_gold = _stack(cases)
    reranker = ResidualReranker(queries.shape[1], init_std=learner.init_std, seed=seed)
    passes = max(settings.passes, math.ceil(settings.min_updates / math.ceil(len(cases) / learner.batch_size)))
    batches = [part for _ in range(passes) for part in _cut(rng.permutation(len(cases)), learner.batch_size)]
    cite, course = _Verdicts(is_gold, settings.flip, citer, rng), []
    for number, part in enumerate(batches):
        scores = reranker.score_many(queries[part], memories[part])
        chosen = draw_many(scores, learner.num_chosen, tau=learner.tau, rng=rng)
        gradients = compute_score_gradients(scores, chosen, np.where(cite(part, chosen), 1.0, -1.0) - learner.baseline, tau=learner.tau)
        reranker.update_many(queries[part], memories[part], gradients, learner.learning_rate * (1 - number / len(batches)))
        course.append(float(np.take_along_axis(is_gold[part], chosen, axis=1).mean()))
    return reranker, np.array([np.mean(stretch) for stretch in np.array_split(course, NUM_POINTS)])


class _Verdicts:
    """The simulated citer."""

    def __init__(self, is_gold: np.ndarray, flip: float, citer: Citer, rng: np.random.Generator) -> None:
        self._is_gold, self._flip, self._citer, self._rng = is_gold, flip, citer, rng
        self._is_flipped = rng.random(is_gold.shape) < flip
        self._rate = float(is_gold.mean()) * (1 - 2 * flip) + flip  # of citations

    def __call__(self, part: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Which of the chosen [B, M] memories of some questions are cited, [B, M] bool."""
        draws = self._rng.random(chosen.shape)
        if self._citer is Citer.CHANCE:
            return draws < self._rate
        is_gold = np.take_along_axis(self._is_gold[part], chosen, axis=1)
        is_flipped = np.take_along_axis(self._is_flipped[part], chosen, axis=1) if self._citer is Citer.FIXED else draws < self._flip
        return is_gold ^ is_flipped


def measure_recall(cases: Sequence[RerankCase], reranker: ResidualReranker, *, num_chosen: int) -> np.ndarray:
    """Recall@M of the deterministic top M, [n]."""
    found = [case.is_gold[rank_top(reranker.score(case.query, case.memories), num_chosen)].sum() / case.num_gold for case in cases]
    return np.array(found, dtype=float)


def split_folds(groups: Sequence[str], num_folds: int) -> list[np.ndarray]:
    """Positions of the cases of each fold; a group is in one fold, groups are dealt out in order of their names."""
    names = sorted(set(groups))
    of_group = {name: number % num_folds for number, name in enumerate(names)}
    folds = np.array([of_group[group] for group in groups])
    return [np.flatnonzero(folds == number) for number in range(num_folds) if (folds == number).any()]


def summarise(cases: Sequence[RerankCase], runs: Sequence[Recalls], *, seed: int = 0) -> dict[str, Any]:
    """Means over seeds, for each arm: recall, share of the gap that is closed, its 95% interval over groups, and by seed."""
    groups = np.array([case.group for case in cases])
    first = runs[0]
    rows: dict[str, Any] = {
        "questions": len(cases),
        "groups": len(set(groups)),
        "users": len({case.user for case in cases}),
        "retriever": round(float(first.retriever.mean()), 4),
        "oracle": round(float(first.oracle.mean()), 4),
        "arms": {},
        "courses": {name: [_round(value) for value in np.mean([run.courses[name] for run in runs], axis=0)] for name in first.courses},
    }
    for name in ARMS:
        values = np.mean([run.arms[name] for run in runs], axis=0)
        is_measured = ~np.isnan(values)
        if not is_measured.any():
            continue
        parts = (values - first.retriever)[is_measured], (first.oracle - first.retriever)[is_measured], groups[is_measured]
        low, high = _bootstrap_closed(*parts, seed=seed)
        rows["arms"][name] = {
            "questions": int(is_measured.sum()),
            "retriever": round(float(first.retriever[is_measured].mean()), 4),
            "recall": round(float(values[is_measured].mean()), 4),
            "closed": _round(_close(*parts[:2])),
            "low": _round(low),
            "high": _round(high),
            "closed_by_seed": [_round(_close((run.arms[name] - first.retriever)[is_measured], parts[1])) for run in runs],
        }
    return rows


def settings_as_json(settings: ProofSettings) -> dict[str, Any]:
    """For reports; without the learner's seed, which is the run's."""
    values = asdict(settings)
    values["learner"].pop("seed")
    return values


def _run_user(cases: Sequence[RerankCase], own: np.ndarray, settings: ProofSettings, seed: int, recalls: dict[str, np.ndarray]) -> None:
    """The two arms of a user alone; users of fewer than four questions are left out."""
    if len(own) < 4:
        return
    first, second = own[: len(own) // 2], own[len(own) // 2 :]
    learner, _ = learn_from_citations([cases[index] for index in first], settings, seed=seed)
    for name, half in (("own_first_half", first), ("own_second_half", second)):
        recalls[name][half] = measure_recall([cases[index] for index in half], learner, num_chosen=settings.learner.num_chosen)


def _stack(cases: Sequence[RerankCase]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Queries [n, d], memories [n, K, d] and gold [n, K]; raises DataError where cases differ in K: a bank holds fewer memories."""
    if len({case.memories.shape for case in cases}) != 1:
        raise DataError.of("cases of a reranker", "differ in their number of candidates", fix="Leave out users with fewer memories than K.")
    rows = [(case.query, case.memories, case.is_gold) for case in cases]
    queries, memories, is_gold = (np.stack(column) for column in zip(*rows, strict=True))
    return queries.astype(np.float32), memories.astype(np.float32), is_gold


def _cut(order: np.ndarray, size: int) -> list[np.ndarray]:
    return [order[start : start + size] for start in range(0, len(order), size)]


def _close(gains: np.ndarray, gaps: np.ndarray) -> float:
    return float(gains.sum() / gaps.sum()) if gaps.sum() > 0 else float("nan")


def _bootstrap_closed(gains: np.ndarray, gaps: np.ndarray, groups: np.ndarray, *, seed: int) -> tuple[float, float]:
    """95% interval of the share that is closed, groups drawn with replacement."""
    names = sorted(set(groups))
    sums = np.array([[gains[groups == name].sum(), gaps[groups == name].sum()] for name in names])
    drawn = sums[np.random.default_rng(seed).integers(0, len(names), (NUM_RESAMPLES, len(names)))].sum(axis=1)  # [resamples, 2]
    shares = drawn[:, 0] / np.where(drawn[:, 1] > 0, drawn[:, 1], np.nan)
    low, high = np.nanquantile(shares, [0.025, 0.975])
    return float(low), float(high)


def _round(value: float) -> float:
    return round(float(value), 4)
