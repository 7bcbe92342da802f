"""Adapters of supervised training: made by peft before it, since verl's own know no dropout, and merged into the weights after it."""

from __future__ import annotations

from pathlib import Path

from napmem_rl.config.sections import LoraConfig
from napmem_rl.errors import BackendError, ConfigError


def prepare_adapter(model: Path, lora: LoraConfig, out: Path) -> None:
    """Write an untrained adapter for a model, for verl's `model.lora_adapter_path`. Its B matrices are zero: the model says what it said before.

    Raises:
        ConfigError: peft is not installed, or the model has no layer of that name.
    """
    try:
        import peft
    except ImportError as error:
        raise ConfigError.of("section lora", "needs the package peft", fix="pip install peft, or set lora.rank=0.") from error
    from transformers import AutoModelForCausalLM

    config = peft.LoraConfig(
        task_type="CAUSAL_LM", r=lora.rank, lora_alpha=lora.alpha, lora_dropout=lora.dropout, target_modules=lora.target_modules, bias="none"
    )
    base = AutoModelForCausalLM.from_pretrained(model, dtype="auto")
    try:
        adapted = peft.get_peft_model(base, config)
    except ValueError as error:
        raise ConfigError.of("lora.target_modules", f"does not fit the model ({error})", got=lora.target_modules) from error
    adapted.save_pretrained(out)


def merge_adapter(trained: Path, *, model: Path, adapter: Path, out: Path) -> None:
    """Write a plain model: the base with the trained adapter added to its weights, and the tokenizer.

    Args:
        trained: what verl's SFT trainer exports of a model with adapters: all tensors under peft's names.
        model: the base.
        adapter: as `prepare_adapter` wrote it; its configuration is read.
        out: a new directory.

    Raises:
        BackendError: the export lacks a tensor of the adapter.
    """
    import peft
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    state = {name: tensor for file in sorted(trained.glob("*.safetensors")) for name, tensor in load_file(file).items()}
    adapted = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model, dtype="auto"), adapter)
    own = {name for name in adapted.state_dict() if "lora_" in name}
    if own - set(state):
        missing = sorted(own - set(state))
        raise BackendError.of(f"export {trained}", f"lacks {len(missing)} tensors of the adapter", got=sorted(state)[:3], expected=missing[0])
    adapted.load_state_dict({name: state[name] for name in own}, strict=False)
    adapted.merge_and_unload().save_pretrained(out)
    AutoTokenizer.from_pretrained(model).save_pretrained(out)
