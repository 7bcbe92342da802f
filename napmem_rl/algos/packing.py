"""Attention per sequence for packed batches: the CPU's counterpart of flash-attention's varlen kernel.

A packed batch holds sequences end to end in one row, ``input_ids [1, T]``, and ``position_ids [1, T]`` start again at 0 with each of them. transformers' own
SDPA path answers with a dense mask [T, T] and pays for every pair of sequences; here each sequence attends to itself alone, and no mask is built.

Switched on by transformers' usual name, ``attn_implementation="napmem_varlen"``, in a verl recipe
``actor_rollout_ref.model.override_config.attn_implementation`` (on GPU the same key says ``flash_attention_2``). A batch of several rows runs as one causal
call if it is unpadded or padded on the right, where no real token sees padding; padding on the left and a KV cache fall back to a dense mask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

PACKED_ATTENTION = "napmem_varlen"


def sequence_lengths(position_ids: torch.Tensor) -> list[int]:
    """Lengths of the sequences of a packed row, in order.

    Args:
        position_ids: [1, T] int, or [R, 1, T] for rotary variants with several rows of positions (the first row counts). A 0 starts a sequence.

    Returns:
        Lengths that sum to T. Example: positions 0 1 2 0 1 give [3, 2].

    Raises:
        ValueError: the row does not start at 0, so that it continues a sequence this batch does not hold.
    """
    positions = position_ids.reshape(-1, position_ids.shape[-1])[0]
    starts = (positions == 0).nonzero().flatten().tolist()
    if not starts or starts[0] != 0:
        raise ValueError(f"packed batch: position ids start at {positions[0].item()}; expected 0 at the start of every sequence")
    return [end - start for start, end in zip(starts, [*starts[1:], positions.shape[0]], strict=True)]


def attend_per_sequence(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, lengths: list[int], *, scaling: float | None, dropout: float = 0.0
) -> torch.Tensor:
    """Causal attention inside each sequence of a packed row, one SDPA call per sequence.

    Args:
        query: [1, H, T, D].
        key, value: [1, G, T, D] with G dividing H (grouped queries).
        lengths: of the sequences, summing to T.
        scaling: factor on the scores; None means 1 / sqrt(D).

    Returns:
        [1, H, T, D].
    """
    options = {"dropout_p": dropout, "scale": scaling, "is_causal": True, "enable_gqa": query.shape[1] != key.shape[1]}
    parts = zip(query.split(lengths, 2), key.split(lengths, 2), value.split(lengths, 2), strict=True)
    return torch.cat([scaled_dot_product_attention(q, k, v, **options) for q, k, v in parts], dim=2)


def _refuse_packed_rows(num_rows: int, position_ids: torch.Tensor | None) -> None:
    """Positions that run 0, 1 anywhere but at the start of a row mean several sequences in it; padding on the right is 0, 0."""
    if num_rows > 1 and position_ids is not None and bool(((position_ids[..., 1:-1] == 0) & (position_ids[..., 2:] == 1)).any()):
        raise ValueError(f"{PACKED_ATTENTION}: {num_rows} rows with several sequences in a row; pack all sequences into one row [1, T]")


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    position_ids: torch.Tensor | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """The function that transformers calls in each layer. Shapes as in `attend_per_sequence`, batches of B rows allowed; returns [B, T, H, D] and no weights.

    Raises:
        ValueError: a sliding window shorter than the batch, or several rows with several sequences each: neither is computed here.
    """
    if sliding_window is not None and sliding_window < key.shape[2]:
        raise ValueError(f"{PACKED_ATTENTION}: no sliding window, got {sliding_window} with {key.shape[2]} keys; use attn_implementation=sdpa for this model")
    is_grouped = query.shape[1] != key.shape[1]
    if attention_mask is not None:
        out = scaled_dot_product_attention(query, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling, enable_gqa=is_grouped)
    elif query.shape[0] == 1 and position_ids is not None and query.shape[2] == key.shape[2] > 1:
        out = attend_per_sequence(query, key, value, sequence_lengths(position_ids), scaling=scaling, dropout=dropout)
    else:
        _refuse_packed_rows(query.shape[0], position_ids)
        is_causal = query.shape[2] > 1 and getattr(module, "is_causal", True)
        out = scaled_dot_product_attention(query, key, value, dropout_p=dropout, scale=scaling, is_causal=is_causal, enable_gqa=is_grouped)
    return out.transpose(1, 2).contiguous(), None


def packed_mask(q_length: int, kv_length: int, attention_mask: torch.Tensor | None = None, **kwargs: Any) -> torch.Tensor | None:
    """transformers' mask hook: None (no mask at all) wherever causality inside each row is enough, transformers' dense mask elsewhere.

    Args:
        q_length, kv_length: numbers of queries and keys; they differ under a KV cache.
        attention_mask: [B, T] bool, False on padding, or None.
    """
    from transformers.masking_utils import sdpa_mask

    is_right_padded = attention_mask is None or bool((attention_mask[:, 1:] <= attention_mask[:, :-1]).all())
    if q_length == kv_length and is_right_padded:
        return None
    return sdpa_mask(q_length=q_length, kv_length=kv_length, attention_mask=attention_mask, **kwargs)


def register_packed_attention() -> None:
    """Make `PACKED_ATTENTION` known to transformers. Safe to call twice."""
    from transformers import AttentionInterface, AttentionMaskInterface

    hooks: tuple[tuple[type, Callable[..., Any]], ...] = ((AttentionInterface, packed_attention), (AttentionMaskInterface, packed_mask))
    for interface, function in hooks:
        interface.register(PACKED_ATTENTION, function)
