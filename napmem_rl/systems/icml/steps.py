"""What one session leaves to learn from: the decisions of both agents, turn by turn, and what arrived late for decisions of earlier sessions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from napmem_rl.errors import DataError

DISCARD, SAVE = 0, 1  # actions of the Planner
NO_MEMORY = 0  # action of the Trigger; i > 0 is the i-th candidate


class Agent(StrEnum):
    """Who decides."""

    PLANNER = "planner"
    TRIGGER = "trigger"


@dataclass(frozen=True, kw_only=True, slots=True)
class Utterances:
    """One turn as it was said."""

    user: str
    assistant: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Fragment:
    """A memory: what was condensed out of one turn."""

    memory_id: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What an agent chose, with all that learning needs to see again what it saw."""

    action: int
    log_prob: float  # of the action under the policy that chose, natural logarithm
    value: float  # the critic's
    policy_version: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannerStep:
    """One decision to save or to discard. `reward` is None where the judge gave no score: then it is not trained on."""

    step_id: str
    turn: Utterances
    decision: Decision
    reward: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TriggerStep:
    """One choice of a memory, or of none."""

    step_id: str
    history: tuple[Utterances, ...]
    query: str
    candidates: tuple[Fragment, ...]
    num_left_out: int  # memories that were no candidate: there are more than the agent can see
    decision: Decision
    reward: float | None

    def __post_init__(self) -> None:
        if not 0 <= self.decision.action <= len(self.candidates):
            what = f"trigger step {self.step_id}"
            raise DataError.of(what, "chose what is not there", got=self.decision.action, expected=f"0 to {len(self.candidates)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class LatePayment:
    """A part of a reward that came in a later session than the decision it is for; the decision keeps the log-prob that it was made with."""

    step: PlannerStep
    amount: float
    paid_in: str  # session in whose update it enters
    trigger_step_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionTrajectory:
    """One finished session of one user. Both agents decided once a turn."""

    user_id: str
    session_id: str
    planner: tuple[PlannerStep, ...]
    trigger: tuple[TriggerStep, ...]
    late: tuple[LatePayment, ...]

    def __post_init__(self) -> None:
        if len(self.planner) != len(self.trigger):
            what = f"session {self.session_id} of {self.user_id}"
            raise DataError.of(what, "has another number of decisions for each agent", got=(len(self.planner), len(self.trigger)))


def name_step(session_id: str, turn: int, agent: Agent) -> str:
    """The id of a decision: ``"s3/2/planner"``. Turns count from 0."""
    return f"{session_id}/{turn}/{agent}"
