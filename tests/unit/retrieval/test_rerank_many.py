"""Many queries at once: the same numbers as one after the other."""

from __future__ import annotations

import numpy as np

from napmem_rl.retrieval.choice import compute_score_gradient, compute_score_gradients, draw_many
from napmem_rl.retrieval.rerank import ResidualReranker


def test_gradients_of_many_are_those_of_each() -> None:
    rng = np.random.default_rng(0)
    scores, weights = rng.standard_normal((7, 9)), rng.standard_normal((7, 3))
    chosen = draw_many(scores, 3, tau=0.5, rng=rng)
    expected = [compute_score_gradient(*row, tau=0.5) for row in zip(scores, chosen, weights, strict=True)]
    np.testing.assert_allclose(compute_score_gradients(scores, chosen, weights, tau=0.5), expected, atol=1e-12)


def test_scores_and_updates_of_many_are_those_of_each() -> None:
    rng = np.random.default_rng(1)
    single, many = ResidualReranker(6, seed=2), ResidualReranker(6, seed=2)
    for _ in range(3):
        queries, memories = rng.standard_normal((5, 6)).astype(np.float32), rng.standard_normal((5, 4, 6)).astype(np.float32)
        pulls = rng.standard_normal((5, 4))
        expected = [single.score(*row) for row in zip(queries, memories, strict=True)]
        np.testing.assert_allclose(many.score_many(queries, memories), expected, rtol=1e-4, atol=1e-4)
        single.update([single.find_direction(*row) for row in zip(queries, memories, pulls, strict=True)], 0.05)
        many.update_many(queries, memories, pulls, 0.05)
