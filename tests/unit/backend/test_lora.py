"""An adapter that peft prepares leaves the model as it is; merged after training, the plain model says what the adapted one said."""

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from napmem_rl.backend.lora import merge_adapter, prepare_adapter
from napmem_rl.backend.tiny_policy import build_model, build_tokenizer, save_policy
from napmem_rl.config.sections import LoraConfig
from napmem_rl.errors import BackendError, ConfigError

IDS = torch.tensor([[1, 7, 8, 9]])


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

    prepare_adapter(model, LoraConfig(rank=4, alpha=8, dropout=0.05), tmp_path / "adapter")
    config = peft.LoraConfig.from_pretrained(tmp_path / "adapter")
    assert (config.r, config.lora_alpha, config.lora_dropout) == (4, 8, 0.05)
    adapted = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model), tmp_path / "adapter")
    assert torch.allclose(logits(adapted), logits(AutoModelForCausalLM.from_pretrained(model)))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.fill_(0.05)
    (tmp_path / "trained").mkdir()
    save_file({name: tensor.contiguous().clone() for name, tensor in adapted.state_dict().items()}, tmp_path / "trained" / "model.safetensors")
    merge_adapter(tmp_path / "trained", model=model, adapter=tmp_path / "adapter", out=tmp_path / "merged")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert torch.allclose(logits(merged), logits(adapted), atol=1e-5) and not torch.allclose(
        logits(merged), logits(AutoModelForCausalLM.from_pretrained(model))
    )
    assert (tmp_path / "merged" / "chat_template.jinja").is_file() or "chat_template" in (tmp_path / "merged" / "tokenizer_config.json").read_text()


def test_an_export_without_the_adapter_is_an_error(model, tmp_path):
    prepare_adapter(model, LoraConfig(rank=4), tmp_path / "adapter")
    with pytest.raises(BackendError, match="lacks 14 tensors of the adapter"):
        merge_adapter(model, model=model, adapter=tmp_path / "adapter", out=tmp_path / "merged")


def test_layers_that_are_not_there_are_named(model, tmp_path):
    with pytest.raises(ConfigError, match="lora.target_modules"):
        prepare_adapter(model, LoraConfig(rank=4, target_modules="nothing"), tmp_path / "adapter")
