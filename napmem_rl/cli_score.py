"""The `napmem score` command: one metric over a file of predictions, one JSON row a pair."""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from napmem_rl.errors import ConfigError
from napmem_rl.evals.metrics import bootstrap_interval
from napmem_rl.evals.text_metrics.loaded import LoadedMetric
from napmem_rl.evals.text_metrics.locomo_f1 import find_category
from napmem_rl.evals.text_metrics.pairs import Pair, load_pairs
from napmem_rl.evals.text_metrics.registry import WITH_MODEL, MetricName, check_name, load_metrics


def add_score_commands(areas: argparse._SubParsersAction) -> None:
    """Add `score` to the areas of `napmem`."""
    score = areas.add_parser("score", help="one metric over a file of predictions")
    score.add_argument("--metric", required=True, metavar="NAME", help=", ".join(name for name in MetricName if name != MetricName.RECALL))
    score.add_argument("--pairs", type=Path, required=True, metavar="FILE", help="rows {category, gold, prediction}: a JSON list, an object with pairs, JSONL")
    score.add_argument("--model", metavar="DIR", help=f"what the metric needs: the directory of a model, or of WordNet ({', '.join(sorted(WITH_MODEL))})")
    score.set_defaults(run=run_score)


def run_score(args: argparse.Namespace) -> int:
    """Print a row a pair, in the order of the file; of a metric over all pairs, one row. A summary goes to stderr.

    Raises:
        ConfigError: an unknown metric, or one that cannot be computed here.
        DataError: a row that is no pair, or lacks what the metric needs. Nothing is printed then.
    """
    metric = _load_metric(args.metric, args.model)
    rows = load_pairs(args.pairs)
    pairs = [pair for pair, _ in rows]
    if metric.is_corpus:
        print(json.dumps({"metric": metric.name, "num_pairs": len(pairs), "score": metric.score_corpus(pairs)}))
        print(f"{metric.name}: one figure of {len(pairs)} pairs ({metric.version})", file=sys.stderr)
        return 0
    scores = metric.score(pairs)
    for (_, kept), score in zip(rows, scores, strict=True):
        print(json.dumps({**kept, "metric": metric.name, "score": score}, ensure_ascii=False))
    for line in _describe(metric, pairs, scores):
        print(line, file=sys.stderr)
    return 0


def _load_metric(name: str, model: str | None) -> LoadedMetric:
    check_name(name, MetricName, "--metric")
    if model is not None and name not in WITH_MODEL:
        takers = ", ".join(sorted(WITH_MODEL))
        raise ConfigError.of("--model", f"would do nothing: the metric {name} needs no model (these do: {takers})", got=model, fix="Remove it.")
    metrics = load_metrics([name], {name: model} if model is not None else None)
    if name == MetricName.RECALL:
        raise ConfigError.of("metric recall", "is of what a policy read, which pairs do not hold", fix="It is among the scores of launch/evaluate.py.")
    if name in metrics.absent:
        raise ConfigError(metrics.absent[name])
    return metrics.loaded[name]


def _describe(metric: LoadedMetric, pairs: Sequence[Pair], scores: Sequence[float]) -> Iterator[str]:
    """Mean, interval and n, of all pairs and by category; a number and a name of one of LoCoMo's categories are one."""
    yield f"{metric.name}: {_describe_mean(scores)} ({metric.version})"
    groups: dict[int | str, list[float]] = defaultdict(list)
    names: dict[int | str, set[str]] = defaultdict(set)
    for pair, score in zip(pairs, scores, strict=True):
        key = find_category(pair.category) or pair.category
        groups[key].append(score)
        names[key].add(pair.category or "(none)")
    if len(groups) > 1:
        named = sorted((", ".join(sorted(names[key])), values) for key, values in groups.items())
        yield from (f"  category {name}: {_describe_mean(values)}" for name, values in named)


def _describe_mean(values: Sequence[float]) -> str:
    interval = bootstrap_interval({str(place): [value] for place, value in enumerate(values)})
    if interval.low is None:
        return f"mean {interval.mean:.4f}, n = 1"
    return f"mean {interval.mean:.4f}, 95% {interval.low:.4f} to {interval.high:.4f} (pairs taken as independent), n = {interval.num_values}"
