"""Packed attention against padded and single sequences, on a tiny random llama in fp32."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from napmem_rl.algos.packing import PACKED_ATTENTION, packed_mask, register_packed_attention, sequence_lengths

LENGTHS = [9, 3, 17, 1, 12]


def build_model(implementation: str, num_kv_heads: int = 2) -> LlamaForCausalLM:
    register_packed_attention()
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=num_kv_heads, intermediate_size=48, vocab_size=50, initializer_range=0.3
    )
    model = LlamaForCausalLM(config)
    model.set_attn_implementation(implementation)
    return model


def build_sequences() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(0, 50, (length,), generator=generator) for length in LENGTHS]


def score(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Log-probs of every token but the first. logits [L, V], ids [L] -> [L - 1]."""
    return torch.log_softmax(logits[:-1], -1).gather(1, ids[1:, None])[:, 0]


def run_packed(model: LlamaForCausalLM, *, resets: bool = True) -> torch.Tensor:
    sequences = build_sequences()
    positions = torch.cat([torch.arange(len(ids)) for ids in sequences]) if resets else torch.arange(sum(LENGTHS))
    logits = model(input_ids=torch.cat(sequences)[None], position_ids=positions[None], use_cache=False).logits[0]
    return torch.cat([score(part, ids) for part, ids in zip(logits.split(LENGTHS), sequences, strict=True)])


def run_padded(model: LlamaForCausalLM, side: str = "right") -> torch.Tensor:
    sequences = build_sequences()
    ids = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_side=side)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(length, dtype=torch.long) for length in LENGTHS], batch_first=True, padding_side=side)
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    logits = model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False).logits
    return torch.cat([score(row[keep.bool()], part) for row, keep, part in zip(logits, mask, sequences, strict=True)])


def gradient(model: LlamaForCausalLM, logprobs: torch.Tensor) -> torch.Tensor:
    logprobs.sum().backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("num_kv_heads", [4, 2])
def test_packed_log_probs_and_gradients_equal_padded_ones(num_kv_heads: int) -> None:
    packed_model, padded_model = build_model(PACKED_ATTENTION, num_kv_heads), build_model("sdpa", num_kv_heads)
    packed, padded = run_packed(packed_model), run_padded(padded_model)
    assert (packed - padded).abs().max() < 1e-5
    packed_gradient, padded_gradient = gradient(packed_model, packed), gradient(padded_model, padded)
    assert (packed_gradient - padded_gradient).norm() / padded_gradient.norm() < 1e-5


def test_without_position_resets_sequences_see_each_other() -> None:
    model = build_model(PACKED_ATTENTION)
    assert (run_packed(model, resets=False) - run_padded(build_model("sdpa"))).abs().max() > 0.1


@pytest.mark.parametrize("side", ["right", "left"])
def test_padded_batches_give_what_sdpa_gives_on_either_side(side: str) -> None:
    assert (run_padded(build_model(PACKED_ATTENTION), side) - run_padded(build_model("sdpa"))).abs().max() < 1e-5


def test_generation_with_a_kv_cache_equals_sdpa() -> None:
    prompt = torch.tensor([[3, 1, 4, 1, 5]])
    outputs = [build_model(name).generate(prompt, max_new_tokens=6, do_sample=False, pad_token_id=0) for name in (PACKED_ATTENTION, "sdpa")]
    assert outputs[0].tolist() == outputs[1].tolist()


def test_no_mask_is_built_for_packed_and_right_padded_batches() -> None:
    right_padded = torch.tensor([[True, True, False]])
    assert packed_mask(q_length=3, kv_length=3) is None
    assert packed_mask(q_length=3, kv_length=3, attention_mask=right_padded) is None


def test_lengths_come_from_position_resets() -> None:
    assert sequence_lengths(torch.tensor([[0, 1, 2, 0, 1, 0]])) == [3, 2, 1]
    with pytest.raises(ValueError, match="start at 4"):
        sequence_lengths(torch.tensor([[4, 5, 0, 1]]))


def test_several_rows_with_several_sequences_each_are_refused() -> None:
    positions = torch.tensor([[0, 1, 2, 0, 1, 2], [0, 1, 2, 3, 4, 5]])
    with pytest.raises(ValueError, match="one row"):
        build_model(PACKED_ATTENTION)(input_ids=torch.ones(2, 6, dtype=torch.long), position_ids=positions, use_cache=False)
