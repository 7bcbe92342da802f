"""Learning a reranker from what was cited: REINFORCE with a baseline, online (RMM, arXiv 2503.08026, retrospective reflection).

Each answer gives every shown memory R = +1 if it was cited and -1 if not; every `batch_size` answers both maps move by
eta times the mean over the batch of  sum_j (R_j - b) grad log p(c_j | drawn before): over the chosen M only, each with its own reward.

A draw takes its noise from (seed, number of draws so far), so that whoever starts again from a saved learner draws what it would have drawn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from napmem_rl.errors import ConfigError, DataError
from napmem_rl.retrieval.choice import Choice, Sampling, compute_log_prob, compute_score_gradient, draw_choice, rank_top
from napmem_rl.retrieval.rerank import RankOne, ResidualReranker
from napmem_rl.schema import RerankDecision

ALARM_SHARE = 0.9  # of the recent answers
WINDOW = 50  # recent answers that the alarm and the usefulness look at
MIN_ALARM = 20  # answers before an alarm can sound
STEP = 50  # answers of one point of the course


@dataclass(frozen=True, kw_only=True, slots=True)
class RerankSettings:
    """What decides how a reranker learns; the defaults are the paper's, but for `sampling` (see `choice`)."""

    num_candidates: int = 20  # K, of the retriever
    num_chosen: int = 5  # M
    batch_size: int = 4  # answers of an update
    tau: float = 0.5
    baseline: float = 0.5  # b
    learning_rate: float = 1e-3  # eta
    decay_updates: int | None = None  # the rate falls linearly to 0 over so many updates; None keeps it, as in the paper
    init_std: float = 0.01  # of the maps' first entries
    sampling: str = Sampling.PLACKETT_LUCE  # plackett_luce | printed
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("num_candidates", "num_chosen", "batch_size", "tau", "learning_rate"):
            if not getattr(self, name) > 0:
                raise ConfigError.of(f"reranker, {name}", "is not above 0", got=getattr(self, name))
        if self.decay_updates is not None and self.decay_updates < 1:
            raise ConfigError.of("reranker, decay_updates", "is not above 0", got=self.decay_updates, expected="a number of updates, or null")
        if self.num_chosen > self.num_candidates:
            raise ConfigError.of("reranker, num_chosen", "is above num_candidates", got=self.num_chosen, expected=f"at most {self.num_candidates}")
        if self.init_std < 0 or not np.isfinite([self.baseline, self.init_std, self.tau, self.learning_rate]).all():
            raise ConfigError.of("reranker", "init_std is below 0, or a number is not finite")
        if self.sampling not in tuple(Sampling):
            raise ConfigError.of("reranker, sampling", "is unknown", got=self.sampling, expected=" or ".join(Sampling))


@dataclass(frozen=True, kw_only=True, slots=True)
class Reranking:
    """Candidates of one query with a choice among them; what learning from it needs."""

    candidate_ids: tuple[str, ...]  # [K]
    query: np.ndarray  # [d]
    memories: np.ndarray  # [K, d]
    prior: np.ndarray | None  # [K]
    scores: np.ndarray  # [K]
    choice: Choice
    version: int  # updates of the maps that scored it

    @property
    def chosen_ids(self) -> tuple[str, ...]:
        """[M], in order."""
        return tuple(self.candidate_ids[index] for index in self.choice.chosen)


@dataclass(slots=True)
class LearnCounts:
    """What a learner has seen. `num_stale`: answers that came too late and were left out."""

    num_draws: int = 0
    num_answers: int = 0
    num_updates: int = 0
    num_shown: int = 0
    num_cited: int = 0
    num_all_cited: int = 0
    num_none_cited: int = 0
    num_stale: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class LearnerState:
    """A learner as data: arrays, and a JSON-ready rest."""

    arrays: Mapping[str, np.ndarray]
    counts: Mapping[str, int]
    recent: Sequence[tuple[int, int]] = field(default_factory=tuple)
    course: Sequence[tuple[int, int]] = field(default_factory=tuple)


class RerankLearner:
    """A reranker that learns from one answer after the other. Not for several threads at once."""

    def __init__(self, dim: int, settings: RerankSettings) -> None:
        """`dim`: width of the encoder's vectors."""
        self.settings = settings
        self.counts = LearnCounts()
        self.reranker = ResidualReranker(dim, init_std=settings.init_std, seed=settings.seed)
        self._batch: list[RankOne] = []
        self._recent: deque[tuple[int, int]] = deque(maxlen=WINDOW)  # (cited, shown) of the last answers
        self._course: list[tuple[int, int]] = []  # (cited, shown) of every STEP answers, the last point perhaps of fewer

    def rank(self, candidate_ids: Sequence[str], query: np.ndarray, memories: np.ndarray, *, prior: np.ndarray | None = None) -> Reranking:
        """The best M, always the same: for use and evaluation. See `ResidualReranker.score` for arguments and errors."""
        return self._rerank(candidate_ids, query, memories, prior, is_drawn=False)

    def draw(self, candidate_ids: Sequence[str], query: np.ndarray, memories: np.ndarray, *, prior: np.ndarray | None = None) -> Reranking:
        """M drawn by chance: for an answer that is learned from."""
        return self._rerank(candidate_ids, query, memories, prior, is_drawn=True)

    def adopt(
        self, candidate_ids: Sequence[str], query: np.ndarray, memories: np.ndarray, chosen_ids: Sequence[str], *, prior: np.ndarray | None = None
    ) -> Reranking:
        """A choice that was made elsewhere, as if it had been drawn in this order: what a policy was shown, to learn from. Unknown ids are left out."""
        ranked, places = self.rank(candidate_ids, query, memories, prior=prior), {name: index for index, name in enumerate(candidate_ids)}
        chosen = np.array([places[name] for name in dict.fromkeys(chosen_ids) if name in places], dtype=np.int64)
        return replace(ranked, choice=Choice(chosen=chosen, log_prob=compute_log_prob(ranked.scores, chosen, tau=self.settings.tau)))

    def learn(self, reranking: Reranking, cited: Sequence[bool], *, max_staleness: int | None = None) -> RerankDecision | None:
        """Take in which of the shown memories an answer cited; moves the maps with every `batch_size`-th answer.

        Args:
            reranking: what `draw` gave. One without a memory is counted, and teaches nothing.
            cited: [M].
            max_staleness: updates that may lie between draw and now; None for any number.

        Returns:
            The decision, for logs; None where it came too late and was left out.

        Raises:
            DataError: it was not drawn, or `cited` is of another length, or the update is not finite.
        """
        chosen = reranking.choice.chosen
        if reranking.choice.log_prob is None or len(cited) != len(chosen):
            problem = "was not drawn by chance" if reranking.choice.log_prob is None else f"has {len(chosen)} chosen memories, but {len(cited)} citations"
            raise DataError.of("reranker", f"cannot learn from a choice that {problem}", expected="what `draw` gave, and one bool for each chosen memory")
        if max_staleness is not None and self.counts.num_updates - reranking.version > max_staleness:
            self.counts.num_stale += 1
            return None
        if len(chosen):
            self._take_in(reranking, np.asarray(cited, dtype=bool))
        self._count(sum(map(bool, cited)), len(chosen))
        scores = tuple(float(score) for score in reranking.scores)
        return RerankDecision(candidate_ids=reranking.candidate_ids, scores=scores, chosen=tuple(map(int, chosen)), cited=tuple(map(bool, cited)))

    @property
    def usefulness(self) -> float | None:
        """Share of the memories shown in the last answers that were cited; None before any."""
        shown = sum(one for _, one in self._recent)
        return sum(cited for cited, _ in self._recent) / shown if shown else None

    @property
    def usefulness_over_steps(self) -> list[tuple[int, float]]:
        """(answers so far, share of what was shown in the last `STEP` of them that was cited); points at which nothing was shown are left out."""
        ends = [min((number + 1) * STEP, self.counts.num_answers) for number in range(len(self._course))]
        return [(end, round(cited / shown, 4)) for end, (cited, shown) in zip(ends, self._course, strict=True) if shown]

    @property
    def alarm(self) -> str | None:
        """What is wrong with the citations of the last answers, in words: an LLM that cites everything, or nothing, teaches nothing."""
        recent = [(cited, shown) for cited, shown in self._recent if shown > 1]
        for word, share in (("everything", _share(recent, lambda cited, shown: cited == shown)), ("nothing", _share(recent, lambda cited, _: cited == 0))):
            if len(recent) >= MIN_ALARM and share >= ALARM_SHARE:
                return f"{share:.0%} of the last {len(recent)} answers cited {word} that they were shown: the reranker learns nothing from them"
        return None

    def export_state(self) -> LearnerState:
        """All that it is, apart from its settings."""
        rows = [[one.query_left, one.query_right, one.memory_left, one.memory_right] for one in self._batch]
        batch = np.array(rows, dtype=np.float32).reshape(len(rows), 4, self.reranker.dim)
        counts = {name: getattr(self.counts, name) for name in LearnCounts.__slots__}
        return LearnerState(arrays=self.reranker.export_arrays() | {"batch": batch}, counts=counts, recent=tuple(self._recent), course=tuple(self._course))

    @classmethod
    def from_state(cls, settings: RerankSettings, state: LearnerState) -> RerankLearner:
        """The learner that `export_state` was called on. Raises DataError where the state does not hold together."""
        reranker = ResidualReranker.from_arrays(state.arrays)
        batch = state.arrays.get("batch")
        if batch is None or batch.ndim != 3 or batch.shape[1:] != (4, reranker.dim) or not np.isfinite(batch).all():
            raise DataError.of("learner of a reranker", "has a batch that does not fit its maps")
        learner = cls(1, settings)
        learner.reranker = reranker
        learner.counts = LearnCounts(**{name: int(state.counts[name]) for name in LearnCounts.__slots__})
        learner._batch = [RankOne(query_left=row[0], query_right=row[1], memory_left=row[2], memory_right=row[3]) for row in batch]
        learner._recent.extend((int(cited), int(shown)) for cited, shown in state.recent)
        learner._course = [(int(cited), int(shown)) for cited, shown in state.course]
        return learner

    def _rerank(self, ids: Sequence[str], query: np.ndarray, memories: np.ndarray, prior: np.ndarray | None, *, is_drawn: bool) -> Reranking:
        query, memories = self.reranker.check_vectors(query, memories)
        if len(ids) != len(memories):
            raise DataError.of("reranker", f"was given {len(ids)} ids for {len(memories)} vectors")
        scores, num = self.reranker.score(query, memories, prior=prior), self.settings.num_chosen
        if is_drawn:
            rng = np.random.default_rng([self.settings.seed, self.counts.num_draws])
            self.counts.num_draws += 1
            choice = draw_choice(scores, num, tau=self.settings.tau, rng=rng, sampling=Sampling(self.settings.sampling))
        else:
            choice = Choice(chosen=rank_top(scores, num), log_prob=None)
        version = self.counts.num_updates
        return Reranking(candidate_ids=tuple(ids), query=query, memories=memories, prior=prior, scores=scores, choice=choice, version=version)

    def _take_in(self, reranking: Reranking, cited: np.ndarray) -> None:
        """One answer's direction, at the maps as they are now; the update where the batch is full."""
        is_moved = reranking.version != self.counts.num_updates
        scores = self.reranker.score(reranking.query, reranking.memories, prior=reranking.prior) if is_moved else reranking.scores
        weights = np.where(cited, 1.0, -1.0) - self.settings.baseline
        gradient = compute_score_gradient(scores, reranking.choice.chosen, weights, tau=self.settings.tau, noise=reranking.choice.noise)
        self._batch.append(self.reranker.find_direction(reranking.query, reranking.memories, gradient))
        if len(self._batch) >= self.settings.batch_size:
            self.reranker.update(self._batch, self._find_rate())
            self._batch = []
            self.counts.num_updates += 1

    def _find_rate(self) -> float:
        """The rate of the next update."""
        settings = self.settings
        left = 1.0 if settings.decay_updates is None else max(0.0, 1 - self.counts.num_updates / settings.decay_updates)
        return settings.learning_rate * left

    def _count(self, num_cited: int, num_shown: int) -> None:
        counts = self.counts
        counts.num_answers += 1
        counts.num_shown += num_shown
        counts.num_cited += num_cited
        counts.num_all_cited += num_shown > 0 and num_cited == num_shown
        counts.num_none_cited += num_shown > 0 and num_cited == 0
        self._recent.append((num_cited, num_shown))
        if len(self._course) * STEP < counts.num_answers:
            self._course.append((0, 0))
        cited, shown = self._course[-1]
        self._course[-1] = (cited + num_cited, shown + num_shown)


def _share(recent: Sequence[tuple[int, int]], holds: Any) -> float:
    return sum(holds(cited, shown) for cited, shown in recent) / len(recent) if recent else 0.0
