"""Every metric by its name, and which of them can be computed here."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from napmem_rl.errors import ConfigError, DataError
from napmem_rl.evals.text_metrics.loaded import LoadedMetric, import_library, name_version
from napmem_rl.evals.text_metrics.locomo_f1 import compute_locomo_f1
from napmem_rl.evals.text_metrics.model_based import load_bertscore, load_mauve
from napmem_rl.evals.text_metrics.overlap import EXTRA, load_bleu, load_corpus_bleu, load_meteor, load_rouge_l
from napmem_rl.evals.text_metrics.pairs import Pair
from napmem_rl.rewards.judge import judge_choice
from napmem_rl.rewards.text_match import compute_token_f1, normalise
from napmem_rl.schema import AnswerKey, Task


class MetricName(StrEnum):
    """What `metrics` of an evaluation and `napmem score --metric` take. Values are in [0, 1] unless said otherwise; definitions in docs/evaluation.md."""

    EXACT_MATCH = "exact_match"
    TOKEN_F1 = "token_f1"
    LOCOMO_F1 = "locomo_f1"  # LoCoMo's questions only
    MULTIPLE_CHOICE = "multiple_choice"  # questions with options only
    BLEU4 = "bleu4"
    BLEU4_CORPUS = "bleu4_corpus"  # one value for all answers
    ROUGE_L = "rouge_l"
    METEOR = "meteor"  # needs WordNet's directory
    BERTSCORE = "bertscore"  # in [-1, 1]; needs a model's directory
    MAUVE = "mauve"  # one value for all answers; needs a model's directory
    RECALL = "recall"  # of evidence in what a policy read: see `retrieval_metrics`; not of pairs


CORPUS_METRICS = frozenset({MetricName.BLEU4_CORPUS, MetricName.MAUVE})
WITH_MODEL = frozenset({MetricName.METEOR, MetricName.BERTSCORE, MetricName.MAUVE})  # what `metric_models` may name


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedMetrics:
    """The metrics that were asked for: those that can be computed, by name, and the reasons why the others cannot."""

    loaded: Mapping[str, LoadedMetric] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)  # metric -> reason
    has_recall: bool = False

    @property
    def versions(self) -> dict[str, str]:
        """What decides each metric's values besides the texts; for results to be stamped with."""
        return {name: metric.version for name, metric in self.loaded.items()}


def load_metrics(names: Iterable[str], models: Mapping[str, str] | None = None) -> LoadedMetrics:
    """Get metrics ready. A library, model or data directory that is missing makes its metric absent, with the reason.

    Args:
        names: of `MetricName`, each once.
        models: metric -> directory of its model or data.

    Raises:
        ConfigError: a name that is no metric, a metric named twice, or a model for a metric that takes none.
    """
    names, models = list(names), dict(models or {})
    for name in names:
        check_name(name, MetricName, "metrics")
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise ConfigError.of("metrics", "names a metric twice", got=repeated)
    for name in models:
        check_name(name, WITH_MODEL, "metric_models")
    loaded, absent = {}, {}
    for name in names:
        if name == MetricName.RECALL:
            continue
        try:
            loaded[name] = _LOADERS[MetricName(name)](name, models.get(name))
        except ConfigError as error:
            absent[name] = error.message
    return LoadedMetrics(loaded=loaded, absent=absent, has_recall=MetricName.RECALL in names)


def check_name(name: str, known: Iterable[str], what: str) -> None:
    """Raises ConfigError where a metric's name is none of the known ones; it names the nearest."""
    names = sorted(map(str, known))
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        fix = f"Did you mean {near[0]}?" if near else None
        raise ConfigError.of(what, "holds an unknown metric", got=name, expected=f"one of {', '.join(names)}", fix=fix)


def _load_locomo_f1(name: str, model: str | None) -> LoadedMetric:
    import_library("nltk.stem.porter", "nltk", EXTRA)
    import_library("regex", "regex", EXTRA)
    version = f"snap-research/locomo task_eval, {name_version('nltk')}"
    return LoadedMetric(name=name, compute=lambda pairs: [compute_locomo_f1(pair) for pair in pairs], version=version, needs_gold=False)


def _load_exact_match(name: str, model: str | None) -> LoadedMetric:
    def compute(pairs: Sequence[Pair]) -> list[float]:
        return [float(normalise(pair.prediction) in map(normalise, pair.gold)) for pair in pairs]

    return LoadedMetric(name=name, compute=compute, version="normalised text")


def _load_token_f1(name: str, model: str | None) -> LoadedMetric:
    return LoadedMetric(name=name, compute=lambda pairs: [compute_token_f1(pair.prediction, pair.gold) for pair in pairs], version="normalised words")


def _load_multiple_choice(name: str, model: str | None) -> LoadedMetric:
    return LoadedMetric(name=name, compute=lambda pairs: [_match_letter(pair) for pair in pairs], version="one letter")


def _match_letter(pair: Pair) -> float:
    """1 where the prediction is the gold letter, bare or as (B), B. or B). Raises DataError where gold is no single letter."""
    if len(pair.gold) != 1 or len(pair.gold[0]) != 1 or not pair.gold[0].isascii() or not pair.gold[0].isalpha():
        raise DataError.of(f"{pair.describe()}, field 'gold'", "is not the letter of an option", got=pair.gold, expected="such as B")
    task = Task(task_id=pair.id, bank_id="", question="", category=pair.category, needs_memory=False)
    return float(judge_choice(task, AnswerKey(task_id=pair.id, references=pair.gold), pair.prediction).is_correct)


_LOADERS: dict[MetricName, Callable[[str, str | None], LoadedMetric]] = {
    MetricName.EXACT_MATCH: _load_exact_match,
    MetricName.TOKEN_F1: _load_token_f1,
    MetricName.LOCOMO_F1: _load_locomo_f1,
    MetricName.MULTIPLE_CHOICE: _load_multiple_choice,
    MetricName.BLEU4: load_bleu,
    MetricName.BLEU4_CORPUS: load_corpus_bleu,
    MetricName.ROUGE_L: load_rouge_l,
    MetricName.METEOR: load_meteor,
    MetricName.BERTSCORE: load_bertscore,
    MetricName.MAUVE: load_mauve,
}
