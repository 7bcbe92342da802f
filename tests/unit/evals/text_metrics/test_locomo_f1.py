"""LoCoMo's F1: rows worked by hand, and the outputs of the original code."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from napmem_rl.errors import DataError
from napmem_rl.evals.text_metrics.locomo_f1 import compute_locomo_f1, find_category, normalise_words
from napmem_rl.evals.text_metrics.pairs import Pair, load_pairs


def score(category: int | str, gold: str | tuple[str, ...], prediction: str) -> float:
    return compute_locomo_f1(Pair(id="q", category=str(category), gold=(gold,) if isinstance(gold, str) else gold, prediction=prediction))


@pytest.mark.parametrize(
    ("category", "gold", "prediction", "expected"),
    [
        (4, "a red kite", "the kite", 2 / 3),  # kite of {red, kite}: P 1, R 1/2
        (4, "tea and milk", "Milk, tea!", 1.0),  # "and" is an article here, punctuation goes
        (4, "well-known song", "well known song", 0.4),  # a hyphen joins: song alone of 3 and 2 words, P 1/3, R 1/2
        (4, "go go", "go", 2 / 3),  # multisets: P 1, R 1/2
        (4, "paintings", "painting", 1.0),  # stems
        (4, "lying", "lie", 1.0),  # nltk's own exception to Porter
        (4, "the", "the", 0.0),  # nothing is left to compare
        (2, "3 June 2021", "June 2021", 0.8),  # P 1, R 2/3
        (2, "a, b", "b", 1.0),  # no split outside of category 1; "a" is an article
        (3, "Likely yes; her work", "likely yes", 1.0),
        (4, "Likely yes; her work", "likely yes", 2 / 3),  # the semicolon ends gold in category 3 alone: P 1, R 1/2
        (1, "bread, cheese", "cheese", 0.5),
        (1, "bread, cheese", "cheese, bread, wine", 1.0),  # more parts than asked for cost nothing
        (1, "bread, cheese", "bread cheese", 2 / 3),  # one part: each gold part has P 1/2, R 1
        (1, "bread,", "bread", 0.5),  # the empty part is worth 0
        (5, "a bike", "This is NOT MENTIONED anywhere", 1.0),
        (5, "a bike", "a bike", 0.0),
        (5, "a bike", "No information available.", 1.0),
        ("multi-hop", "bread, cheese", "cheese", 0.5),  # names of the project's categories
        ("adversarial", "x", "not mentioned", 1.0),
    ],
)
def test_rows_worked_by_hand(category: int | str, gold: str, prediction: str, expected: float) -> None:
    assert score(category, gold, prediction) == pytest.approx(expected, abs=1e-12)


def test_the_best_of_several_gold_texts_counts() -> None:
    assert score(4, ("a boat", "a ship"), "ship") == 1.0


def test_words_with_combining_marks_are_no_articles() -> None:
    assert normalise_words("a\u0301 the a b") == ["a\u0301", "b"]


def test_a_category_of_another_benchmark_is_refused() -> None:
    assert find_category("temporal-reasoning") is None and find_category("6") is None and find_category("") is None
    with pytest.raises(DataError, match="field 'category': is none of LoCoMo's; got '6'"):
        score(6, "x", "x")


def test_gold_is_needed_except_where_the_category_reads_none() -> None:
    assert score(5, (), "not mentioned") == 1.0
    with pytest.raises(DataError, match="field 'gold': is empty"):
        score(4, (), "x")


def test_the_outputs_of_the_original_code_are_reproduced_to_the_last_digit() -> None:
    path = Path(os.environ.get("NAPMEM_DATA", "/nowhere")) / "metrics" / "locomo_f1_pairs.json"
    if not path.is_file():
        pytest.skip("NAPMEM_DATA does not hold metrics/locomo_f1_pairs.json")
    official = [row["official"] for row in json.loads(path.read_text())["pairs"]]
    assert [compute_locomo_f1(pair) for pair, _ in load_pairs(path)] == official and len(official) > 10
