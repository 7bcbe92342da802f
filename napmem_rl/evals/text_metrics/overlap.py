"""Metrics of shared words: BLEU-4, ROUGE-L and METEOR, by sacrebleu, rouge-score and nltk. All in [0, 1].

Of several gold texts BLEU counts matches in any, as published; ROUGE-L and METEOR take the best.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from napmem_rl.errors import ConfigError
from napmem_rl.evals.text_metrics.loaded import LoadedMetric, import_library, name_version
from napmem_rl.evals.text_metrics.pairs import Pair

EXTRA = "eval"


def load_bleu(name: str, model: str | None) -> LoadedMetric:
    """BLEU-4 of each prediction (Papineni et al. 2002): exponential smoothing, orders longer than the text left out, as sacrebleu advises for single texts."""
    bleu = import_library("sacrebleu.metrics", "sacrebleu", EXTRA).BLEU(effective_order=True)

    def compute(pairs: Sequence[Pair]) -> list[float]:
        return [min(1.0, bleu.sentence_score(pair.prediction, list(pair.gold)).score / 100) for pair in pairs]  # floats may exceed 100

    return LoadedMetric(name=name, compute=compute, version=f"{name_version('sacrebleu')}, one text at a time, effective order, exponential smoothing, 13a")


def load_corpus_bleu(name: str, model: str | None) -> LoadedMetric:
    """BLEU-4 over all predictions at once: counts are summed before they are divided. What tables of papers usually hold."""
    metric = import_library("sacrebleu.metrics", "sacrebleu", EXTRA).BLEU()

    def compute(pairs: Sequence[Pair]) -> list[float]:
        width = max(len(pair.gold) for pair in pairs)
        streams = [[pair.gold[place] if place < len(pair.gold) else None for pair in pairs] for place in range(width)]
        return [min(1.0, metric.corpus_score([pair.prediction for pair in pairs], streams).score / 100)]

    return LoadedMetric(name=name, compute=compute, version=f"{name_version('sacrebleu')}, corpus, exponential smoothing, 13a", is_corpus=True)


def load_rouge_l(name: str, model: str | None) -> LoadedMetric:
    """F1 of the longest common subsequence of words (Lin 2004), lower-case, letters and digits, without stemming.

    Letters of all scripts count; the library's own tokenizer, the same for English, drops every letter but a to z.
    """
    scorer = import_library("rouge_score.rouge_scorer", "rouge-score", EXTRA).RougeScorer(["rougeL"], tokenizer=_UnicodeWords())

    def compute(pairs: Sequence[Pair]) -> list[float]:
        return [float(scorer.score_multi(pair.gold, pair.prediction)["rougeL"].fmeasure) for pair in pairs]

    return LoadedMetric(name=name, compute=compute, version=f"{name_version('rouge-score')}, F1, no stemming")


class _UnicodeWords:
    """A tokenizer as rouge-score takes one."""

    def tokenize(self, text: str) -> list[str]:
        return re.findall(r"[^\W_]+", text.lower())


def load_meteor(name: str, model: str | None) -> LoadedMetric:
    """METEOR (Lavie and Agarwal 2007; alpha .9, beta 3, gamma .5): equal words, equal stems, synonyms of WordNet; words split at punctuation.

    Raises:
        ConfigError: nltk or WordNet's files are missing.
    """
    meteor = import_library("nltk.translate.meteor_score", "nltk", EXTRA)
    split = import_library("nltk.tokenize", "nltk", EXTRA).wordpunct_tokenize
    wordnet = _open_wordnet(model)

    def compute(pairs: Sequence[Pair]) -> list[float]:
        return [float(meteor.meteor_score([split(gold) for gold in pair.gold], split(pair.prediction), wordnet=wordnet)) for pair in pairs]

    return LoadedMetric(name=name, compute=compute, version=f"{name_version('nltk')}, WordNet {wordnet.get_version()}")


def _open_wordnet(directory: str | None) -> Any:
    """WordNet read from its own directory; nothing is looked for, or fetched, anywhere else."""
    reader = import_library("nltk.corpus.reader.wordnet", "nltk", EXTRA)
    root = _find_wordnet(directory)

    class EnglishWordNet(reader.WordNetCorpusReader):
        """Without the map to version 3.0, which only other languages need and which looks for that version's files."""

        def map_wn(self, version: str = "wordnet") -> None:
            return None

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "multilingual functions are not available"
            return EnglishWordNet(root, omw_reader=None)
    except (OSError, LookupError, ValueError, AssertionError) as error:
        raise ConfigError.of(f"WordNet {directory}", f"cannot be read ({type(error).__name__}: {error})", expected="WordNet's database files") from error


def _find_wordnet(directory: str | None) -> Any:
    """nltk's pointer to the files: in the directory itself, or where nltk.download puts them below it, as a folder or zipped."""
    fix = "Give its directory, or an nltk_data directory that holds corpora/wordnet: metric_models.meteor in a recipe, --model on the command line."
    if directory is None:
        raise ConfigError.of("metric meteor", "needs the files of WordNet", fix=fix)
    data, path = import_library("nltk.data", "nltk", EXTRA), Path(directory).expanduser().resolve()
    trusted = str(path if path.is_dir() else path.parent)
    if trusted not in data.path:  # nltk opens nothing outside of the directories listed there
        data.path.append(trusted)
    for folder in (path, path / "wordnet", path / "corpora" / "wordnet"):
        if (folder / "data.noun").is_file():
            return data.FileSystemPathPointer(str(folder))
    for file in (path, path / "wordnet.zip", path / "corpora" / "wordnet.zip"):
        if file.is_file() and file.suffix == ".zip":
            return data.ZipFilePathPointer(str(file), "wordnet/")
    raise ConfigError.of(f"WordNet {directory}", "is not there", expected="data.noun, index.noun and so on", fix=fix)
