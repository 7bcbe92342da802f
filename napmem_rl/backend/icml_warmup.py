"""ICML's cold start on synthetic users: labels walked forward through whole lives, and supervised steps on both agents (arXiv 2609.17088, section 3.2)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from napmem_rl.data.session_worlds import TurnKind, WorldUser
from napmem_rl.systems.icml.model import InteractivePolicy
from napmem_rl.systems.icml.observations import Observation, Observer
from napmem_rl.systems.icml.steps import DISCARD, NO_MEMORY, SAVE, Fragment, Utterances

HARD_NEGATIVES, SOFT_NEGATIVES = 2, 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Labels:
    """What experts would have done: (observation, action) of each agent."""

    planner: tuple[tuple[Observation, int], ...]
    trigger: tuple[tuple[Observation, int], ...]


def label_users(users: Sequence[WorldUser], observer: Observer, *, seed: int) -> Labels:
    """Walk each life forward: a turn with information is to be saved; a question needs the memory of its fact among hard negatives (turns of the same session
    as the fact) and soft ones (any other of that life), and every other turn needs none."""
    planner, trigger, draw = [], [], random.Random(seed)
    for user in users:
        told: list[tuple[int, str]] = []  # session, text
        for number, session in enumerate(user.sessions):
            history: list[Utterances] = []
            for turn in session:
                said = Utterances(user=turn.text, assistant="I see.")
                planner.append((observer.observe_turn(said), SAVE if turn.kind is TurnKind.FACT else DISCARD))
                needed = _find_needed(user, turn.topic, turn.value) if turn.kind is TurnKind.QUESTION else None
                candidates = _draw_candidates(told, needed, turn.told_in, draw)
                action = NO_MEMORY if needed is None else 1 + next(place for place, found in enumerate(candidates) if found.text == needed)
                trigger.append((observer.observe_choice(history, turn.text, candidates), action))
                history.append(said)
                told.append((number, turn.text))
    return Labels(planner=tuple(planner), trigger=tuple(trigger))


def _find_needed(user: WorldUser, topic: str, value: str) -> str:
    facts = (turn.text for session in user.sessions for turn in session if turn.kind is TurnKind.FACT and (turn.topic, turn.value) == (topic, value))
    return next(facts)


def _draw_candidates(told: Sequence[tuple[int, str]], needed: str | None, told_in: int, draw: random.Random) -> list[Fragment]:
    others = list(dict.fromkeys(text for _, text in told if text != needed))
    hard = [text for text in others if any(session == told_in and said == text for session, said in told)]
    chosen = draw.sample(hard, min(HARD_NEGATIVES, len(hard)))
    soft = [text for text in others if text not in chosen]
    chosen += draw.sample(soft, min(SOFT_NEGATIVES, len(soft)))
    chosen += [needed] if needed is not None else []
    draw.shuffle(chosen)
    return [Fragment(memory_id=f"mem:{place}", text=text) for place, text in enumerate(chosen)]


def warm_up(policy: InteractivePolicy, labels: Labels, *, epochs: int, lr: float, batch_size: int, seed: int) -> dict[str, float]:
    """Cross entropy on both agents' labels, shuffled each epoch. Dropout is on. Returns the mean losses of the last epoch, by agent."""
    optimizer, draw = torch.optim.AdamW(policy.actor_parameters(), lr=lr, weight_decay=0.0), random.Random(seed)
    torch.manual_seed(seed)
    policy.train()
    found: dict[str, float] = {}
    for _ in range(epochs):
        for name, score, examples in (("planner", policy.score_turns, labels.planner), ("trigger", policy.score_choices, labels.trigger)):
            order, losses = draw.sample(range(len(examples)), len(examples)), []
            for start in range(0, len(order), batch_size):
                batch = [examples[place] for place in order[start : start + batch_size]]
                log_probs = score([observation for observation, _ in batch]).log_probs()
                loss = functional.nll_loss(log_probs, torch.tensor([action for _, action in batch], device=log_probs.device))
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                losses.append(float(loss.detach()))
            found[name] = sum(losses) / len(losses)
    policy.eval()
    return found
