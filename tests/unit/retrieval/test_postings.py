"""Inverted lists: hand-worked BM25, equality with bm25s, joining, counting."""

from __future__ import annotations

import random

import bm25s
import numpy as np
import pytest

from napmem_rl.retrieval.bm25 import tokenize_words
from napmem_rl.retrieval.postings import Postings, WordIndex


def draw_passages(num: int, seed: int, num_words: int = 50) -> list[list[str]]:
    rng = random.Random(seed)
    return [[f"w{rng.randrange(num_words)}" for _ in range(rng.randrange(0, 12))] for _ in range(num)]


def test_words_are_lower_cased_stemmed_and_free_of_stop_words():
    assert tokenize_words("The nurses of Oslo") == ["nurs", "oslo"]
    assert tokenize_words("the of a I !") == []


def test_one_match_scores_as_the_formula_says():
    """idf = ln(1 + (N - df + 0.5) / (df + 0.5)), tf part = tf / (tf + k1 (1 - b + b L / avg)) with N = 2, df = 1, tf = 1, L = avg: ln 2 / 2.5."""
    scores = WordIndex([Postings.build([["red", "door"], ["blue", "wall"]])]).compute_scores(["red"])
    assert scores.tolist() == pytest.approx([np.log(2.0) / 2.5, 0.0])


def test_a_word_asked_for_twice_counts_twice():
    index = WordIndex([Postings.build([["red", "door"], ["blue", "wall"]])])
    assert index.compute_scores(["red", "red"])[0] == pytest.approx(2 * index.compute_scores(["red"])[0])


def test_scores_are_those_of_bm25s():
    passages = draw_passages(200, seed=1)
    reference = bm25s.BM25()
    reference.index(passages, show_progress=False)
    index = WordIndex([Postings.build(passages)])
    for query in draw_passages(50, seed=2):
        known = [word for word in query if word in index.parts[0].vocabulary]
        if known:
            assert index.compute_scores(query) == pytest.approx(reference.get_scores(known), abs=1e-5)


@pytest.mark.parametrize("cuts", [(1,), (30, 31), (10, 10, 199)])
def test_scores_do_not_depend_on_where_the_passages_are_cut(cuts):
    passages = draw_passages(200, seed=3)
    whole = WordIndex([Postings.build(passages)])
    bounds = [0, *cuts, 200]
    parts = [Postings.build(passages[start:stop]) for start, stop in zip(bounds, bounds[1:], strict=False)]
    for query in draw_passages(20, seed=4):
        assert WordIndex(parts).compute_scores(query).tolist() == whole.compute_scores(query).tolist()


def test_joined_lists_are_those_of_all_passages():
    passages = draw_passages(120, seed=5) + [["new", "new"], []]
    joined = Postings.build(passages[:40]).joined(Postings.build(passages[40:]))
    whole = Postings.build(passages)
    assert joined.lengths.tolist() == whole.lengths.tolist()
    for word in whole.vocabulary:
        mine, theirs = joined.find(word), whole.find(word)
        assert joined.passages[mine].tolist() == whole.passages[theirs].tolist()
        assert joined.counts[mine].tolist() == whole.counts[theirs].tolist()


def test_nothing_indexed_and_nothing_asked_score_nothing():
    assert WordIndex([]).compute_scores(["red"]).tolist() == []
    assert WordIndex([Postings.build([[], []])]).compute_scores(["red"]).tolist() == [0.0, 0.0]
    assert WordIndex([Postings.build([["red"]])]).compute_scores([]).tolist() == [0.0]
