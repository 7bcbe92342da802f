"""MemChain measured in this process: fixed packets earn what they should, a policy without packets nothing, and practice changes the weights alone."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from napmem_rl.backend.local_policy import build_token_counter
from napmem_rl.backend.memchain_measure import load_questions, measure_extraction, measure_policy
from napmem_rl.backend.packet_practice_run import Practice, run_practice
from napmem_rl.backend.sft_packets import prepare_tiny, teach_rows
from napmem_rl.config.sft_recipe import load_sft_recipe
from napmem_rl.data.prepare import prepare
from napmem_rl.data.sources import build_synthetic
from napmem_rl.retrieval.encoder import load_encoder

RECIPE = Path(__file__).parents[3] / "recipes" / "memchain" / "cpu_sft.yaml"


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """The recipe over six users, without practice."""
    data_dir = tmp_path_factory.mktemp("measured") / "data"
    prepare(build_synthetic(6, seed=0), data_dir, inputs=[], encoder=load_encoder("hashing"), report=lambda line: None)
    return load_sft_recipe(RECIPE, [f"data.dir={data_dir}", "demonstrations.practice_steps=0"])


@pytest.fixture(scope="module")
def untrained(recipe):
    """The tiny policy as it is made."""
    return prepare_tiny(recipe, teach_rows(recipe, lambda line: None), lambda line: None)


@pytest.fixture(scope="module")
def questions(recipe):
    """Those of the train split that need memory."""
    return load_questions(recipe, "train")


def test_the_packet_of_all_candidates_answers_every_question_whose_evidence_was_found(recipe, untrained, questions):
    assert questions and all(one.task.needs_memory for one in questions)
    count = build_token_counter(untrained)
    everything, first = (measure_extraction(questions, recipe, number=number, count_tokens=count) for number in (24, 1))
    found = [set(one.key.evidence_ids) <= {item.id for item in one.candidates} for one in questions]
    assert [row["correctness"] for row in everything] == [float(is_found) for is_found in found]
    assert all(row["parsed"] == row["gate"] == 1 for row in everything)
    assert all(few["evidence_tokens"] < many["evidence_tokens"] for few, many in zip(first, everything, strict=True))


def test_a_policy_that_writes_no_packet_earns_nothing(recipe, untrained, questions):
    rows = measure_policy(untrained, questions[:3], recipe, mode="greedy", seed=0)
    assert [(row["reward"], row["parsed"], row["evidence_tokens"]) for row in rows] == [(0.0, 0.0, 0.0)] * 3


def test_practice_changes_the_weights_and_nothing_else_of_the_policy(untrained):
    def load():
        return AutoModelForCausalLM.from_pretrained(untrained, attn_implementation="sdpa").state_dict(), AutoTokenizer.from_pretrained(untrained).get_vocab()

    (before, words), told = load(), []
    run_practice(Practice(path=untrained, steps=2, seed=0, num_candidates=8), told.append)
    after, same_words = load()
    assert words == same_words and before.keys() == after.keys() and any(not torch.equal(before[name], after[name]) for name in before)
    assert len(told) == 1 and told[0].startswith("practice: step 2 of 2, loss ")
