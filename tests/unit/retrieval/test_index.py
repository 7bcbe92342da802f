"""The index against the slow way, whatever is filtered, replaced, appended or stored; what is on disk and what may happen to it."""

from __future__ import annotations

import logging
import random
import threading
from pathlib import Path

import numpy as np
import pytest
from drawn_passages import (
    SPEAKERS,
    WORDS,
    HalfEncoder,
    build_list,
    draw_filter,
    draw_rows,
    fuse_slowly,
    rank,
    score_vectors,
    score_words,
    takes_part,
)

from napmem_rl.retrieval.encoder import HashingEncoder
from napmem_rl.retrieval.fusion import compute_rrf_scores
from napmem_rl.retrieval.index import PassageIndex
from napmem_rl.retrieval.passages import PassageList, SearchFilter

ROWS = draw_rows(240, seed=7)
TEXTS = ["Ana plays chess.", "Ana plays golf.", "Ana plays chess with Leo.", "Leo bakes bread."]
TIMES = ["2024-01-01T10:00:00", "2024-01-02T10:00:00", "2024-01-03T10:00:00", "2024-01-04T10:00:00"]


def build(source, **options) -> PassageIndex:
    return PassageIndex(source, level="raw", **options)


def search_slowly(rows, query, *, k, where, ranking, vectors):
    eligible = [position for position, row in enumerate(rows) if takes_part(row, where)]
    if ranking == "fused":
        return rank(rows, fuse_slowly(rows, query, eligible, vectors), eligible)[:k]
    rankings = []
    if ranking != "dense" or not vectors:
        rankings.append(rank(rows, score_words(rows, query), eligible)[: max(20, 2 * k)])
    if ranking != "bm25" and vectors:
        rankings.append(rank(rows, score_vectors(rows, query), eligible)[: max(20, 2 * k)])
    if len(rankings) == 1:
        return rankings[0][:k]
    return rank(rows, [compute_rrf_scores(rankings).get(position, 0.0) * 100 for position in range(len(rows))], eligible)[:k]


def draw_searches(num: int, seed: int):
    rng = random.Random(seed)
    for _ in range(num):
        query = " ".join([*rng.choices(WORDS, k=3), *rng.choices([*SPEAKERS, "w1"], k=1)])
        yield query, rng.choice([1, 5, 12]), draw_filter(rng, ROWS)


def stored(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("encoder", [None, HalfEncoder()], ids=["keywords", "hybrid"])
@pytest.mark.parametrize("ranking", ["rrf", "bm25", "dense", "fused"])
def test_searches_find_what_the_slow_way_finds(ranking, encoder):
    index = build(build_list(ROWS), encoder=encoder, ranking=ranking)
    for query, k, where in draw_searches(60, seed=1):
        assert index.search(query, k=k, where=where) == search_slowly(ROWS, query, k=k, where=where, ranking=ranking, vectors=encoder is not None)


@pytest.mark.parametrize("ranking", ["rrf", "fused"])
def test_what_is_found_does_not_depend_on_stored_parts_tails_and_extensions(tmp_path, ranking):
    whole = build(build_list(ROWS), encoder=HalfEncoder(), ranking=ranking)
    build(build_list(ROWS[:120]), encoder=HalfEncoder(), directory=tmp_path)
    grown = build(build_list(ROWS[:150]), encoder=HalfEncoder(), directory=tmp_path, ranking=ranking, seal=False)
    for stop in (151, 160, 200, 240):
        grown = grown.extended(build_list(ROWS[:stop]))
    tailed = build(build_list(ROWS), encoder=HalfEncoder(), directory=tmp_path, ranking=ranking, seal=False)
    for query, k, where in draw_searches(60, seed=2):
        expected = whole.search(query, k=k, where=where)
        assert grown.search(query, k=k, where=where) == tailed.search(query, k=k, where=where) == expected


def test_an_extension_leaves_the_shorter_index_as_it_was():
    short = build(build_list(ROWS[:100]), encoder=HalfEncoder())
    before = [short.search(query, k=k, where=where) for query, k, where in draw_searches(20, seed=3)]
    short.extended(build_list(ROWS))
    assert [short.search(query, k=k, where=where) for query, k, where in draw_searches(20, seed=3)] == before
    assert len(short) == 100


def test_an_index_over_nothing_can_be_extended():
    empty = build(PassageList([], []), encoder=HalfEncoder())
    assert empty.search("chess", k=5) == []
    assert empty.extended(PassageList(TEXTS, TIMES)).search("golf", k=1) == [1]


@pytest.mark.parametrize("ranking", ["rrf", "bm25", "fused"])
def test_equal_scores_put_the_newer_passage_first(ranking):
    source = PassageList(["Ana likes tea."] * 3, [TIMES[1], TIMES[2], TIMES[0]], sessions=["a", "b", "c"])
    assert build(source, ranking=ranking).search("tea", k=3) == [1, 0, 2]


@pytest.mark.parametrize("encoder", [None, HashingEncoder()], ids=["keywords", "hybrid"])
@pytest.mark.parametrize("ranking", ["rrf", "fused"])
def test_later_passages_are_left_out_before_ranking_so_that_k_earlier_ones_remain(encoder, ranking):
    texts = ["Ana plays chess."] * 30 + ["Ana plays chess well, chess is chess."] * 30
    times = [f"2024-01-{day:02d}T10:00:00" for day in range(1, 31)] + [f"2024-02-{day:02d}T10:00:00" for day in range(1, 30)] + ["2024-03-01T10:00:00"]
    index = build(PassageList(texts, times, sessions=[str(number) for number in range(60)]), encoder=encoder, ranking=ranking)
    assert index.search("chess", k=5, where=SearchFilter(before="2024-01-30T10:00:00")) == [29, 28, 27, 26, 25]


def test_the_moment_itself_is_included_and_the_second_before_is_not():
    index = build(PassageList(TEXTS, TIMES), ranking="rrf")
    assert index.search("golf", k=5, where=SearchFilter(before=TIMES[1])) == [1]
    assert index.search("golf", k=5, where=SearchFilter(before="2024-01-02T09:59:59")) == []
    assert index.search("golf", k=5, where=SearchFilter(after=TIMES[1])) == [1]
    assert index.search("golf", k=5, where=SearchFilter(after="2024-01-02T10:00:01")) == []


def test_a_neighbour_that_takes_no_part_lends_nothing():
    texts, times = ["Leo: Where do you live?", "Ana: In Oslo.", "Leo: Nice.", "Ana: Tea?"], TIMES
    index = build(PassageList(texts, times, speakers=["Leo", "Ana", "Leo", "Ana"], live=[True] * 4))
    assert index.search("oslo", k=4) == [1, 2, 0, 3]
    assert index.search("oslo", k=4, where=SearchFilter(before=times[0])) == []
    assert index.search("live", k=4, where=SearchFilter(after=times[1])) == []
    dead = build(PassageList(texts, times, live=[True, False, True, True]))
    assert dead.search("oslo", k=4) == []


def test_a_speaker_or_date_alone_finds_nothing():
    source = PassageList(["Ana: Tea?", "Leo: Yes."], TIMES[:2], speakers=["Ana", "Leo"], sessions=["a", "b"])
    assert build(source).search("zebras in January 2024", k=5) == []


def test_of_two_that_fit_alike_the_one_of_the_named_speaker_or_day_is_first():
    source = PassageList(["I love chess.", "I love chess.", "Tea."], TIMES[:3], speakers=["Ana", "Leo", "Mia"], sessions=["a", "b", "c"])
    index = build(source)
    assert index.search("chess", k=2) == [1, 0]
    assert index.search("What did Ana say about chess?", k=2) == [0, 1]
    assert index.search("chess on 1 January 2024", k=2) == [0, 1]
    assert index.search("chess yesterday", k=2, where=SearchFilter(before="2024-01-02T10:00:00")) == [0, 1]


def test_a_query_in_the_first_person_prefers_what_the_user_said():
    source = PassageList(["We love chess.", "You love chess.", "Tea."], TIMES[:3], kinds=["user", "assistant", "user"], sessions=["a", "b", "c"])
    assert build(source).search("love of chess", k=2) == [1, 0]
    assert build(source).search("my love of chess", k=2) == [0, 1]


def test_records_gain_less_from_their_neighbours_than_messages_do():
    """The last of four: own score 0; two turns from the hit as a message, out of reach as a record."""
    source = PassageList(["Tea.", "Chess.", "Coffee.", "Cocoa."], TIMES)
    assert PassageIndex(source, level="raw").search("chess", k=4) == [1, 2, 0, 3]
    assert PassageIndex(source, level="record").search("chess", k=4) == [1, 2, 0]


def test_times_that_are_no_dates_are_searched_without_dates(caplog):
    index = build(PassageList(["Tea.", "Coffee."], ["", "long ago"]))
    assert index.search("tea in May 2023", k=1) == [0]
    assert "dates do not count" in caplog.text


@pytest.mark.parametrize("encoder", [None, HashingEncoder()], ids=["keywords", "hybrid"])
@pytest.mark.parametrize("ranking", ["rrf", "dense", "fused"])
def test_empty_queries_and_empty_corpora_give_nothing(encoder, ranking):
    index = build(PassageList(TEXTS, TIMES), encoder=encoder, ranking=ranking)
    assert index.search("", k=5) == index.search("  \n", k=5) == index.search("chess", k=0) == []
    assert index.search("chess", k=5, where=SearchFilter(before="1999-01-01T00:00:00")) == []
    assert build(PassageList(["", "the"], TIMES[:2]), encoder=encoder, ranking=ranking).search("chess", k=5) == []


def test_hybrid_finds_what_only_the_vectors_know():
    class Synonyms:
        name, dim = "synonyms", 2

        def encode(self, texts):
            return np.array([[1.0, 0.0] if ("car" in text or "automobile" in text) else [0.0, 1.0] for text in texts], dtype=np.float32)

    source = PassageList(["Ana sold the automobile.", "Ana plays golf."], TIMES[:2], sessions=["a", "b"])
    assert build(source, encoder=Synonyms()).search("car", k=5) == [0]


def test_a_later_version_reuses_what_an_earlier_one_left_and_encodes_new_passages_alone(tmp_path):
    build(build_list(ROWS[:120]), encoder=HalfEncoder(), directory=tmp_path)
    first = stored(tmp_path)
    assert len(first) == 2 and all(name.startswith("raw-120-") for name in first)
    encoder = HalfEncoder()
    later = build(build_list(ROWS), encoder=encoder, directory=tmp_path)
    assert encoder.seen == [row["text"] for row in ROWS[120:]]
    assert all(name.startswith("raw-240-") for name in stored(tmp_path)), "the longer run stands in place of the shorter one that it holds"
    encoder = HalfEncoder()
    again = build(build_list(ROWS), encoder=encoder, directory=tmp_path)
    assert encoder.seen == []
    assert again.search("w1 w2", k=9) == later.search("w1 w2", k=9)
    assert isinstance(again._sides[0]._lists.parts[0].passages.base, np.memmap)


def test_a_small_tail_is_not_stored_until_build_is_called(tmp_path):
    build(build_list(ROWS[:235]), encoder=HalfEncoder(), directory=tmp_path)
    index = build(build_list(ROWS), encoder=HalfEncoder(), directory=tmp_path)
    assert all(name.startswith("raw-235-") for name in stored(tmp_path))
    index.build()
    assert all(name.startswith("raw-240-") for name in stored(tmp_path))


def test_a_bank_that_went_another_way_reuses_nothing(tmp_path):
    build(build_list(ROWS[:120]), encoder=HalfEncoder(), directory=tmp_path)
    other = [row | {"text": row["text"] + " other"} for row in ROWS[:160]]
    encoder = HalfEncoder()
    index = build(build_list(other), encoder=encoder, directory=tmp_path)
    assert len(encoder.seen) == 160
    assert index.search("other", k=1) == search_slowly(other, "other", k=1, where=SearchFilter(), ranking="fused", vectors=True)
    assert len(stored(tmp_path)) == 4, "what belongs to another history stays"


def test_passages_that_end_amid_a_commit_are_not_stored(tmp_path):
    index = build(build_list(ROWS, ends=[200]), encoder=HalfEncoder(), directory=tmp_path / "index")
    index.build()
    assert not (tmp_path / "index").exists()
    assert index.search("w1", k=3)


@pytest.mark.parametrize("name", ["vectors.npy", "counts.npy", "vocabulary.json", "meta.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_file_is_computed_again_with_a_word_about_it(tmp_path, caplog, name, damage):
    expected = build(build_list(ROWS), encoder=HalfEncoder(), directory=tmp_path).search("w1 w2", k=9)
    path = next(tmp_path.glob(f"*/{name}"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink() if damage == "remove" else path.write_bytes(content if damage == "flip" else content[: len(content) // 2])
    with caplog.at_level(logging.WARNING):
        assert build(build_list(ROWS), encoder=HalfEncoder(), directory=tmp_path).search("w1 w2", k=9) == expected
    assert "computed again" in caplog.text or (name, damage) == ("meta.json", "remove")
    caplog.clear()
    build(build_list(ROWS), encoder=HalfEncoder(), directory=tmp_path)
    assert caplog.text == "", "it was put right on disk"


def test_vectors_of_another_width_or_encoder_are_never_mixed(tmp_path, caplog):
    class Wider(HalfEncoder):
        dim = 128

        def __init__(self):
            super().__init__()
            self._encoder = HashingEncoder(128)

    class Other(HalfEncoder):
        name = "other-64"

    build(build_list(ROWS[:200]), encoder=HalfEncoder(), directory=tmp_path)
    wide, other = Wider(), Other()
    expected = build(build_list(ROWS), encoder=Wider()).search("w1 w2", k=9)
    assert build(build_list(ROWS), encoder=wide, directory=tmp_path, seal=False).search("w1 w2", k=9) == expected
    assert "expected (200, 128)" in caplog.text and len(wide.seen) == 241
    build(build_list(ROWS), encoder=other, directory=tmp_path)
    assert len(other.seen) == 240
    assert any("half_64" in name for name in stored(tmp_path)) and any("other_64" in name for name in stored(tmp_path))


def test_a_directory_that_cannot_be_written_is_logged_and_searched_all_the_same(tmp_path, caplog):
    blocked = tmp_path / "index"
    blocked.write_text("a file where the directory would be")
    index = build(build_list(ROWS), encoder=HalfEncoder(), directory=blocked)
    assert "cannot be written" in caplog.text
    assert index.search("w1 w2", k=9) == build(build_list(ROWS), encoder=HalfEncoder()).search("w1 w2", k=9)


def test_threads_search_and_extend_one_index_and_agree(tmp_path):
    index = build(build_list(ROWS[:200]), encoder=HalfEncoder(), directory=tmp_path)
    searches = list(draw_searches(30, seed=5))
    expected = [index.search(query, k=k, where=where) for query, k, where in searches]
    longer = build(build_list(ROWS), encoder=HalfEncoder())
    expected_longer = [longer.search(query, k=k, where=where) for query, k, where in searches]
    results: list[bool] = []

    def work() -> None:
        grown = index.extended(build_list(ROWS))
        grown.build()
        results.append([index.search(query, k=k, where=where) for query, k, where in searches] == expected)
        results.append([grown.search(query, k=k, where=where) for query, k, where in searches] == expected_longer)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 8
