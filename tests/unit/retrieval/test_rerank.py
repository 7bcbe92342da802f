"""The residual reranker: scores and updates against plain matrices, learning, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from napmem_rl.errors import ConfigError, DataError
from napmem_rl.retrieval.choice import compute_log_prob, compute_score_gradient
from napmem_rl.retrieval.rerank import FOLD_AFTER, ResidualReranker
from napmem_rl.retrieval.rerank_learner import RerankLearner, RerankSettings

DIM = 8


def draw_unit(rng: np.random.Generator, *shape: int) -> np.ndarray:
    rows = rng.standard_normal(shape).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def score_plainly(query: np.ndarray, memories: np.ndarray, query_map: np.ndarray, memory_map: np.ndarray) -> np.ndarray:
    """s_i = (q + W_q q)^T (m_i + W_m m_i), as the paper writes it, in float64."""
    return (memories + memories @ memory_map.T.astype(np.float64)) @ (query + query_map.astype(np.float64) @ query)


def test_maps_of_zero_rank_and_score_as_the_retriever() -> None:
    rng = np.random.default_rng(0)
    query, memories = draw_unit(rng, DIM), draw_unit(rng, 20, DIM)
    reranker = ResidualReranker(DIM, init_std=0.0)
    np.testing.assert_array_equal(reranker.score(query, memories), (memories @ query).astype(np.float64))
    prior = np.linspace(3, 1, 20)
    np.testing.assert_allclose(reranker.score(query, memories, prior=prior), prior, atol=1e-7)


def test_a_hand_worked_score() -> None:
    """d = 2, W_q moves the first axis to the second, W_m the second to the first: q = (1, 0) -> (1, 1); m = (0, 1) -> (1, 1), so s = 2; m = (1, 0) -> s = 1."""
    arrays = {"query_map": np.array([[0, 0], [1, 0]]), "memory_map": np.array([[0, 1], [0, 0]]), "pending": np.zeros((4, 0, 2)), "num_pending": np.array(0)}
    reranker = ResidualReranker.from_arrays(arrays)
    assert reranker.score(np.array([1, 0]), np.array([[0, 1], [1, 0]])).tolist() == [2.0, 1.0]


def test_scores_and_gradients_equal_those_of_plain_matrices_before_and_after_folding() -> None:
    rng = np.random.default_rng(1)
    reranker = ResidualReranker(DIM, seed=3)
    maps = [one.astype(np.float64) for one in (reranker.export_arrays()["query_map"], reranker.export_arrays()["memory_map"])]
    for _ in range(2 * FOLD_AFTER + 5):
        query, memories, pull = draw_unit(rng, DIM), draw_unit(rng, 6, DIM), rng.standard_normal(6)
        np.testing.assert_allclose(reranker.score(query, memories), score_plainly(query, memories, *maps), atol=2e-5)
        mapped = memories + memories @ maps[1].T
        step = np.outer(pull @ mapped, query), np.outer(query + maps[0] @ query, pull @ memories)
        reranker.update([reranker.find_direction(query, memories, pull)], 0.02)
        maps = [one + 0.02 * move for one, move in zip(maps, step, strict=True)]


def test_the_gradient_by_both_maps_agrees_with_differences() -> None:
    rng = np.random.default_rng(2)
    query, memories, chosen = draw_unit(rng, DIM), draw_unit(rng, 5, DIM), np.array([4, 1])
    maps = [0.1 * rng.standard_normal((DIM, DIM)) for _ in range(2)]
    reranker = ResidualReranker.from_arrays({"query_map": maps[0], "memory_map": maps[1], "pending": np.zeros((4, 0, DIM)), "num_pending": np.array(0)})
    learner = RerankLearner(DIM, RerankSettings(num_chosen=2))
    gradient = learner_gradient(learner, reranker, query, memories, chosen)
    for which, found in enumerate(gradient):
        for place in ((0, 0), (3, 5), (7, 2)):
            bump = np.zeros((DIM, DIM))
            bump[place] = 1e-4
            values = []
            for sign in (1, -1):
                moved = [one + sign * bump if which == index else one for index, one in enumerate(maps)]
                values.append(compute_log_prob(score_plainly(query, memories, *moved), chosen, tau=0.5))
            assert found[place] == pytest.approx((values[0] - values[1]) / 2e-4, abs=1e-3)


def learner_gradient(
    learner: RerankLearner, reranker: ResidualReranker, query: np.ndarray, memories: np.ndarray, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Both matrices of the gradient of log P of a choice."""
    pull = compute_score_gradient(reranker.score(query, memories), chosen, np.ones(len(chosen)), tau=learner.settings.tau)
    one = reranker.find_direction(query, memories, pull)
    return np.outer(one.query_left, one.query_right), np.outer(one.memory_left, one.memory_right)


def test_a_batch_moves_the_maps_once_by_the_mean_of_its_directions() -> None:
    rng = np.random.default_rng(4)
    learner = RerankLearner(DIM, RerankSettings(num_chosen=2, batch_size=3, learning_rate=0.1))
    before = learner.reranker.export_arrays()
    for answer in range(3):
        assert learner.counts.num_updates == 0
        reranking = learner.draw("abcde", draw_unit(rng, DIM), draw_unit(rng, 5, DIM))
        learner.learn(reranking, [answer == 0, False])
    assert learner.counts.num_updates == 1
    assert learner.reranker.export_arrays()["num_pending"] == before["num_pending"] + 3


def test_a_memory_that_is_cited_rises_and_one_that_is_not_falls() -> None:
    rng = np.random.default_rng(5)
    query, memories = draw_unit(rng, DIM), draw_unit(rng, 6, DIM)
    learner = RerankLearner(DIM, RerankSettings(num_chosen=3, batch_size=1, learning_rate=0.05))
    before = learner.rank("abcdef", query, memories).scores
    for _ in range(60):
        reranking = learner.draw("abcdef", query, memories)
        learner.learn(reranking, [name == "f" for name in reranking.chosen_ids])
    after = learner.rank("abcdef", query, memories)
    assert after.chosen_ids[0] == "f" and after.scores[5] - before[5] > 0.3


def test_ranking_draws_nothing_and_changes_nothing() -> None:
    rng = np.random.default_rng(6)
    learner = RerankLearner(DIM, RerankSettings(num_chosen=2))
    query, memories = draw_unit(rng, DIM), draw_unit(rng, 5, DIM)
    first, second = (learner.rank("abcde", query, memories) for _ in range(2))
    assert first.chosen_ids == second.chosen_ids and learner.counts.num_draws == 0
    with pytest.raises(DataError, match="not drawn"):
        learner.learn(first, [True, False])


def test_a_learner_goes_on_from_its_state_as_if_it_had_never_stopped() -> None:
    rng = np.random.default_rng(7)
    rows = [(draw_unit(rng, DIM), draw_unit(rng, 6, DIM)) for _ in range(11)]
    settings = RerankSettings(num_chosen=2, learning_rate=0.1)
    whole, parted = RerankLearner(DIM, settings), RerankLearner(DIM, settings)
    for query, memories in rows:
        parted = RerankLearner.from_state(settings, parted.export_state())  # stopped after every answer
        for learner in (whole, parted):
            reranking = learner.draw("abcdef", query, memories)
            learner.learn(reranking, [name in "ab" for name in reranking.chosen_ids])
    assert whole.counts == parted.counts and whole.usefulness == parted.usefulness
    for name, array in whole.export_state().arrays.items():
        np.testing.assert_array_equal(array, parted.export_state().arrays[name])


def test_an_empty_bank_and_fewer_than_m_are_no_trouble() -> None:
    learner = RerankLearner(DIM, RerankSettings(batch_size=1))
    query = draw_unit(np.random.default_rng(8), DIM)
    empty = learner.draw((), query, np.zeros((0, DIM)))
    assert learner.learn(empty, []) is not None and learner.counts.num_updates == 0
    few = learner.draw("ab", query, draw_unit(np.random.default_rng(9), 2, DIM))
    assert sorted(few.chosen_ids) == ["a", "b"]
    assert learner.learn(few, [True, False]) is not None and learner.counts.num_updates == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_vectors_that_are_not_finite_are_refused_and_named(bad: float) -> None:
    reranker = ResidualReranker(DIM)
    memories = np.ones((3, DIM), dtype=np.float32)
    memories[1, 2] = bad
    with pytest.raises(DataError, match=r"memories \[1\]"):
        reranker.score(np.ones(DIM), memories)
    with pytest.raises(DataError, match="the query"):
        reranker.score(np.full(DIM, bad), np.ones((3, DIM)))
    with pytest.raises(DataError, match="scores of the retriever"):
        reranker.score(np.ones(DIM), np.ones((1, DIM)), prior=np.array([bad]))


def test_vectors_of_another_width_are_refused() -> None:
    with pytest.raises(DataError, match="another width"):
        ResidualReranker(DIM).score(np.ones(DIM + 1), np.ones((2, DIM + 1)))


def test_an_answer_that_comes_too_late_is_left_out_and_counted() -> None:
    rng = np.random.default_rng(10)
    learner = RerankLearner(DIM, RerankSettings(num_chosen=2, batch_size=1))
    old = learner.draw("abc", draw_unit(rng, DIM), draw_unit(rng, 3, DIM))
    for _ in range(3):
        learner.learn(learner.draw("abc", draw_unit(rng, DIM), draw_unit(rng, 3, DIM)), [True, False])
    assert learner.learn(old, [True, False], max_staleness=2) is None and learner.counts.num_stale == 1
    assert learner.learn(old, [True, False], max_staleness=3) is not None


@pytest.mark.parametrize(("cites", "word"), [(True, "everything"), (False, "nothing")])
def test_an_llm_that_cites_everything_or_nothing_sounds_an_alarm(cites: bool, word: str) -> None:
    rng = np.random.default_rng(11)
    learner = RerankLearner(DIM, RerankSettings(num_chosen=2))
    for number in range(25):
        assert (learner.alarm is None) == (number < 20)
        learner.learn(learner.draw("abc", draw_unit(rng, DIM), draw_unit(rng, 3, DIM)), [cites, cites])
    assert word in (learner.alarm or "")


@pytest.mark.parametrize("bad", [{"tau": 0.0}, {"num_chosen": 21}, {"sampling": "softmax"}, {"init_std": -1.0}, {"baseline": float("nan")}])
def test_settings_that_cannot_be_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="reranker"):
        RerankSettings(**bad)


def test_usefulness_is_told_for_every_fifty_answers() -> None:
    learner, rng = RerankLearner(4, RerankSettings(num_candidates=4, num_chosen=2)), np.random.default_rng(0)
    for number in range(120):
        drawn = learner.draw("abcd", rng.standard_normal(4), rng.standard_normal((4, 4)))
        learner.learn(drawn, [number >= 50, number >= 100])
    assert learner.usefulness_over_steps == [(50, 0.0), (100, 0.5), (120, 1.0)]
