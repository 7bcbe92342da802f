"""A learned reranker in a bank's searches: over-fetched, deterministic, and refused where it does not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from napmem_rl.backend.bank_search import build_search
from napmem_rl.config.sections import MemoryConfig
from napmem_rl.errors import DataError
from napmem_rl.memory.bank import MemoryBank, save_bank
from napmem_rl.retrieval.encoder import HashingEncoder
from napmem_rl.retrieval.index import PassageIndex
from napmem_rl.retrieval.passages import PassageList
from napmem_rl.retrieval.rerank_learner import RerankLearner, RerankSettings
from napmem_rl.retrieval.rerank_state import RerankStamp, SearchReranker, save_reranker
from napmem_rl.schema import Level, Message, Profile

ENCODER = HashingEncoder(64)
COLOURS = ("red", "blue", "green", "grey", "black", "white", "brown", "pink")
TEXTS = [f"Ana painted the {colour} fence near the river house" for colour in COLOURS]


def make_index(ranking: str, reranker: SearchReranker | None = None) -> PassageIndex:
    times = [f"2024-03-{day:02d}T10:00:00" for day in range(1, len(TEXTS) + 1)]
    return PassageIndex(PassageList(TEXTS, times), level="raw", encoder=ENCODER, ranking=ranking, reranker=reranker)


def make_learner(init_std: float = 0.0) -> RerankLearner:
    return RerankLearner(ENCODER.dim, RerankSettings(num_candidates=6, num_chosen=3, init_std=init_std, batch_size=1, learning_rate=0.05))


@pytest.mark.parametrize("ranking", ["fused", "rrf", "dense"])
def test_maps_of_zero_find_what_is_found_without_them(ranking: str) -> None:
    plain, reranked = make_index(ranking), make_index(ranking, SearchReranker(make_learner().reranker, 6))
    for query in ("the river fence", "a blue fence", "what is pink or white?"):
        assert reranked.search(query, k=3) == plain.search(query, k=3)
        assert reranked.search(query, k=8) == plain.search(query, k=8)


@pytest.mark.parametrize("ranking", ["fused", "dense"])
def test_what_was_learned_lifts_a_candidate_from_below_k(ranking: str) -> None:
    learner, plain = make_learner(), make_index(ranking)
    found = plain.find_candidates("the river fence", k=6)
    wanted = found.positions[4]
    for _ in range(300):
        reranking = learner.draw([str(position) for position in found.positions], found.query, found.vectors, prior=found.prior)
        learner.learn(reranking, [name == str(wanted) for name in reranking.chosen_ids])
    index = make_index(ranking, SearchReranker(learner.reranker, 6))
    assert index.search("the river fence", k=2)[0] == wanted and wanted not in plain.search("the river fence", k=2)
    assert index.search("the river fence", k=2) == index.search("the river fence", k=2)
    assert index.search("  ", k=2) == [] and index.search("the river fence", k=0) == []


def test_candidates_come_with_the_vectors_that_they_are_compared_by() -> None:
    found = make_index("dense").find_candidates("a blue fence", k=4)
    expected = ENCODER.encode([TEXTS[position] for position in found.positions]).astype(np.float16)
    np.testing.assert_array_equal(found.vectors, expected.astype(np.float32))
    assert found.prior is None and make_index("fused").find_candidates("a blue fence", k=4).prior is not None


def save_state(path: Path, **stamp: object) -> str:
    save_reranker(path, make_learner(), RerankStamp(**{"scope": "global", "encoder": ENCODER.name, "ranking": "fused"} | stamp))
    return str(path)


def test_a_recipe_names_a_state_and_banks_are_searched_with_it(tmp_path: Path) -> None:
    message = Message(message_id="msg:1", session_id="s1", role="user", speaker="Ana", text="A red fence.", time="2024-03-01T10:00:00")
    save_bank(tmp_path / "ana", bank_id="ana", messages=[message], records=(), tracks=(), profile=Profile(text="", time="", source_ids=()), writer="x")
    search = build_search(MemoryConfig(rerank=save_state(tmp_path / "state.npz")), ENCODER)
    bank = MemoryBank.open(tmp_path / "ana", **search)
    assert [found.message_id for found in bank.search_messages("red fence", k=3)] == ["msg:1"]
    assert bank.search_records("red fence", k=3) == [] and len(bank.find_index(Level.RECORD)) == 0
    assert build_search(MemoryConfig(), ENCODER)["reranker"] is None


@pytest.mark.parametrize(
    ("stamp", "memory", "word"),
    [
        ({"encoder": "minilm"}, {}, "another encoder"),
        ({"ranking": "dense"}, {}, "another ranking"),
        ({}, {"ranking": "bm25"}, "needs vectors"),
    ],
)
def test_a_state_that_does_not_fit_the_search_is_refused(tmp_path: Path, stamp: dict[str, str], memory: dict[str, str], word: str) -> None:
    with pytest.raises(DataError, match=word):
        build_search(MemoryConfig(rerank=save_state(tmp_path / "state.npz", **stamp), **memory), ENCODER)
    with pytest.raises(DataError, match="another width"):
        wide = HashingEncoder(128)
        wide.name = ENCODER.name
        build_search(MemoryConfig(rerank=save_state(tmp_path / "state.npz")), wide)
