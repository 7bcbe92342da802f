"""The proof on drawn users: what can be learned is learned and shown, chance is not, and no held-out user is learned from."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from napmem_rl.data.source import SourceBank, SourceSet
from napmem_rl.evals.rerank_proof import ProofSettings, run_proof, split_folds, summarise
from napmem_rl.evals.rerank_users import RerankCase, build_cases
from napmem_rl.retrieval.encoder import HashingEncoder
from napmem_rl.retrieval.rerank_learner import RerankSettings
from napmem_rl.schema import AnswerKey, Message, Task

SETTINGS = ProofSettings(
    learner=RerankSettings(num_candidates=8, num_chosen=2, baseline=-0.5, batch_size=4, learning_rate=0.1, init_std=1e-3), passes=6, min_updates=1, num_folds=2
)


def draw_cases(num_groups: int = 8, per_group: int = 10, dim: int = 12) -> list[RerankCase]:
    """Gold memories lean towards one direction that the questions do not ask for: a map can learn it, and it holds for every user."""
    rng = np.random.default_rng(0)
    cases = []
    for number in range(num_groups * per_group):
        query, memories, is_gold = rng.standard_normal(dim), rng.standard_normal((8, dim)), np.zeros(8, dtype=bool)
        is_gold[rng.integers(8)] = True
        query[1], memories[:, 0] = 3.0, np.where(is_gold, 2.0, -0.5)
        memories /= np.linalg.norm(memories, axis=1, keepdims=True)
        query /= np.linalg.norm(query)
        order = np.argsort(-(memories @ query), kind="stable")
        group = f"g{number // per_group}"
        cases.append(RerankCase(group=group, user=group, query=query, memories=memories[order], is_gold=is_gold[order], num_gold=1))
    return cases


def test_a_direction_that_holds_for_all_is_learned_for_users_never_seen_and_chance_is_not() -> None:
    cases = draw_cases()
    table = summarise(cases, [run_proof(cases, SETTINGS, seed=seed, report=lambda line: None) for seed in (0, 1)])
    learned, chance = table["arms"]["learned"], table["arms"]["random_citations"]
    assert learned["closed"] > 0.5 and learned["low"] > 0.3 and learned["questions"] == len(cases)
    assert chance["closed"] < 0.2 and table["oracle"] == 1.0
    assert table["arms"]["fixed_verdicts"]["closed"] > 0.5
    assert table["courses"]["learned"][-1] > table["courses"]["learned"][0] + 0.05 and len(table["courses"]["random_citations"]) == 6
    assert set(table["arms"]) == {"learned", "fixed_verdicts", "random_citations", "seen", "own_first_half", "own_second_half"}
    assert len(learned["closed_by_seed"]) == 2


def test_a_group_is_in_one_fold_and_every_case_in_one() -> None:
    groups = ["a", "b", "a", "c", "b"]
    folds = split_folds(groups, 2)
    assert sorted(index for fold in folds for index in fold) == [0, 1, 2, 3, 4]
    assert [{groups[index] for index in fold} for fold in folds] == [{"a", "c"}, {"b"}]


def make_source() -> SourceSet:
    said = (("user", "I keep bees in the garden."), ("assistant", "How many hives?"), ("user", "Four hives."), ("assistant", "Lovely."))
    messages = tuple(
        Message(message_id=f"msg:{n}", session_id="s1", role=role, speaker=role, text=text, time=f"2024-03-01T10:00:0{n}")
        for n, (role, text) in enumerate(said)
    )
    task = Task(task_id="t1", bank_id="ana", question="How many hives in the garden?", category="fact", needs_memory=True)
    key = AnswerKey(task_id="t1", references=("four",), evidence_ids=("msg:3",))
    return SourceSet(name="own", banks=(SourceBank(bank_id="ana", group_id="ana", messages=messages),), items=((task, key),))


def test_exchanges_hold_their_replies_and_vectors_are_kept_from_run_to_run(tmp_path: Path) -> None:
    told: list[str] = []
    for _ in range(2):
        options = {"by_exchange": True, "num_candidates": 20, "store": tmp_path, "report": told.append}
        (case,) = build_cases(make_source(), HashingEncoder(64), **options)
    assert len(told) == 1 and case.memories.shape == (2, 64) and case.num_gold == 1
    (gold,) = case.memories[case.is_gold]
    np.testing.assert_allclose(gold, HashingEncoder(64).encode(["Four hives."])[0])
    (single,) = build_cases(make_source(), HashingEncoder(64), by_exchange=False, num_candidates=3, store=None, report=told.append)
    assert single.memories.shape == (3, 64) and single.num_gold == 1
