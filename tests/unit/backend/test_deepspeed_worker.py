"""Batches of supervised training with DeepSpeed: padded on the right, and only what a demonstration teaches counts; and what is said where it is missing."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from napmem_rl.backend.deepspeed_worker import IGNORED, PaddedBatch, train
from napmem_rl.errors import ConfigError


def build_row(ids: list[int], mask: list[int]) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.tensor(ids), "position_ids": torch.arange(len(ids)), "loss_mask": torch.tensor(mask)}


def test_rows_are_padded_to_the_longest_and_labels_stand_where_the_mask_is_one() -> None:
    batch = PaddedBatch(pad_id=0)([build_row([5, 6, 7], [0, 1, 1]), build_row([8, 9], [0, 1])])
    assert batch["input_ids"].tolist() == [[5, 6, 7], [8, 9, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch["labels"].tolist() == [[IGNORED, 6, 7], [IGNORED, 9, IGNORED]]


def test_the_loss_of_a_batch_is_the_mean_over_learnt_tokens_as_verls_is() -> None:
    """Three learnt tokens; the logits at the place before each give its log-prob. Padding and prompts play no part."""
    from transformers.loss.loss_utils import ForCausalLMLoss

    torch.manual_seed(0)
    batch = PaddedBatch(pad_id=0)([build_row([5, 6, 7], [0, 1, 1]), build_row([8, 9], [0, 1])])
    logits = torch.randn(2, 3, 10)
    log_probs = torch.log_softmax(logits, -1)
    expected = -(log_probs[0, 0, 6] + log_probs[0, 1, 7] + log_probs[1, 0, 9]) / 3
    assert torch.allclose(ForCausalLMLoss(logits, batch["labels"], vocab_size=10), expected)
    assert torch.allclose(ForCausalLMLoss(logits, batch["labels"], vocab_size=10, num_items_in_batch=torch.tensor(6)), expected / 2), "of a step with six"


@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is not None, reason="DeepSpeed is installed here")
def test_where_deepspeed_is_not_installed_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    with pytest.raises(ConfigError, match="sft.engine: needs the package deepspeed. .*install"):
        train({"platform": "cpu"})
