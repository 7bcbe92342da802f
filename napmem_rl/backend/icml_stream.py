"""A stream of synthetic users, session by session, with both agents learning online: what the CPU proof of ICML measures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from napmem_rl.backend.icml_learner import PolicyAgents, PPOLearner
from napmem_rl.data.session_worlds import TurnKind, WorldUser, find_turn
from napmem_rl.systems.icml.config import Ablation, RewardSettings
from napmem_rl.systems.icml.episode import SessionPlayer, SessionScript, play_session
from napmem_rl.systems.icml.fixed_agents import apply_ablation
from napmem_rl.systems.icml.observations import Observer
from napmem_rl.systems.icml.scripted import MemoryList, ScriptedWorld, is_needed
from napmem_rl.systems.icml.steps import SAVE, PlannerStep, SessionTrajectory


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionRow:
    """One session of one user, as counted: what rates are made of, so that they can be summed over any set of sessions."""

    user_id: str
    session: int
    quality: float  # sum of r_qual
    num_turns: int
    num_saved: int
    num_saved_that_matter: int
    num_that_matter: int  # facts told in this session that a later question needs
    num_questions: int
    num_recalled: int  # questions for which the memory that they need was chosen
    num_memories: int  # at the end of the session


@dataclass(kw_only=True, slots=True)
class _Life:
    user: WorldUser
    desk: MemoryList
    waiting: dict[str, PlannerStep]


def run_stream(
    learner: PPOLearner,
    observer: Observer,
    users: Sequence[WorldUser],
    *,
    rewards: RewardSettings,
    ablation: Ablation = Ablation.NONE,
    batch: int = 4,
    seed: int = 0,
    greedy: bool = False,
    max_candidates: int = 32,
    on_rows: Callable[[Sequence[SessionRow]], None] = lambda rows: None,
) -> list[SessionRow]:
    """Let users live side by side, `batch` at a time; after each of their sessions the policy learns from all of them, unless the ablation forbids.

    Returns:
        rows in the order of sessions.
    """
    rows: list[SessionRow] = []
    for start in range(0, len(users), batch):
        lives = [_Life(user=user, desk=MemoryList(max_candidates=max_candidates), waiting={}) for user in users[start : start + batch]]
        for number in range(max(len(life.user.sessions) for life in lives)):
            agents = apply_ablation(PolicyAgents(learner.policy, observer, version=learner.version, greedy=greedy), ablation)
            players = [_start(life, number, agents, rewards, seed) for life in lives]
            played = asyncio.run(_play_all(lives, players, number))
            if ablation is not Ablation.NO_EVOLUTION:
                learner.update(played)
            found = [_count(life, number, trajectory) for life, trajectory in zip(lives, played, strict=True)]
            on_rows(found)
            rows += found
    return rows


def _start(life: _Life, number: int, agents: object, rewards: RewardSettings, seed: int) -> SessionPlayer:
    world = ScriptedWorld(life.user)
    given = {"agents": agents, "responder": world, "rater": world, "desk": life.desk, "rewards": rewards, "waiting": life.waiting}
    return SessionPlayer(user_id=life.user.user_id, session_id=f"s{number}", seed=seed, **given)


async def _play_all(lives: Sequence[_Life], players: Sequence[SessionPlayer], number: int) -> list[SessionTrajectory]:
    scripts = [SessionScript(session_id=f"s{number}", queries=tuple(turn.text for turn in life.user.sessions[number])) for life in lives]
    found = await asyncio.gather(*(play_session(player, script) for player, script in zip(players, scripts, strict=True)))
    for life, (_, _, waiting) in zip(lives, found, strict=True):
        life.waiting = waiting
    return [trajectory for trajectory, _, _ in found]


def _count(life: _Life, number: int, trajectory: SessionTrajectory) -> SessionRow:
    turns = life.user.sessions[number]
    saved = [turn for turn, step in zip(turns, trajectory.planner, strict=True) if step.decision.action == SAVE]
    recalled = 0
    for step in trajectory.trigger:
        said = find_turn(life.user, step.query)
        chosen = step.decision.action
        recalled += bool(chosen and said.kind is TurnKind.QUESTION and is_needed(life.user, said, step.candidates[chosen - 1]))
    return SessionRow(
        user_id=life.user.user_id,
        session=number,
        quality=sum(step.reward for step in trajectory.trigger if step.reward is not None),
        num_turns=len(turns),
        num_saved=len(saved),
        num_saved_that_matter=sum(turn.matters for turn in saved),
        num_that_matter=sum(turn.matters for turn in turns),
        num_questions=sum(turn.kind is TurnKind.QUESTION for turn in turns),
        num_recalled=recalled,
        num_memories=len(life.desk.fragments),
    )
