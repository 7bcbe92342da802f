"""The key-value cache of the transformers engine: one row per running request, and finished turns kept for the next turn of their episode.

The cache is written and read in one attention function, registered with transformers as "napmem_slots"; which rows a forward concerns travels with it as the
keyword `kv_step`, which transformers hands down to every layer. So the model needs no Cache object and no mask, and there is no hidden state.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from napmem_rl.errors import ConfigError

SLOT_ATTENTION = "napmem_slots"
GROWTH = 64  # capacities are multiples of this many tokens


class KVSlots:
    """Keys and values [layers, rows, capacity, G, D]. Rows and capacity grow by need."""

    def __init__(self, config: Any, *, dtype: torch.dtype, max_rows: int, max_context: int) -> None:
        """Raises ConfigError for a model that is not a stack of full-attention layers."""
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"} or (getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)):
            fix = "Use the vLLM rollout server for this model."
            raise ConfigError.of("transformers rollout server", "caches full-attention layers only", got=sorted(kinds), expected="full_attention", fix=fix)
        self._groups = config.num_key_value_heads
        self._head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self._num_layers = config.num_hidden_layers
        self._dtype = dtype
        self._max_rows = max_rows
        self._max_context = max_context
        self.reset()

    def reset(self) -> None:
        """Drop all rows and their memory."""
        self.keys = self._allocate(0, 0)
        self.values = self._allocate(0, 0)

    def _allocate(self, rows: int, capacity: int) -> torch.Tensor:
        """Zeros, not empty: a masked key still enters the sum as 0 × its value, and 0 × NaN is NaN."""
        return torch.zeros(self._num_layers, rows, capacity, self._groups, self._head_size, dtype=self._dtype)

    def reserve(self, rows: int, capacity: int) -> None:
        """Make room for `rows` requests of up to `capacity` tokens, keeping what is there. Doubles, so that growth is rare."""
        old_rows, old_capacity = self.keys.shape[1:3]
        if rows <= old_rows and capacity <= old_capacity:
            return
        new_rows = old_rows if rows <= old_rows else min(self._max_rows, max(rows, 2 * old_rows))
        rounded = -(-capacity // GROWTH) * GROWTH
        new_capacity = old_capacity if capacity <= old_capacity else min(self._max_context, max(rounded, old_capacity * 3 // 2))
        for name in ("keys", "values"):
            old, new = getattr(self, name), self._allocate(new_rows, new_capacity)
            new[:, :old_rows, :old_capacity] = old
            setattr(self, name, new)

    def copy_row(self, source: int, target: int, length: int) -> None:
        """Make the first `length` tokens of row `target` those of row `source`."""
        for cache in (self.keys, self.values):
            cache[:, target, :length] = cache[:, source, :length]

    def read(self, row: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Own copies of a row's keys and values, [layers, length, G, D] each."""
        return self.keys[:, row, :length].clone(), self.values[:, row, :length].clone()

    def write(self, row: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """The inverse of `read`."""
        self.keys[:, row, : keys.shape[1]] = keys
        self.values[:, row, : values.shape[1]] = values


class PrefixStore:
    """Finished turns by their tokens: the next turn of the episode starts from the longest one that its prompt continues.

    Matched on the tokens themselves, so a hit is exact whoever asks. An entry is taken out when used; the oldest ones go when `max_bytes` are held.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._entries: OrderedDict[int, tuple[list[int], torch.Tensor, torch.Tensor]] = OrderedDict()

    def put(self, tokens: list[int], keys: torch.Tensor, values: torch.Tensor) -> None:
        """Keep the keys and values [layers, length, G, D] of `tokens` [length]."""
        self._pop(_hash_prefixes(tokens)[-1])
        self._entries[_hash_prefixes(tokens)[-1]] = (tokens, keys, values)
        self._num_bytes += keys.nbytes + values.nbytes
        while self._num_bytes > self._max_bytes:
            self._pop(next(iter(self._entries)))

    def take(self, prompt: list[int]) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Keys and values of the longest proper prefix of `prompt` that is held, or None. The prompt's last token is always left to compute."""
        hashes = _hash_prefixes(prompt)
        for length in range(len(prompt) - 1, 0, -1):
            entry = self._entries.get(hashes[length])
            if entry is not None and entry[0] == prompt[:length]:
                self._pop(hashes[length])
                return entry[1], entry[2]
        return None

    def _pop(self, key: int) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._num_bytes -= entry[1].nbytes + entry[2].nbytes

    def clear(self) -> None:
        """Forget everything: after a weight update no key is valid."""
        self._entries.clear()
        self._num_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)


def _hash_prefixes(tokens: Sequence[int]) -> list[int]:
    """One hash for each prefix: entry i is of the first i tokens."""
    return list(accumulate(tokens, lambda state, token: hash((state, token)), initial=0))


@dataclass(frozen=True, slots=True)
class PrefillStep:
    """New tokens of several rows, packed into one [1, T]: `lengths[i]` of them for row `rows[i]`, after `pasts[i]` cached ones."""

    slots: KVSlots
    rows: list[int]
    pasts: list[int]
    lengths: list[int]
    row_of_token: torch.Tensor  # [T]
    column_of_token: torch.Tensor  # [T], the token's position

    @classmethod
    def build(cls, slots: KVSlots, rows: list[int], pasts: list[int], lengths: list[int]) -> PrefillStep:
        """Fill in where each token goes."""
        counts = torch.tensor(lengths)
        columns = torch.cat([torch.arange(past, past + length) for past, length in zip(pasts, lengths, strict=True)])
        return cls(slots, rows, pasts, lengths, torch.tensor(rows).repeat_interleave(counts), columns)

    def attend(self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float | None) -> torch.Tensor:
        """Store the new keys and values, then one causal SDPA call per row. query [1, H, T, D], key and value [1, G, T, D] -> [1, H, T, D]."""
        self.slots.keys[layer, self.row_of_token, self.column_of_token] = key[0].transpose(0, 1)
        self.slots.values[layer, self.row_of_token, self.column_of_token] = value[0].transpose(0, 1)
        options: dict[str, Any] = {"scale": scaling, "enable_gqa": query.shape[1] != key.shape[1]}
        outs = []
        parts = zip(self.rows, self.pasts, query.split(self.lengths, 2), key.split(self.lengths, 2), value.split(self.lengths, 2), strict=True)
        for row, past, q, k, v in parts:
            mask = None
            if past:
                total = past + q.shape[2]
                k, v = (cache[layer, row, :total].transpose(0, 1)[None] for cache in (self.slots.keys, self.slots.values))
                mask = torch.ones(q.shape[2], total, dtype=torch.bool).tril(diagonal=past)
            outs.append(scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, **options))
        return torch.cat(outs, dim=2)


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """One new token for each of the first N rows, at position `lengths` [N]; `mask` [N, 1, 1, M] is True on what each may see."""

    slots: KVSlots
    lengths: torch.Tensor
    mask: torch.Tensor

    @classmethod
    def build(cls, slots: KVSlots, lengths: torch.Tensor) -> DecodeStep:
        """Fill in the mask."""
        return cls(slots, lengths, (torch.arange(int(lengths.max()) + 1) <= lengths[:, None])[:, None, None])

    def attend(self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float | None) -> torch.Tensor:
        """Store the new keys and values, then one SDPA call. query [N, H, 1, D], key and value [N, G, 1, D] -> [N, H, 1, D].

        The H / G heads of a group become the query positions of one head, so that grouped keys are never copied.
        """
        num_rows, num_heads, _, head_size = query.shape
        rows = torch.arange(num_rows)
        self.slots.keys[layer, rows, self.lengths] = key[:, :, 0]
        self.slots.values[layer, rows, self.lengths] = value[:, :, 0]
        k, v = (cache[layer, :num_rows, : self.mask.shape[-1]].transpose(1, 2) for cache in (self.slots.keys, self.slots.values))
        grouped = query.reshape(num_rows, key.shape[1], num_heads // key.shape[1], head_size)
        return scaled_dot_product_attention(grouped, k, v, attn_mask=self.mask, scale=scaling).reshape(query.shape)


def slot_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    kv_step: PrefillStep | DecodeStep | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls in each layer; returns [B, T, H, D] and no weights."""
    assert kv_step is not None, f"{SLOT_ATTENTION} runs inside TransformersEngine only; this model's forward does not hand `kv_step` down to its layers"
    return kv_step.attend(module.layer_idx, query, key, value, scaling).transpose(1, 2).contiguous(), None


def register_slot_attention() -> None:
    """Make `SLOT_ATTENTION` known to transformers. Safe to call twice. No mask function: transformers then builds no mask."""
    from transformers import AttentionInterface

    AttentionInterface.register(SLOT_ATTENTION, slot_attention)
