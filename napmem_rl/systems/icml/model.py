"""The policy of both agents: one backbone, two policy heads, two value heads (arXiv 2609.17088, section 3.3).

The backbone is any causal language model of transformers, with or without an adapter of peft. The Planner's head reads the last hidden state of what the user
said. The Trigger's head is a pointer: a query out of the last hidden state against a key out of each marker's, scaled by the square root of their width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from napmem_rl.systems.icml.observations import Observation
from napmem_rl.systems.icml.steps import Agent

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Scores:
    """Of N observations of one agent, with at most C choices."""

    logits: torch.Tensor  # [N, C] float32
    mask: torch.Tensor  # [N, C] bool, true where the choice exists
    values: torch.Tensor  # [N] float32

    def log_probs(self) -> torch.Tensor:
        """[N, C] natural logarithms; minus infinity where there is no choice."""
        return self.logits.masked_fill(~self.mask, float("-inf")).log_softmax(dim=-1)


class InteractivePolicy(nn.Module):
    """Both agents."""

    def __init__(self, backbone: PreTrainedModel, *, pad_id: int, pointer_width: int = 64) -> None:
        """Heads begin at zero: both agents choose evenly, and every value is 0.

        Args:
            backbone: a causal language model; its head is not used.
            pad_id: fills rows; it is masked.
            pointer_width: of queries and keys.
        """
        super().__init__()
        width = backbone.config.get_text_config().hidden_size
        self.backbone, self._pad_id, self._scale = backbone, pad_id, pointer_width**-0.5
        self.planner = nn.Linear(width, 2)
        self.pointer_query, self.pointer_key = nn.Linear(width, pointer_width), nn.Linear(width, pointer_width)
        self.values = nn.ModuleDict({agent: nn.Linear(width, 1) for agent in Agent})
        for layer in (self.planner, self.pointer_query, *self.values.values()):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def score_turns(self, observations: Sequence[Observation]) -> Scores:
        """The Planner on N turns: logits of (discard, save)."""
        hidden, last = self._read(observations)
        state = hidden[torch.arange(len(observations), device=hidden.device), last]
        logits = self.planner(state)
        return Scores(logits, torch.ones_like(logits, dtype=torch.bool), self.values[Agent.PLANNER](state).squeeze(-1))

    def score_choices(self, observations: Sequence[Observation]) -> Scores:
        """The Trigger on N choices: logits of (no memory, the first candidate, …), from one forward pass over all candidates."""
        hidden, last = self._read(observations)
        rows = torch.arange(len(observations), device=hidden.device)
        state = hidden[rows, last]
        counts = torch.tensor([len(observation.markers) for observation in observations], device=hidden.device)
        places = torch.zeros(len(observations), int(counts.max()), dtype=torch.long, device=hidden.device)
        for row, observation in enumerate(observations):
            places[row, : len(observation.markers)] = torch.tensor(observation.markers, device=hidden.device)
        keys = self.pointer_key(hidden[rows[:, None], places])
        logits = (keys * self.pointer_query(state)[:, None]).sum(dim=-1) * self._scale
        mask = torch.arange(places.shape[1], device=hidden.device) < counts[:, None]
        return Scores(logits, mask, self.values[Agent.TRIGGER](state).squeeze(-1))

    def actor_parameters(self) -> list[nn.Parameter]:
        """What learns at the actor's rate: backbone or adapter, and policy heads."""
        critics = {id(parameter) for parameter in self.critic_parameters()}
        return [parameter for parameter in self.parameters() if parameter.requires_grad and id(parameter) not in critics]

    def critic_parameters(self) -> list[nn.Parameter]:
        """What learns at the critic's rate: the value heads."""
        return list(self.values.parameters())

    def _read(self, observations: Sequence[Observation]) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden states [N, L, d] in float32, and where each observation ends [N]."""
        lengths = [len(observation.token_ids) for observation in observations]
        device = self.planner.weight.device
        ids = torch.full((len(observations), max(lengths)), self._pad_id, dtype=torch.long, device=device)
        for row, observation in enumerate(observations):
            ids[row, : lengths[row]] = torch.tensor(observation.token_ids, device=device)
        ends = torch.tensor(lengths, device=device)
        mask = (torch.arange(ids.shape[1], device=device) < ends[:, None]).long()
        adapted = getattr(self.backbone, "get_base_model", None)  # of peft; its layers are within the model that it wraps
        reader = (self.backbone if adapted is None else adapted()).base_model  # without the language head, which would score every word of the vocabulary
        return reader(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state.float(), ends - 1
