"""One session of talk, turn by turn, with both agents at work (arXiv 2609.17088, algorithm 1).

Knows neither a model nor a disk: whoever decides, answers, judges and remembers is behind the protocols below. What comes out is the trajectory to learn from
and the entries for the ledger; nothing of it holds before the caller has committed them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from napmem_rl.errors import JudgeError
from napmem_rl.systems.icml.config import RewardSettings
from napmem_rl.systems.icml.ledger import Entry, Kind
from napmem_rl.systems.icml.rewards import check_score, compute_discard_reward, compute_save_reward, compute_truth_bonus
from napmem_rl.systems.icml.steps import (
    NO_MEMORY,
    SAVE,
    Agent,
    Decision,
    Fragment,
    LatePayment,
    PlannerStep,
    SessionTrajectory,
    TriggerStep,
    Utterances,
    name_step,
)


class Agents(Protocol):
    """The policy: both agents."""

    async def choose_memory(self, history: Sequence[Utterances], query: str, candidates: Sequence[Fragment], *, seed: int) -> Decision:
        """The Trigger: 0 for no memory, i for the i-th candidate."""
        ...

    async def decide_to_save(self, turn: Utterances, *, seed: int) -> Decision:
        """The Planner: 1 to save, 0 to discard."""
        ...


class Responder(Protocol):
    """The frozen language model that talks."""

    async def reply(self, history: Sequence[Utterances], query: str, memory: Fragment | None) -> str:
        """The assistant's words. Raises LLMError where there are none: the session then ends without a trace, to be held again."""
        ...

    async def condense(self, turn: Utterances) -> str:
        """What of a turn is kept as a memory."""
        ...


class Rater(Protocol):
    """The judge. Raises JudgeError where it gives no usable score: that reward is abstained from."""

    async def rate_reply(self, history: Sequence[Utterances], query: str, memory: Fragment | None, reply: str) -> float:
        """r_qual in [0, 1]."""
        ...

    async def rate_turn(self, turn: Utterances) -> float:
        """r_proxy in [0, 1]: what the turn is worth remembering."""
        ...


class MemoryDesk(Protocol):
    """The user's memories as this session sees them: those of the bank, and its own."""

    async def find_candidates(self, query: str) -> tuple[Sequence[Fragment], int]:
        """What the Trigger may choose from, and how many memories were left out."""
        ...

    def add(self, text: str, turn: Utterances, step_id: str) -> Fragment:
        """A new memory, which holds once the session is committed."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionScript:
    """What the user says, in order. A live chat gives it turn by turn instead (`SessionPlayer`)."""

    session_id: str
    queries: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnOutcome:
    """What people may want to see of a turn."""

    reply: str
    memory: Fragment | None
    saved: Fragment | None
    entries: tuple[Entry, ...]


@dataclass(kw_only=True, slots=True)
class SessionPlayer:
    """Plays the turns of one session, in the exact order of algorithm 1.

    Args:
        waiting: memory id -> decision that saved it, as the sessions before left them; not changed.
        seed: of the run; every decision takes its own from it, so that a session that is held again decides alike.
    """

    user_id: str
    session_id: str
    agents: Agents
    responder: Responder
    rater: Rater
    desk: MemoryDesk
    rewards: RewardSettings
    waiting: Mapping[str, PlannerStep]
    seed: int = 0
    _pending: dict[str, PlannerStep] = field(init=False)
    _history: list[Utterances] = field(init=False, default_factory=list)
    _planner: list[PlannerStep] = field(init=False, default_factory=list)
    _trigger: list[TriggerStep] = field(init=False, default_factory=list)
    _late: list[LatePayment] = field(init=False, default_factory=list)
    _entries: list[Entry] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._pending = dict(self.waiting)

    async def play(self, query: str) -> TurnOutcome:
        """One turn: observe, choose a memory, reply, rate, pay truth, save or discard. Raises LLMError where there is no reply."""
        first = len(self._entries)
        candidates, num_left_out = await self.desk.find_candidates(query)
        step_id = self._name(Agent.TRIGGER)
        chosen = await self.agents.choose_memory(tuple(self._history), query, candidates, seed=self._seed_of(step_id))
        memory = None if chosen.action == NO_MEMORY else candidates[chosen.action - 1]
        reply = await self.responder.reply(tuple(self._history), query, memory)
        turn = Utterances(user=query, assistant=reply)
        quality, why = await self._rate_reply(query, memory, reply)
        self._trigger.append(
            TriggerStep(
                step_id=step_id,
                history=tuple(self._history),
                query=query,
                candidates=tuple(candidates),
                num_left_out=num_left_out,
                decision=chosen,
                reward=quality,
            )
        )
        self._book(Kind.QUALITY, step_id, Agent.TRIGGER, quality, memory_id=memory.memory_id if memory else "", why=why)
        if memory is not None and quality is not None:
            self._pay_truth(memory.memory_id, quality, step_id)
        saved = await self._plan(turn)
        self._history.append(turn)
        return TurnOutcome(reply=reply, memory=memory, saved=saved, entries=tuple(self._entries[first:]))

    def finish(self) -> tuple[SessionTrajectory, tuple[Entry, ...], dict[str, PlannerStep]]:
        """The session as a trajectory, its ledger entries with the end, and the decisions that wait after it."""
        trajectory = SessionTrajectory(
            user_id=self.user_id, session_id=self.session_id, planner=tuple(self._planner), trigger=tuple(self._trigger), late=tuple(self._late)
        )
        return trajectory, (*self._entries, Entry(kind=Kind.END, session_id=self.session_id)), dict(self._pending)

    async def _plan(self, turn: Utterances) -> Fragment | None:
        """The Planner's decision on a turn, and what it is paid in this session."""
        step_id = self._name(Agent.PLANNER)
        decision = await self.agents.decide_to_save(turn, seed=self._seed_of(step_id))
        saved = None
        if decision.action == SAVE:
            saved = self.desk.add(await self.responder.condense(turn), turn, step_id)
        proxy, why = await self._rate_turn(turn)
        reward = None if proxy is None else (compute_save_reward if saved else compute_discard_reward)(proxy, self.rewards)
        step = PlannerStep(step_id=step_id, turn=turn, decision=decision, reward=reward)
        self._planner.append(step)
        kind = Kind.SAVE if saved else Kind.DISCARD
        self._book(kind, step_id, Agent.PLANNER, reward, memory_id=saved.memory_id if saved else "", why=why)
        if saved is not None:
            self._pending[saved.memory_id] = step
        return saved

    def _pay_truth(self, memory_id: str, quality: float, cause: str) -> None:
        """Pay the decision that saved this memory, once; a memory that was paid before is in the buffer no more."""
        if not self.rewards.pays_truth or memory_id not in self._pending:
            return
        step = self._pending.pop(memory_id)
        amount = compute_truth_bonus(quality, self.rewards)
        self._late.append(LatePayment(step=step, amount=amount, paid_in=self.session_id, trigger_step_id=cause))
        self._book(Kind.TRUTH, step.step_id, Agent.PLANNER, amount, memory_id=memory_id, cause=cause)

    async def _rate_reply(self, query: str, memory: Fragment | None, reply: str) -> tuple[float | None, str]:
        try:
            score = await self.rater.rate_reply(tuple(self._history), query, memory, reply)
            return check_score(score, "the judge of replies"), ""
        except JudgeError as error:
            return None, error.message

    async def _rate_turn(self, turn: Utterances) -> tuple[float | None, str]:
        try:
            return check_score(await self.rater.rate_turn(turn), "the judge of turns"), ""
        except JudgeError as error:
            return None, error.message

    def _book(self, kind: Kind, step_id: str, agent: Agent, amount: float | None, *, memory_id: str = "", cause: str = "", why: str = "") -> None:
        entry = Entry(kind=kind, session_id=self.session_id, step_id=step_id, agent=agent, amount=amount, memory_id=memory_id, cause=cause, why=why)
        self._entries.append(entry)

    def _name(self, agent: Agent) -> str:
        return name_step(self.session_id, len(self._history), agent)

    def _seed_of(self, step_id: str) -> int:
        """Of one decision, in [0, 2^31)."""
        return int.from_bytes(hashlib.sha256(f"{self.seed}/{self.user_id}/{step_id}".encode()).digest()[:4], "big") >> 1


async def play_session(player: SessionPlayer, script: SessionScript) -> tuple[SessionTrajectory, tuple[Entry, ...], dict[str, PlannerStep]]:
    """All turns of a script; see `SessionPlayer.finish`. A session without a turn of the user is an empty one, and fine."""
    for query in script.queries:
        await player.play(query)
    return player.finish()
