"""Hybrid search: hand-worked fusion, the as-of filter, ties, empty input."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from napmem_rl.retrieval.bm25 import BM25Index, tokenize_words
from napmem_rl.retrieval.dense import DenseIndex
from napmem_rl.retrieval.encoder import HashingEncoder
from napmem_rl.retrieval.hybrid import HybridIndex, compute_rrf_scores

TEXTS = ["Ana plays chess.", "Ana plays golf.", "Ana plays chess with Leo.", "Leo bakes bread."]
TIMES = ["2024-01-01T10:00:00", "2024-01-02T10:00:00", "2024-01-03T10:00:00", "2024-01-04T10:00:00"]


def test_words_are_lower_cased_stemmed_and_free_of_stop_words():
    assert tokenize_words("The nurses of Oslo") == ["nurs", "oslo"]
    assert tokenize_words("the of a I !") == []


def test_fused_scores_are_the_sum_of_reciprocal_ranks():
    scores = compute_rrf_scores([[7, 3, 5], [5, 7]], rrf_k=60)
    assert scores == pytest.approx({7: 1 / 61 + 1 / 62, 3: 1 / 62, 5: 1 / 63 + 1 / 61})
    assert sorted(scores, key=lambda position: -scores[position]) == [7, 5, 3]


def test_a_passage_in_both_rankings_beats_the_first_of_one():
    scores = compute_rrf_scores([[1, 2], [3, 2]])
    assert scores[2] == pytest.approx(2 / 62) and scores[2] > scores[1] == scores[3]


def test_bm25_returns_only_passages_that_share_a_word_best_first():
    index = BM25Index(TEXTS)
    assert index.rank("chess Leo", limit=4, depth=10) == [2, 3, 0]
    assert index.rank("chess Leo", limit=3, depth=10) == [2, 0]
    assert index.rank("chess Leo", limit=4, depth=1) == [2]
    assert index.rank("zebra", limit=4, depth=10) == []
    assert index.rank("the", limit=4, depth=10) == []


def test_bm25_scores_one_match_as_the_formula_says():
    """idf = ln(1 + (N - df + 0.5) / (df + 0.5)), tf part = tf / (tf + k1 (1 - b + b L / avg)) with N = 2, df = 1, tf = 1, L = avg: ln 2 / 2.5."""
    index = BM25Index(["red door", "blue wall"])
    assert index._index.get_scores(["red"])[0] == pytest.approx(np.log(2.0) / 2.5, rel=1e-5)


def test_equal_scores_put_the_newer_passage_first():
    index = HybridIndex(["Ana likes tea."] * 3, TIMES[:3])
    assert index.search("tea", k=3, before=None) == [2, 1, 0]


@pytest.mark.parametrize("encoder", [None, HashingEncoder()])
def test_later_passages_are_left_out_before_ranking_so_that_k_earlier_ones_remain(encoder):
    texts = ["Ana plays chess."] * 30 + ["Ana plays chess well, chess is chess."] * 30
    times = [f"2024-01-{day:02d}T10:00:00" for day in range(1, 31)] + [f"2024-02-{day:02d}T10:00:00" for day in range(1, 30)] + ["2024-03-01T10:00:00"]
    found = HybridIndex(texts, times, encoder=encoder).search("chess", k=5, before="2024-01-30T10:00:00")
    assert found == [29, 28, 27, 26, 25]


def test_the_moment_itself_is_included_and_the_second_before_is_not():
    index = HybridIndex(TEXTS, TIMES)
    assert index.search("golf", k=5, before=TIMES[1]) == [1]
    assert index.search("golf", k=5, before="2024-01-02T09:59:59") == []


def test_positions_are_those_of_the_given_order_also_when_it_is_not_that_of_time():
    texts, times = TEXTS[::-1], TIMES[::-1]
    index = HybridIndex(texts, times, encoder=HashingEncoder())
    assert texts[index.search("golf", k=1, before=None)[0]] == "Ana plays golf."
    assert index.search("bread", k=1, before=TIMES[2]) != [0]


@pytest.mark.parametrize("encoder", [None, HashingEncoder()])
def test_empty_queries_and_empty_corpora_give_nothing(encoder):
    index = HybridIndex(TEXTS, TIMES, encoder=encoder)
    assert index.search("", k=5, before=None) == index.search("  \n", k=5, before=None) == index.search("chess", k=0, before=None) == []
    assert index.search("chess", k=5, before="1999-01-01T00:00:00") == []
    assert HybridIndex([], [], encoder=encoder).search("chess", k=5, before=None) == []
    assert HybridIndex(["", "the"], TIMES[:2], encoder=encoder).search("chess", k=5, before=None) == []


def test_dense_ranking_is_by_inner_product_and_drops_what_is_unrelated():
    vectors = np.array([[1, 0], [0.6, 0.8], [0, 1], [-1, 0]], dtype=np.float32)
    index = DenseIndex(vectors)
    query = np.array([1, 0], dtype=np.float32)
    assert index.rank(query, limit=4, depth=10) == [0, 1]
    assert index.rank(np.array([0, 1], dtype=np.float32), limit=2, depth=10) == [1]
    assert index.rank(query, limit=0, depth=10) == []


def test_hybrid_finds_what_only_the_dense_side_knows():
    class Synonyms:
        name, dim = "synonyms", 2

        def encode(self, texts):
            return np.array([[1.0, 0.0] if ("car" in text or "automobile" in text) else [0.0, 1.0] for text in texts], dtype=np.float32)

    index = HybridIndex(["Ana sold the automobile.", "Ana plays golf."], TIMES[:2], encoder=Synonyms())
    assert index.search("car", k=5, before=None) == [0]


def test_threads_search_one_index_and_agree():
    index = HybridIndex(TEXTS * 20, [time for _ in range(20) for time in TIMES], encoder=HashingEncoder())
    expected = index.search("chess with Leo", k=5, before=None)
    results: list[list[int]] = []
    threads = [threading.Thread(target=lambda: results.extend(index.search("chess with Leo", k=5, before=None) for _ in range(50))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 200 and all(result == expected for result in results)
