"""Fusion: hand-worked numbers."""

from __future__ import annotations

import numpy as np
import pytest

from napmem_rl.retrieval.fusion import FusionWeights, compute_rrf_scores, find_top, fuse_scores, lend_scores, rank_rrf, scale_scores


def fuse(words, vectors=None, *, sessions=None, places=None, is_speaker=None, nearness=None, **weights):
    words = np.array(words, dtype=np.float32)
    return fuse_scores(
        words,
        None if vectors is None else np.array(vectors, dtype=np.float32),
        places=np.arange(len(words)) if places is None else np.array(places),
        sessions=np.zeros(len(words), dtype=np.int32) if sessions is None else np.array(sessions),
        is_speaker=None if is_speaker is None else np.array(is_speaker),
        nearness=None if nearness is None else np.array(nearness, dtype=np.float32),
        weights=FusionWeights(**weights),
    ).tolist()


def test_reciprocal_ranks_are_summed():
    scores = compute_rrf_scores([[7, 3, 5], [5, 7]], rrf_k=60)
    assert scores == pytest.approx({7: 1 / 61 + 1 / 62, 3: 1 / 62, 5: 1 / 63 + 1 / 61})


def test_a_passage_in_both_rankings_beats_the_first_of_one_and_ties_go_to_the_newer():
    rankings = [np.array([1, 2]), np.array([3, 2])]
    assert rank_rrf(rankings, np.array([0, 1, 2, 3]), k=3) == [2, 3, 1]
    assert rank_rrf(rankings, np.array([0, 3, 2, 1]), k=3) == [2, 1, 3]


def test_the_top_holds_positive_scores_alone_and_the_newer_first_among_equals():
    scores = np.array([1.0, 0.0, 2.0, 1.0, -1.0, 1.0])
    assert find_top(scores, np.arange(6), 10).tolist() == [2, 5, 3, 0]
    assert find_top(scores, np.arange(6)[::-1], 3).tolist() == [2, 0, 3]
    assert find_top(scores, np.arange(6), 2).tolist() == [2, 5]
    assert find_top(scores, np.arange(6), 0).tolist() == []


def test_the_top_of_random_scores_is_that_of_a_full_sort():
    rng = np.random.default_rng(0)
    for _ in range(50):
        scores, recency = rng.integers(-2, 5, 40).astype(np.float32), rng.permutation(40)
        expected = sorted((position for position in range(40) if scores[position] > 0), key=lambda position: (-scores[position], -recency[position]))
        assert find_top(scores, recency, 7).tolist() == expected[:7]


def test_scores_are_scaled_to_a_highest_of_one():
    assert scale_scores(np.array([2.0, 1.0, -3.0], dtype=np.float32)).tolist() == [1.0, 0.5, 0.0]
    assert scale_scores(np.array([0.0, -1.0], dtype=np.float32)).tolist() == [0.0, 0.0]


def test_neighbours_lend_to_both_sides_and_less_with_distance():
    lent = lend_scores(np.array([0, 0, 1, 0, 0, 0], dtype=np.float32), np.arange(6), np.zeros(6), decay=0.8, reach=2)
    assert lent.tolist() == pytest.approx([0.64, 0.8, 0.0, 0.8, 0.64, 0.0])


def test_the_best_neighbour_lends_not_the_sum_of_them():
    lent = lend_scores(np.array([1, 0, 0.5], dtype=np.float32), np.arange(3), np.zeros(3), decay=0.8, reach=2)
    assert lent.tolist() == pytest.approx([0.32, 0.8, 0.64])


def test_another_session_and_a_gap_lend_nothing():
    scores = np.array([1, 0, 0], dtype=np.float32)
    assert lend_scores(scores, np.arange(3), np.array([0, 1, 1]), decay=0.8, reach=2).tolist() == [0, 0, 0]
    assert lend_scores(scores, np.array([0, 2, 3]), np.zeros(3), decay=0.8, reach=2).tolist() == pytest.approx([0, 0.64, 0])


def test_keyword_and_vector_scores_are_scaled_and_weighted():
    assert fuse([4, 2, 0], [0.1, 0.2, -0.5], dense=0.4, neighbours=0) == pytest.approx([0.6 + 0.2, 0.3 + 0.4, 0.0])
    assert fuse([4, 2, 0], neighbours=0) == pytest.approx([1.0, 0.5, 0.0])


def test_speaker_and_date_raise_only_what_fits_otherwise():
    scores = fuse([4, 2, 0, 0], is_speaker=[False, True, True, True], nearness=[0, 1, 1, 0.5], speaker=0.4, date=0.3, neighbours=0)
    assert scores == pytest.approx([1.0, 0.5 + 0.4 + 0.3, 0.0, 0.0])


def test_the_answer_after_a_question_that_fits_is_found_through_it():
    """Own 1 and half of it two turns away: 1 + 0.8 · 0.8 · 0.5 and so on."""
    scores = fuse([2, 0, 1], neighbours=0.8, reach=2)
    assert scores == pytest.approx([1 + 0.32, 0.8, 0.5 + 0.64])
