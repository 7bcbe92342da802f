"""A model, a judge and memories without a language model, for synthetic users (`data/session_worlds`): deterministic, for learning on a laptop and for tests.

The judge of turns cannot tell what will matter: a fact is worth the same whether it is asked for later or not. The judge of replies can.
"""

from __future__ import annotations

from collections.abc import Sequence

from napmem_rl.data.session_worlds import TurnKind, WorldTurn, WorldUser, find_turn
from napmem_rl.systems.icml.steps import Fragment, Utterances

FACT_WORTH, TALK_WORTH = 0.6, 0.1  # r_proxy
HIT, MISS = 1.0, 0.2  # r_qual of a question with the memory that it needs, and without
FREE, DISTRACTED = 0.8, 0.5  # r_qual of any other turn without a memory, and with one


class ScriptedWorld:
    """`Responder` and `Rater` for one user."""

    def __init__(self, user: WorldUser) -> None:
        self._user = user

    async def reply(self, history: Sequence[Utterances], query: str, memory: Fragment | None) -> str:
        """Says what it was reminded of, and nothing else."""
        return f"I remember: {memory.text}" if memory is not None else "I see."

    async def condense(self, turn: Utterances) -> str:
        """The user's words."""
        return turn.user

    async def rate_turn(self, turn: Utterances) -> float:
        """Facts are worth more than small talk and questions."""
        said = self._find(turn.user)
        return FACT_WORTH if said.kind is TurnKind.FACT else TALK_WORTH

    async def rate_reply(self, history: Sequence[Utterances], query: str, memory: Fragment | None, reply: str) -> float:
        """Whether the memory was the one that the turn needs."""
        said = self._find(query)
        if said.kind is not TurnKind.QUESTION:
            return FREE if memory is None else DISTRACTED
        return HIT if memory is not None and is_needed(self._user, said, memory) else MISS

    def _find(self, text: str) -> WorldTurn:
        found = find_turn(self._user, text)
        assert found is not None, f"user {self._user.user_id} never says {text!r}"
        return found


def is_needed(user: WorldUser, question: WorldTurn, memory: Fragment) -> bool:
    """Whether a memory holds the fact that a question needs."""
    told = find_turn(user, memory.text)
    return told is not None and (told.kind, told.topic, told.value) == (TurnKind.FACT, question.topic, question.value)


class MemoryList:
    """`MemoryDesk` over a list; the newest memories are the candidates where there are more than the agent can see."""

    def __init__(self, fragments: Sequence[Fragment] = (), *, max_candidates: int = 32) -> None:
        self.fragments, self._max_candidates = list(fragments), max_candidates

    async def find_candidates(self, query: str) -> tuple[Sequence[Fragment], int]:
        """See `MemoryDesk`."""
        left_out = max(0, len(self.fragments) - self._max_candidates)
        return tuple(self.fragments[left_out:]), left_out

    def add(self, text: str, turn: Utterances, step_id: str) -> Fragment:
        """See `MemoryDesk`."""
        self.fragments.append(Fragment(memory_id=f"mem:{step_id.rsplit('/', 1)[0]}", text=text))
        return self.fragments[-1]
