"""Reading practice for a randomly initialised policy before it sees a packet: say question and some candidates again, id by id.

Without it, a policy of a million parameters does not learn within minutes to find a memory by its id and to carry its words over. A pretrained model needs
none of it. Which candidate a question asks for is not practised: that is for packets and reward to teach.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from napmem_rl.data.worlds import SyntheticUser
from napmem_rl.schema import Message
from napmem_rl.systems.memchain.candidates import Candidate
from napmem_rl.systems.memchain.prompts import build_messages, render_candidate

NUM_RECITED = 2


@dataclass(frozen=True, slots=True)
class Recital:
    """What is read, as in the prompt of a packet, and what is to be said."""

    prompt: str
    text: str


def draw_recital(user: SyntheticUser, rng: random.Random, *, num_candidates: int) -> Recital:
    """Any question of the user over messages drawn without it: one, those most like it, and two others, in random order."""
    said = [message for message in user.messages if message.role == "user"]
    anchor = rng.choice(said)
    words = set(anchor.text.split())
    ranked = sorted((message for message in said if message is not anchor), key=lambda one: (len(words & set(one.text.split())), rng.random()), reverse=True)
    similar = ranked[: max(0, num_candidates - 3)]
    shown = [anchor, *similar, *rng.sample(ranked[len(similar) :], min(2, num_candidates - 1))]
    rng.shuffle(shown)
    candidates = [_as_candidate(message) for message in shown]
    task = rng.choice(user.questions).task
    recited = rng.sample(candidates, min(NUM_RECITED, len(candidates)))
    text = " ".join([task.question, *(render_candidate(one) for one in recited)])
    return Recital(build_messages(task, candidates)[-1]["content"], text)


def _as_candidate(message: Message) -> Candidate:
    return Candidate(id=message.message_id, text=message.text, time=message.time, speaker=message.speaker)
