"""LoCoMo's own F1, to the last digit (task_eval/evaluation.py of snap-research/locomo; Maharana et al. 2024, section 5).

What it does, by category of the question:

======================  ==========================================================================================================
1 multi-hop             gold and prediction are split at commas; the mean over the parts of gold of the best F1 of any part of the prediction
2 temporal, 4 single    F1 of the two texts
3 open-domain           the same, of gold before its first semicolon
5 adversarial           1 where the prediction holds "no information available" or "not mentioned" in any case, else 0; gold is not read
======================  ==========================================================================================================

F1 is of word multisets, lower-case, without ASCII punctuation (a hyphen joins its words), without a, an, the, and; stemmed by nltk's PorterStemmer with its
own extensions. Quirks are kept: an empty part of gold is worth 0, a number and its word differ, a typographic apostrophe stays.

One deviation: of several gold texts the best counts, where the original knows one.
"""

from __future__ import annotations

import functools
import string
from collections import Counter
from collections.abc import Callable, Sequence

from napmem_rl.data.locomo import CATEGORIES
from napmem_rl.errors import DataError
from napmem_rl.evals.text_metrics.pairs import Pair

_DELETE_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ABSTENTIONS = ("no information available", "not mentioned")
_NUMBERS = {str(number): number for number in CATEGORIES} | {name: number for number, name in CATEGORIES.items()}


def find_category(category: str) -> int | None:
    """LoCoMo's number of a category given as number or name; None for anything else. Example: "multi-hop" is 1."""
    return _NUMBERS.get(category)


def compute_locomo_f1(pair: Pair) -> float:
    """LoCoMo's F1 of one prediction, in [0, 1].

    Raises:
        DataError: a category that is none of LoCoMo's, or no gold where the category needs it.
    """
    category = find_category(pair.category)
    if category is None:
        expected = ", ".join(f"{number} ({name})" for number, name in CATEGORIES.items())
        raise DataError.of(f"{pair.describe()}, field 'category'", "is none of LoCoMo's", got=pair.category, expected=expected)
    if category == 5:
        return float(any(phrase in pair.prediction.lower() for phrase in _ABSTENTIONS))
    if not pair.gold:
        raise DataError.of(f"{pair.describe()}, field 'gold'", "is empty", expected="a text to compare with")
    return max(_score(category, gold, pair.prediction) for gold in pair.gold)


def normalise_words(text: str) -> list[str]:
    """The words that are compared, before stemming. Example: "Rock & roll, the 2nd" → ["rock", "roll", "2nd"]."""
    return _articles()(" ", text.lower().translate(_DELETE_PUNCTUATION)).split()


def _score(category: int, gold: str, prediction: str) -> float:
    if category == 1:
        return _mean_of_best(gold.split(","), prediction.split(","))
    return _word_f1(gold.split(";")[0] if category == 3 else gold, prediction)


def _mean_of_best(golds: Sequence[str], predictions: Sequence[str]) -> float:
    import numpy as np

    return float(np.mean([max(_word_f1(gold, prediction) for prediction in predictions) for gold in golds]))


def _word_f1(gold: str, prediction: str) -> float:
    """2PR / (P + R) in just these steps: other forms of the same formula differ in the last digit."""
    stem = _stemmer()
    wanted, given = [[stem(word) for word in normalise_words(text)] for text in (gold, prediction)]
    num_common = sum((Counter(wanted) & Counter(given)).values())
    if num_common == 0:
        return 0.0
    precision, recall = num_common / len(given), num_common / len(wanted)
    return (2 * precision * recall) / (precision + recall)


@functools.cache
def _articles() -> Callable[[str, str], str]:
    """Substitution of articles. The module regex, not re: the two part ways at words with combining marks."""
    import regex

    return regex.compile(r"\b(?:a|an|the|and)\b").sub


@functools.cache
def _stemmer() -> Callable[[str], str]:
    from nltk.stem.porter import PorterStemmer

    return functools.lru_cache(maxsize=100_000)(PorterStemmer().stem)
