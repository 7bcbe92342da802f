"""Synthetic users who talk over many sessions: early remarks that matter only later, others that never do, and small talk. Deterministic, of own writing.

Every remark tells a fact of one of many topics. Of some topics the user asks in a later session, so that the fact is needed then; of the others never. A remark
alone does not show which: only what happens later does. That is what a reward across sessions is for.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from napmem_rl.errors import ConfigError

ASKED: Mapping[str, tuple[str, str, tuple[str, ...]]] = {  # topic -> remark, question, values
    "allergy": ("I get ill when I eat {}", "What can I bake for the party without harm to me?", ("peanuts", "shrimps", "sesame", "almonds")),
    "pet": ("my {} follows me through the whole flat", "Who needs a sitter while I travel?", ("parrot", "terrier", "rabbit", "tortoise")),
    "city": ("we moved to {} for good", "Which office should my parcel go to?", ("Bergen", "Porto", "Ghent", "Turku")),
    "instrument": ("I practise the {} every evening", "Which lessons should I book this spring?", ("cello", "flute", "harp", "banjo")),
    "fear": ("standing on {} makes me panic", "Where should our trip rather not lead?", ("bridges", "ladders", "cliffs", "towers")),
    "diet": ("I gave up {} years ago", "What should the cook leave out for me?", ("meat", "sugar", "dairy", "wheat")),
}
UNASKED: Mapping[str, tuple[str, tuple[str, ...]]] = {  # topic -> remark, values
    "commute": ("the bus {} was late again", ("seven", "twelve", "forty", "nine")),
    "weather": ("the rain over the {} would not stop", ("harbour", "valley", "forest", "station")),
    "lunch": ("I had {} for lunch today", ("soup", "noodles", "pancakes", "beans")),
    "film": ("last night we saw a film about {}", ("pirates", "robots", "dancers", "wolves")),
    "meeting": ("the meeting on {} went on and on", ("budgets", "deadlines", "hiring", "logos")),
    "shop": ("the shop had no {} left", ("batteries", "candles", "envelopes", "towels")),
}
SMALL_TALK = ("good morning to you", "thanks, that is kind", "well, where was I", "it is getting late", "tell me something nice", "I had a long day")


class TurnKind(StrEnum):
    """What a turn of the user is."""

    FACT = "fact"
    QUESTION = "question"
    TALK = "talk"


@dataclass(frozen=True, kw_only=True, slots=True)
class WorldTurn:
    """One turn, with what only judges and evaluations may see.

    Attributes: `topic` of a fact or question, "" of small talk; `value` of a fact, or the one that a question needs; `matters`: a later question needs this
    fact; `told_in`: session of the fact that a question needs, -1 otherwise.
    """

    text: str
    kind: TurnKind
    topic: str = ""
    value: str = ""
    matters: bool = False
    told_in: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class WorldUser:
    """A user's whole life: sessions of turns."""

    user_id: str
    sessions: tuple[tuple[WorldTurn, ...], ...]

    @property
    def num_questions(self) -> int:
        """Questions that need a fact of an earlier session."""
        return sum(turn.kind is TurnKind.QUESTION for session in self.sessions for turn in session)


def build_users(count: int, *, seed: int, num_sessions: int = 10, split: str = "train") -> list[WorldUser]:
    """Users of one split; ids and lives of two splits have nothing in common but topics and values.

    Args:
        count: how many.
        seed: of all of them.
        num_sessions: of each, at least 2: what is told needs a later session to matter.
        split: goes into ids and lives.

    Raises:
        ConfigError: fewer than two sessions.
    """
    if num_sessions < 2:
        raise ConfigError.of("synthetic users, num_sessions", "is too small", got=num_sessions, expected="at least 2")
    return [_build_user(f"{split}-{seed}-{number}", random.Random(f"{split}/{seed}/{number}"), num_sessions) for number in range(count)]


def _build_user(user_id: str, draw: random.Random, num_sessions: int) -> WorldUser:
    """Facts in the order of sessions; each asked topic is told once in the first half and asked afterwards, up to three times."""
    sessions: list[list[WorldTurn]] = [[] for _ in range(num_sessions)]
    told_until = max(1, num_sessions // 2)
    for topic, (remark, question, values) in ASKED.items():
        value, told = draw.choice(values), draw.randrange(told_until)
        later = range(told + 1, num_sessions)
        asked_in = sorted(draw.sample(later, min(len(later), draw.randint(1, 3))))
        sessions[told].append(WorldTurn(text=remark.format(value), kind=TurnKind.FACT, topic=topic, value=value, matters=True))
        for place in asked_in:
            sessions[place].append(WorldTurn(text=question, kind=TurnKind.QUESTION, topic=topic, value=value, told_in=told))
    for place in range(num_sessions):
        for topic in draw.sample(sorted(UNASKED), 2):
            remark, values = UNASKED[topic]
            value = draw.choice(values)
            sessions[place].append(WorldTurn(text=remark.format(value), kind=TurnKind.FACT, topic=topic, value=value))
        sessions[place].append(WorldTurn(text=draw.choice(SMALL_TALK), kind=TurnKind.TALK))
        draw.shuffle(sessions[place])
    return WorldUser(user_id=user_id, sessions=tuple(map(tuple, sessions)))


def list_texts() -> list[str]:
    """Everything that can be said, for a tokenizer that knows every word."""
    remarks = [remark.format(value) for remark, _, values in ASKED.values() for value in values]
    remarks += [remark.format(value) for remark, values in UNASKED.values() for value in values]
    return [*remarks, *(question for _, question, _ in ASKED.values()), *SMALL_TALK]


def find_turn(user: WorldUser, text: str) -> WorldTurn | None:
    """A turn of this user by its words; None for others."""
    return next((turn for session in user.sessions for turn in session if turn.text == text), None)
