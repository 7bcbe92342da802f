"""An adapter that peft prepares leaves the model as it is; merged after training, the plain model says what the adapted one said."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from napmem_rl.backend.lora import merge_adapter, prepare_adapter
from napmem_rl.backend.tiny_policy import build_model, build_tokenizer, save_policy
from napmem_rl.config.sections import LoraConfig
from napmem_rl.errors import BackendError, ConfigError

IDS = torch.tensor([[1, 7, 8, 9]])
LORA = LoraConfig(rank=4, alpha=8, dropout=0.05)


@pytest.fixture
def model(tmp_path):
    tokenizer = build_tokenizer(["one two three four five"], max_length=64)
    built = build_model(tokenizer, seed=0, width=16, layers=1, heads=2, ffn=32)
    built.config._attn_implementation = "sdpa"
    save_policy(built, tokenizer, tmp_path / "model")
    return tmp_path / "model"


def logits(model):
    return model.eval()(input_ids=IDS).logits.detach()


def test_a_trained_adapter_is_merged_into_a_plain_model(model, tmp_path):
    import peft

    prepare_adapter(model, LORA, tmp_path / "adapter")
    config = peft.LoraConfig.from_pretrained(tmp_path / "adapter")
    assert (config.r, config.lora_alpha, config.lora_dropout) == (4, 8, 0.05)
    adapted = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model), tmp_path / "adapter")
    assert torch.allclose(logits(adapted), logits(AutoModelForCausalLM.from_pretrained(model)))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.05)
    adapted.save_pretrained(tmp_path / "trained")
    merged = AutoModelForCausalLM.from_pretrained(merge_adapter(tmp_path / "trained", lora=LORA, model=model, out=tmp_path / "merged"))
    assert torch.allclose(logits(merged), logits(adapted), atol=1e-5)
    assert not torch.allclose(logits(merged), logits(AutoModelForCausalLM.from_pretrained(model)))
    again = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model), tmp_path / "merged" / "adapter")
    assert torch.allclose(logits(again), logits(adapted), atol=1e-6)
    assert (tmp_path / "merged" / "chat_template.jinja").is_file() or "chat_template" in (tmp_path / "merged" / "tokenizer_config.json").read_text()


def test_an_adapter_that_is_missing_or_of_another_scale_is_an_error(model, tmp_path):
    """verl's merger writes alpha 0 where it finds no note of it: such an adapter would add nothing, silently."""
    with pytest.raises(BackendError, match="is not the one that was asked for"):
        merge_adapter(tmp_path / "nowhere", lora=LORA, model=model, out=tmp_path / "merged")
    prepare_adapter(model, LORA, tmp_path / "adapter")
    file = tmp_path / "adapter" / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"lora_alpha": 0}))
    with pytest.raises(BackendError, match=r"got \(4, 0\); expected \(4, 8\)"):
        merge_adapter(tmp_path / "adapter", lora=LORA, model=model, out=tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_layers_that_are_not_there_are_named(model, tmp_path):
    with pytest.raises(ConfigError, match="lora.target_modules"):
        prepare_adapter(model, LoraConfig(rank=4, target_modules="nothing"), tmp_path / "adapter")
