"""What each agent sees, as token ids (arXiv 2609.17088, sections 3.3.1 and 3.3.2). Pure: whoever has a tokenizer gives its function.

The Planner reads the user's words. The Trigger reads the recent dialogue, the user's words, then one line a candidate, each ended by a marker, "no memory"
first; it points at one of the markers, so that one forward pass scores them all. Every part is tokenised as plain text: what a user or a memory says cannot
pose as a marker, which is a control token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from napmem_rl.errors import ConfigError
from napmem_rl.systems.icml.steps import Fragment, Utterances

NO_MEMORY_TEXT = "no memory"
Encode = Callable[[str], Sequence[int]]  # plain text to ids, without control tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """Ids of one observation; at the last the state is read. `markers` are the places of the choices, in order of the actions; empty for the Planner."""

    token_ids: tuple[int, ...]
    markers: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservationLimits:
    """How much an agent reads, in tokens of its own tokenizer."""

    max_turns: int = 4  # of the dialogue before the query
    max_words_tokens: int = 128  # of one utterance: its end is cut off
    max_memory_tokens: int = 64  # of one candidate
    max_candidates: int = 32  # N_max: what more there is, a search leaves out

    def __post_init__(self) -> None:
        for name in ("max_words_tokens", "max_memory_tokens", "max_candidates"):
            if getattr(self, name) < 1:
                raise ConfigError.of(f"icml.{name}", "is not above 0", got=getattr(self, name))
        if self.max_turns < 0:
            raise ConfigError.of("icml.max_turns", "is below 0", got=self.max_turns)


class Observer:
    """Writes observations for one tokenizer."""

    def __init__(self, encode: Encode, *, marker_id: int, limits: ObservationLimits) -> None:
        """`marker_id`: a control token that no text becomes, such as the tokenizer's end of text."""
        self._encode, self._marker, self._limits = encode, marker_id, limits

    def observe_turn(self, turn: Utterances) -> Observation:
        """The Planner's: what the user said."""
        return Observation(token_ids=(*self._cut("user: ", turn.user, self._limits.max_words_tokens), self._marker))

    def observe_choice(self, history: Sequence[Utterances], query: str, candidates: Sequence[Fragment]) -> Observation:
        """The Trigger's: dialogue, query, and each choice with its marker. Raises ValueError for more candidates than the agent can see."""
        limits = self._limits
        if len(candidates) > limits.max_candidates:
            raise ValueError(f"observe_choice: got {len(candidates)} candidates, expected at most {limits.max_candidates}")
        ids: list[int] = []
        for turn in history[len(history) - min(limits.max_turns, len(history)) :]:
            ids += self._cut("user: ", turn.user, limits.max_words_tokens)
            ids += self._cut("assistant: ", turn.assistant, limits.max_words_tokens)
        ids += self._cut("user: ", query, limits.max_words_tokens)
        markers = []
        for text in (NO_MEMORY_TEXT, *(candidate.text for candidate in candidates)):
            ids += [*self._cut("- ", text, limits.max_memory_tokens), self._marker]
            markers.append(len(ids) - 1)
        return Observation(token_ids=(*ids, self._marker), markers=tuple(markers))

    def _cut(self, prefix: str, text: str, limit: int) -> list[int]:
        """A line as ids, its end cut off where it is too long."""
        return list(self._encode(f"{prefix}{' '.join(text.split())}\n"))[:limit]
