"""Supervised cold start of the quickstart's policy: one process, one loop.

Real models go through verl's SFT trainer (`launch/sft.py`). This loop exists because a randomly initialised million-parameter policy needs what that trainer
does not offer: Muon for the matrices (with AdamW alone, copying a word out of a result does not form within the quickstart's minutes) and a mixture whose
proportions change while training. On a few cores one process per core, each with a share of every batch, is twice as fast as one process with threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Document:
    """One training text: token ids [L] and, aligned with them, 1 where the token is to be learnt as the policy's own."""

    token_ids: Sequence[int]
    is_target: Sequence[int]

    def __post_init__(self) -> None:
        if len(self.token_ids) != len(self.is_target):
            raise ValueError(f"Document: {len(self.token_ids)} tokens, {len(self.is_target)} mask entries; expected as many")


@dataclass(frozen=True, kw_only=True, slots=True)
class SftSettings:
    """Settings of `train_sft`; `context_weight` is the loss weight of tokens that are not the policy's own (0 = ignore them)."""

    steps: int
    batch_size: int = 32
    lr: float = 5e-3
    warmup_steps: int = 30
    final_lr_fraction: float = 0.05
    context_weight: float = 0.1
    max_grad_norm: float = 1.0


def build_optimizers(model: PreTrainedModel, lr: float) -> list[torch.optim.Optimizer]:
    """Muon for hidden matrices, AdamW for embeddings and norms."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name and "lm_head" not in name]
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    return [
        torch.optim.AdamW(others, lr=lr, betas=(0.9, 0.98), weight_decay=0.0),
        torch.optim.Muon(matrices, lr=lr, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
    ]


def learning_rate(step: int, settings: SftSettings) -> float:
    """Linear warm-up, then cosine to `final_lr_fraction` of the peak."""
    warm = min(1.0, (step + 1) / settings.warmup_steps)
    cosine = 0.5 * (1 + math.cos(math.pi * step / settings.steps))
    return settings.lr * warm * (settings.final_lr_fraction + (1 - settings.final_lr_fraction) * cosine)


def compute_loss(model: PreTrainedModel, documents: Sequence[Document], *, context_weight: float) -> tuple[torch.Tensor, float]:
    """Weighted next-token loss of documents packed into one row; returns it and the plain mean loss over the policy's own tokens (nats).

    The model must run with packed attention (`algos/packing.py`), so that documents do not see each other.
    """
    ids = torch.tensor([token for d in documents for token in d.token_ids])
    positions = torch.cat([torch.arange(len(d.token_ids)) for d in documents])
    is_target = torch.tensor([value for d in documents for value in d.is_target]).bool()
    predicted = torch.arange(len(ids) - 1)[positions[1:] > 0]  # positions whose next token belongs to the same document
    hidden = model.model(input_ids=ids[None], position_ids=positions[None], use_cache=False).last_hidden_state[0, predicted]
    losses = F.cross_entropy(F.linear(hidden, model.lm_head.weight), ids[predicted + 1], reduction="none")
    own = is_target[predicted + 1]
    weights = torch.where(own, 1.0, context_weight)
    return (losses * weights).sum() / weights.sum(), losses[own].mean().item()


def _average_gradients(model: PreTrainedModel, num_ranks: int) -> None:
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    for gradient, mean in zip(gradients, (flat / num_ranks).split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))


def train_sft(
    model: PreTrainedModel,
    next_documents: Callable[[float], list[Document]],
    settings: SftSettings,
    *,
    on_step: Callable[[int, float], None] | None = None,
) -> None:
    """Train in place.

    Where `torch.distributed` is initialised, each rank takes its share of every batch and gradients are averaged; all ranks must be given the same model
    and the same documents, and end with the same weights.

    Args:
        next_documents: given the progress in [0, 1), yields a pool of documents, which is cut into batches.
        on_step: called with the step (from 1) and the running loss over the policy's own tokens, in nats.
    """
    optimizers = build_optimizers(model, settings.lr)
    rank, num_ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    model.train()
    batches: list[list[Document]] = []
    running = float("nan")
    for step in range(settings.steps):
        if not batches:
            pool = next_documents(step / settings.steps)
            batches = [pool[i : i + settings.batch_size] for i in range(0, len(pool), settings.batch_size)]
        loss, own_loss = compute_loss(model, batches.pop()[rank::num_ranks], context_weight=settings.context_weight)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, settings)
            optimizer.zero_grad()
        loss.backward()
        if num_ranks > 1:
            _average_gradients(model, num_ranks)
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        for optimizer in optimizers:
            optimizer.step()
        running = own_loss if math.isnan(running) else 0.95 * running + 0.05 * own_loss
        if on_step is not None:
            on_step(step + 1, running)
    model.eval()
