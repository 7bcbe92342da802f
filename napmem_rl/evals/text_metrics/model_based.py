"""Metrics that a language model computes: BERTScore and MAUVE, by bert-score and mauve-text, with a model from a local directory. Nothing is downloaded.

Their values hang on the model; `LoadedMetric.version` names it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from napmem_rl.errors import ConfigError, DataError
from napmem_rl.evals.text_metrics.loaded import LoadedMetric, import_library, name_version
from napmem_rl.evals.text_metrics.pairs import Pair
from napmem_rl.model_files import fingerprint_model

BATCH_SIZE = 32
MAX_MAUVE_TOKENS = 256
MIN_MAUVE_PAIRS = 20  # two clusters of ten; below, its histogram is of single texts
_MAUVE_SEED = 25  # the library's own


def load_bertscore(name: str, model: str | None) -> LoadedMetric:
    """F1 of greedily matched token embeddings (Zhang et al. 2020), without idf and without rescaling; in [-1, 1], in practice .5 to 1.

    The layer is the one that bert-score lists for a model of the directory's name, such as roberta-large, else the last.

    Raises:
        ConfigError: library or model missing.
    """
    path = find_model(name, model)
    library = import_library("bert_score", "bert-score", "eval")
    layers = _choose_layer(path, import_library("bert_score.utils", "bert-score", "eval").model2layers)
    try:
        with _no_progress_bars():
            scorer = library.BERTScorer(model_type=str(path), num_layers=layers, device="cpu", use_fast_tokenizer=True, batch_size=BATCH_SIZE)
    except Exception as error:  # a boundary: a model of any kind, loaded by a library of its own
        raise ConfigError.of(f"metric {name}, model {path}", f"cannot be used ({type(error).__name__}: {error})") from error
    scorer._model.float()
    _bound_length(scorer._tokenizer, scorer._model.config)

    def compute(pairs: Sequence[Pair]) -> list[float]:
        _, _, f1 = scorer.score([pair.prediction for pair in pairs], [list(pair.gold) for pair in pairs], batch_size=BATCH_SIZE)
        return [float(value) for value in f1]

    return LoadedMetric(name=name, compute=compute, version=f"{_describe(path, 'bert-score')}, layer {layers}, F1, no idf")


def load_mauve(name: str, model: str | None) -> LoadedMetric:
    """How near the distribution of predictions is to that of gold texts (Pillutla et al. 2021); of all pairs at once, in (0, 1], 1 where they are the same.

    Features are the last layer's state at the last token, as in the library, which itself takes models by name only. The first gold text of a pair counts.
    Meaningful from a few hundred pairs on; refused below `MIN_MAUVE_PAIRS`.

    Raises:
        ConfigError: library or model missing.
    """
    path = find_model(name, model)
    compute_mauve = import_library("mauve", "mauve-text", "metrics").compute_mauve
    network, tokenizer = _load_network(name, path)

    def compute(pairs: Sequence[Pair]) -> list[float]:
        if len(pairs) < MIN_MAUVE_PAIRS:
            raise DataError.of(f"metric {name}", "compares distributions", got=f"{len(pairs)} pairs", expected=f"at least {MIN_MAUVE_PAIRS}, better hundreds")
        gold = _embed(network, tokenizer, [pair.gold[0] for pair in pairs])
        predicted = _embed(network, tokenizer, [pair.prediction for pair in pairs])
        return [float(compute_mauve(p_features=gold, q_features=predicted, seed=_MAUVE_SEED, verbose=False).mauve)]

    return LoadedMetric(name=name, compute=compute, version=f"{_describe(path, 'mauve-text')}, seed {_MAUVE_SEED}", is_corpus=True)


def find_model(metric: str, model: str | None) -> Path:
    """The directory of a metric's model. Raises ConfigError where none is given, or it holds no model."""
    fix = f"Name its directory: metric_models.{metric} in a recipe, --model on the command line."
    if model is None:
        raise ConfigError.of(f"metric {metric}", "needs a model", fix=fix)
    path = Path(model).expanduser()
    if not (path / "config.json").is_file():
        raise ConfigError.of(f"metric {metric}, model {model}", "is not a model directory", expected="config.json, weights and a tokenizer", fix=fix)
    return path.resolve()


def _choose_layer(path: Path, known: dict[str, int]) -> int:
    """Example: …/roberta-large → 17, as bert-score lists it; a model that it does not know → its number of layers."""
    by_name = {name.rpartition("/")[2]: layers for name, layers in known.items()}
    if path.name in by_name:
        return by_name[path.name]
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    for key in ("num_hidden_layers", "n_layer", "n_layers", "num_layers"):
        if isinstance(config.get(key), int):
            return config[key]
    raise ConfigError.of(f"model {path}", "does not say how many layers it has", expected="num_hidden_layers in config.json")


def _bound_length(tokenizer: Any, config: Any) -> None:
    """Tokenizers without a limit of their own name a huge one, with which texts would not be cut where the model ends."""
    limit = getattr(config, "max_position_embeddings", None) or 512
    tokenizer.model_max_length = min(tokenizer.model_max_length, limit)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token


def _describe(path: Path, package: str) -> str:
    """Libraries and the model's weights. Example: "bert-score 0.3.13, transformers 5.10.4, roberta-large-0f1e2d3c4b5a"."""
    return f"{name_version(package, 'transformers')}, {path.name}-{fingerprint_model(path)}"


@contextlib.contextmanager
def _no_progress_bars() -> Iterator[None]:
    from transformers.utils import logging

    was_shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_shown:
            logging.enable_progress_bar()


def _load_network(name: str, path: Path) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModel, AutoTokenizer

    try:
        with _no_progress_bars():
            tokenizer = AutoTokenizer.from_pretrained(str(path), local_files_only=True)
            network = AutoModel.from_pretrained(str(path), local_files_only=True, dtype=torch.float32).eval()
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError.of(f"metric {name}, model {path}", f"cannot be loaded ({error})") from error
    _bound_length(tokenizer, network.config)
    return network, tokenizer


def _embed(network: Any, tokenizer: Any, texts: Sequence[str]) -> np.ndarray:
    """The state at the last token of each text, [N, d]; a text without a token is read as the end of a text."""
    import torch

    rows, limit = [], min(MAX_MAUVE_TOKENS, tokenizer.model_max_length)
    for start in range(0, len(texts), BATCH_SIZE):
        encoded = [tokenizer.encode(text, truncation=True, max_length=limit) for text in texts[start : start + BATCH_SIZE]]
        ids = [list(row) or [tokenizer.eos_token_id or 0] for row in encoded]
        width = max(map(len, ids))
        tokens = torch.tensor([row + [0] * (width - len(row)) for row in ids])  # [B, L], padded on the right
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in ids])
        with torch.inference_mode():
            states = network(input_ids=tokens, attention_mask=mask).last_hidden_state
        rows.append(states[torch.arange(len(ids)), mask.sum(1) - 1].numpy())
    return np.concatenate(rows)
