"""Agents that do not learn: rows that every table shows beside the learned ones. Each wraps the learned agents and takes over one decision."""

from __future__ import annotations

import random
from collections.abc import Sequence

from napmem_rl.systems.icml.config import Ablation
from napmem_rl.systems.icml.episode import Agents
from napmem_rl.systems.icml.steps import DISCARD, NO_MEMORY, SAVE, Decision, Fragment, Utterances


class FixedPlanner:
    """Saves every turn, or none; the Trigger is the other agents'."""

    def __init__(self, agents: Agents, *, action: int) -> None:
        self._agents, self._action = agents, action

    async def choose_memory(self, history: Sequence[Utterances], query: str, candidates: Sequence[Fragment], *, seed: int) -> Decision:
        """See `Agents`."""
        return await self._agents.choose_memory(history, query, candidates, seed=seed)

    async def decide_to_save(self, turn: Utterances, *, seed: int) -> Decision:
        """Always the same: certain, so that nothing is learned from it."""
        return _certain(self._action)


class FixedTrigger:
    """Chooses the candidate that shares most words with the query, or any at random; the Planner is the other agents'."""

    def __init__(self, agents: Agents, *, at_random: bool) -> None:
        self._agents, self._at_random = agents, at_random

    async def choose_memory(self, history: Sequence[Utterances], query: str, candidates: Sequence[Fragment], *, seed: int) -> Decision:
        """See `Agents`."""
        if self._at_random:
            return _certain(random.Random(seed).randrange(len(candidates) + 1))
        words = set(query.lower().split())
        shared = [len(words.intersection(candidate.text.lower().split())) for candidate in candidates]
        best = max(range(len(shared)), key=lambda place: (shared[place], place), default=None)
        return _certain(NO_MEMORY if best is None else best + 1)

    async def decide_to_save(self, turn: Utterances, *, seed: int) -> Decision:
        """See `Agents`."""
        return await self._agents.decide_to_save(turn, seed=seed)


def apply_ablation(agents: Agents, ablation: Ablation) -> Agents:
    """The agents of a row of the table."""
    match ablation:
        case Ablation.NO_PLANNER:
            return FixedPlanner(agents, action=SAVE)
        case Ablation.SAVE_NONE:
            return FixedPlanner(agents, action=DISCARD)
        case Ablation.NO_TRIGGER | Ablation.RANDOM_TRIGGER:
            return FixedTrigger(agents, at_random=ablation is Ablation.RANDOM_TRIGGER)
    return agents


def _certain(action: int) -> Decision:
    return Decision(action=action, log_prob=0.0, value=0.0, policy_version=0)
