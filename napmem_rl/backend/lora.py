"""Adapters of supervised training: made by peft before it, since verl's own know no dropout, and merged into the weights after it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from napmem_rl.config.sections import LoraConfig
from napmem_rl.errors import BackendError, ConfigError


def prepare_adapter(model: Path, lora: LoraConfig, out: Path) -> None:
    """Write an untrained adapter for a model, for verl's `model.lora_adapter_path`. Its B matrices are zero: the model says what it said before.

    Raises:
        ConfigError: peft is not installed, or the model has no layer of that name.
    """
    from transformers import AutoModelForCausalLM

    add_adapter(AutoModelForCausalLM.from_pretrained(model, dtype="auto"), lora).save_pretrained(out)


def add_adapter(model: Any, lora: LoraConfig) -> Any:
    """A transformers model with an untrained adapter. Raises as `prepare_adapter` does."""
    try:
        import peft
    except ImportError as error:
        raise ConfigError.of("section lora", "needs the package peft", fix="pip install peft, or set lora.rank=0.") from error
    config = peft.LoraConfig(
        task_type="CAUSAL_LM", r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=lora.target_modules, bias="none"
    )
    try:
        return peft.get_peft_model(model, config)
    except ValueError as error:
        raise ConfigError.of("lora.target_modules", f"does not fit the model ({error})", got=lora.target_modules) from error


def merge_adapter(adapter: Path, *, lora: LoraConfig, model: Path, out: Path) -> Path:
    """Write a plain model: the base with a trained adapter added to its weights, the tokenizer, and the adapter itself in `adapter/`.

    verl's merger joins the shards of a checkpoint and writes the adapter beside the base, in bfloat16; adding the one to the other is peft's.

    Args:
        adapter: as verl's merger or peft wrote it.
        lora: what it was trained with: verl's merger finds scale and rank in a file beside the checkpoint, and says 0 where there is none.
        model: the base.
        out: a new directory.

    Returns:
        `out`.

    Raises:
        BackendError: the adapter is not there, or is of another scale or rank.
    """
    import peft
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file = adapter / "adapter_config.json"
    found = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    got, expected = (found.get("r"), found.get("lora_alpha")), (lora.rank, lora.alpha)
    if got != expected:
        raise BackendError.of(f"trained adapter {adapter}", "is not the one that was asked for (rank, alpha)", got=got, expected=expected)
    adapted = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model, dtype="auto"), adapter)
    adapted.save_pretrained(out / "adapter")
    adapted.merge_and_unload().save_pretrained(out)
    AutoTokenizer.from_pretrained(model).save_pretrained(out)
    return out
