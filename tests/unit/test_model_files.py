"""Fingerprints of models: what changes them, what does not, and that they are what earlier versions wrote down."""

from __future__ import annotations

import hashlib
from pathlib import Path

from napmem_rl.model_files import fingerprint_model, fingerprint_weights


def test_the_fingerprint_of_weights_follows_the_weight_files_alone(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"a" * 3_000_000)
    first = fingerprint_weights(str(tmp_path))
    (tmp_path / "run.log").write_text("x")
    assert fingerprint_weights(str(tmp_path)) == first
    (tmp_path / "model.safetensors").write_bytes(b"a" * 2_999_999 + b"b")
    assert fingerprint_weights(str(tmp_path)) != first and fingerprint_weights("gpt-4o") is None and fingerprint_weights(None) is None


def test_one_more_checkpoint_of_a_run_is_another_model(tmp_path: Path) -> None:
    (tmp_path / "global_step_1" / "actor").mkdir(parents=True)
    (tmp_path / "global_step_1" / "actor" / "model_world_size_1_rank_0.pt").write_bytes(b"w")
    first = fingerprint_weights(str(tmp_path))
    (tmp_path / "global_step_2").mkdir()
    (tmp_path / "global_step_2" / "model.safetensors").write_bytes(b"w")
    assert fingerprint_weights(str(tmp_path)) != first


def test_the_fingerprint_of_a_model_follows_configuration_and_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"abc")
    first = fingerprint_model(tmp_path)
    assert first == hashlib.sha256(b"{}model.safetensors 3abcabc").hexdigest()[:12]
    (tmp_path / "config.json").write_text("{} ")
    assert fingerprint_model(tmp_path) != first
