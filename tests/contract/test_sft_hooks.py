"""What supervised training with adapters takes from verl: an adapter that is loaded, trained, and written by its merger beside the base."""

from __future__ import annotations

import importlib.util
from pathlib import Path

VERL = Path(importlib.util.find_spec("verl").submodule_search_locations[0])


def test_verl_looks_at_an_adapter_only_where_a_rank_is_given_which_is_why_ours_gives_both() -> None:
    """With `model.lora_adapter_path` alone it would train all weights and say nothing."""
    engine = (VERL / "workers" / "engine" / "fsdp" / "transformer_impl.py").read_text()
    assert "self._is_lora = self.model_config.lora_rank > 0" in engine
    assert "if self._is_lora:\n            module = self._build_lora_module(module)" in engine
    assert "PeftModel.from_pretrained(module, local_adapter_path, is_trainable=True)" in engine
    ours = (Path(__file__).resolve().parents[2] / "napmem_rl" / "backend" / "sft_training.py").read_text()
    assert "config.model.lora_adapter_path = " in ours and "config.model.lora_rank = recipe.lora.rank" in ours


def test_verls_merger_writes_the_adapter_beside_the_base_and_does_not_add_it() -> None:
    merger = (VERL / "model_merger" / "base_model_merger.py").read_text()
    assert 'lora_path = os.path.join(self.config.target_dir, "lora_adapter")' in merger
    assert "merge_and_unload" not in merger, "else ours need not"
    assert '"lora_train_meta.json"' in merger, "where it finds the scale; 0 without it"
