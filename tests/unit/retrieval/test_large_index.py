"""Large indexes, made large by a low limit: filters stay exact, approximate search finds what exact search finds, growth takes over what is there."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
from drawn_passages import HalfEncoder, build_list, draw_rows

from napmem_rl.retrieval.bm25 import tokenize_words
from napmem_rl.retrieval.hnsw import HnswGraph
from napmem_rl.retrieval.index import PassageIndex
from napmem_rl.retrieval.passages import SearchFilter
from napmem_rl.retrieval.tantivy_words import TantivyWords, write_tantivy

ROWS = draw_rows(600, seed=11)
FILTERS = [
    SearchFilter(),
    SearchFilter(before="2024-06-15T10:00:00"),
    SearchFilter(before="2024-02", after="2024-01-05"),
    SearchFilter(kinds=("user",)),
    SearchFilter(session_ids=("s3", "s50", "s99", "unknown")),
    SearchFilter(kinds=("nobody",)),
    SearchFilter(after="2024-09-01T00:00:00", kinds=("assistant",), session_ids=tuple(f"s{number}" for number in range(60, 100))),
]
QUERIES = ["w1 w2 w3", "w10 w59", "Ana w7", "w5 w5 w6 in March 2024"]


def build(rows, directory: Path | None, *, large: int = 300, **options) -> PassageIndex:
    return PassageIndex(build_list(rows), level="raw", encoder=options.pop("encoder", HalfEncoder()), directory=directory, large=large, **options)


def draw_vectors(num: int, seed: int) -> np.ndarray:
    """Unit rows around 300 centres, half precision."""
    centres = np.random.default_rng(0).standard_normal((300, 64))
    rng = np.random.default_rng(seed)
    rows = centres[rng.integers(0, len(centres), num)] + 0.7 * rng.standard_normal((num, 64))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16)


def share_found(graph: HnswGraph, vectors: np.ndarray, mask: np.ndarray) -> float:
    """Recall@10 against exact search, over 100 queries."""
    found = 0
    for query in draw_vectors(100, seed=2).astype(np.float32):
        scores = np.where(mask, vectors.astype(np.float32) @ query, -2)
        expected = set(np.argsort(-scores, kind="stable")[: min(10, int(mask.sum()))].tolist())
        got = graph.find(query, mask, 10)[0]
        assert mask[got].all()
        found += len(expected & set(got.tolist())) / len(expected)
    return found / 100


@pytest.fixture(scope="module")
def graph() -> tuple[HnswGraph, np.ndarray]:
    vectors = draw_vectors(6000, seed=1)
    return HnswGraph.build(vectors), vectors


@pytest.mark.parametrize("share", [1.0, 0.5, 0.12, 0.02])
def test_the_graph_finds_at_least_95_of_100_nearest_vectors_whatever_share_takes_part(graph, share):
    mask = np.random.default_rng(3).random(len(graph[1])) < share
    assert share_found(*graph, mask) >= 0.95


def test_a_graph_that_was_stored_and_grown_is_as_good(tmp_path, graph):
    first, vectors = HnswGraph.build(graph[1][:4000]), graph[1]
    first.save(tmp_path / "graph")
    grown = HnswGraph.load(tmp_path / "graph", vectors[:4000])
    grown.add(vectors)
    assert len(grown) == 6000 and share_found(grown, vectors, np.ones(6000, dtype=bool)) >= 0.95
    with pytest.raises(ValueError, match="not a graph over 10 rows"):
        HnswGraph.load(tmp_path / "graph", vectors[:10])
    (tmp_path / "graph").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="no graph of faiss"):
        HnswGraph.load(tmp_path / "graph", vectors[:4000])


def test_tantivy_counts_the_same_words_and_filters_exactly(tmp_path):
    source = build_list(ROWS)
    words = TantivyWords(tmp_path / "t", len(ROWS), write_tantivy(tmp_path / "t", source, None))
    passages = [tokenize_words(row["text"]) for row in ROWS]
    assert words.num_words == sum(map(len, passages))
    assert words.count_passages("w7") == sum("w7" in passage for passage in passages)
    live = source.live
    for where in FILTERS:
        mask = live & np.array([where.kinds is None or row["kind"] in where.kinds for row in ROWS])
        found, scores = words.find(["w1", "w2"], mask, where, 5)
        all_found = words.find(["w1", "w2"], mask, where, 10_000)[0]
        assert mask[found].all() and (np.diff(scores) <= 0).all()
        assert found.tolist() == all_found[: len(found)].tolist() and len(found) == min(5, len(all_found))


@pytest.mark.parametrize("ranking", ["bm25", "dense", "rrf", "fused"])
def test_a_large_index_leaves_out_what_takes_no_part_and_finds_nearly_what_a_small_one_finds(tmp_path, ranking):
    small = build(ROWS, None, large=10_000, ranking=ranking)
    large = build(ROWS, tmp_path, ranking=ranking)
    assert all(side.base is not None for side in large._sides if side is not None)
    shared, total = 0, 0
    for where in FILTERS:
        for query in QUERIES:
            expected, found = small.search(query, k=10, where=where), large.search(query, k=10, where=where)
            assert len(found) == len(expected)
            assert all(ROWS[position]["live"] for position in found)
            assert all(where.kinds is None or ROWS[position]["kind"] in where.kinds for position in found)
            assert all(where.session_ids is None or ROWS[position]["session"] in where.session_ids for position in found)
            assert all((where.after or "") <= ROWS[position]["time"] <= (where.before or "9") for position in found)
            shared, total = shared + len(set(found) & set(expected)), total + len(expected)
    assert shared / total > 0.9, "tantivy rounds lengths and has another k1; equal scores at the end of a list may be others"


def test_a_large_index_grows_out_of_what_is_there(tmp_path):
    build(ROWS[:400], tmp_path)
    encoder = HalfEncoder()
    tailed = build(ROWS, tmp_path, encoder=encoder, seal=False)
    assert len(tailed._sides[0].base) == 400 and len(encoder.seen) == 200
    grown = build(ROWS, tmp_path)
    assert len(grown._sides[0].base) == len(grown._sides[1].base[0]) == 600
    assert {path.name.split("-")[1] for path in tmp_path.iterdir()} == {"600"}
    for query in QUERIES:
        expected = build(ROWS, None, large=10_000).search(query, k=10)
        assert len(set(tailed.search(query, k=10)) & set(expected)) >= 8
        assert len(set(grown.search(query, k=10)) & set(expected)) >= 8


def test_a_bank_that_becomes_large_changes_its_form_once(tmp_path):
    build(ROWS[:290], tmp_path)
    assert {path.name.split("-", 3)[3] for path in tmp_path.iterdir()} == {"words", "half_64-" + next(tmp_path.glob("*half*")).name[-8:]}
    encoder = HalfEncoder()
    build(ROWS, tmp_path, encoder=encoder)
    assert len(encoder.seen) == 310, "vectors go over from the small form"
    encoder = HalfEncoder()
    again = build(ROWS, tmp_path, encoder=encoder)
    assert again._sides[0].base is not None and encoder.seen == []


def test_a_damaged_large_index_is_built_again(tmp_path, caplog):
    expected = build(ROWS, tmp_path).search("w1 w2", k=10)
    for path in (next(tmp_path.glob("*/graph.faiss")), next(tmp_path.glob("*tantivy/tantivy/*.term"))):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 255
        path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert build(ROWS, tmp_path).search("w1 w2", k=10) == expected
    assert caplog.text.count("damaged") >= 2


def test_a_large_bank_without_its_index_is_searched_exactly(tmp_path, caplog):
    blocked = tmp_path / "index"
    blocked.write_text("a file where the directory would be")
    encoder = HalfEncoder()
    exact = build(ROWS, blocked, encoder=encoder)
    exact.build()
    assert "cannot be written" in caplog.text and len(encoder.seen) == 600, "what is in memory stays"
    assert [exact.search(query, k=10) for query in QUERIES] == [build(ROWS, None, large=10_000).search(query, k=10) for query in QUERIES]


def test_tantivy_reads_a_directory_that_it_may_not_write_through_links_of_its_own(tmp_path, monkeypatch):
    num_words = write_tantivy(tmp_path / "written", build_list(ROWS), None)
    expected = TantivyWords(tmp_path / "written", len(ROWS), num_words).find(["w1"], np.ones(len(ROWS), dtype=bool), SearchFilter(), 10)[0].tolist()
    shutil.copytree(tmp_path / "written", tmp_path / "t", ignore=shutil.ignore_patterns("*.lock"))
    before = sorted(path.name for path in (tmp_path / "t").iterdir())
    monkeypatch.setattr("os.access", lambda path, mode: False)  # the tests may run as root, whom no mode stops
    words = TantivyWords(tmp_path / "t", len(ROWS), num_words)
    assert words.find(["w1"], np.ones(len(ROWS), dtype=bool), SearchFilter(), 10)[0].tolist() == expected
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == before
