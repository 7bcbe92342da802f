"""A session turn by turn: the order of things, what is paid, and what a judge or a model that fails leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from napmem_rl.errors import JudgeError, LLMError
from napmem_rl.systems.icml.config import RewardSettings
from napmem_rl.systems.icml.episode import SessionPlayer, SessionScript, play_session
from napmem_rl.systems.icml.ledger import Entry, Kind, check_entries, find_pending
from napmem_rl.systems.icml.rewards import check_score, compute_discard_reward, compute_save_reward, compute_truth_bonus
from napmem_rl.systems.icml.steps import Decision, Fragment, PlannerStep, Utterances


class World:
    """Agents, model, judge and memories in one, by script; `told` is the order of what was asked."""

    def __init__(self, *, saves: Sequence[int] = (), choices: Sequence[int] = (), proxies: Sequence[float] = (), qualities: Sequence[float] = ()) -> None:
        self.saves, self.choices = iter(saves), iter(choices)
        self.proxies, self.qualities = iter(proxies), iter(qualities)
        self.memories: list[Fragment] = []
        self.told: list[str] = []
        self.seeds: list[int] = []

    async def find_candidates(self, query: str) -> tuple[Sequence[Fragment], int]:
        self.told.append("observe")
        return tuple(self.memories), 0

    async def choose_memory(self, history: Sequence[Utterances], query: str, candidates: Sequence[Fragment], *, seed: int) -> Decision:
        self.told.append("trigger")
        self.seeds.append(seed)
        return Decision(action=next(self.choices, 0), log_prob=-0.5, value=0.1, policy_version=3)

    async def reply(self, history: Sequence[Utterances], query: str, memory: Fragment | None) -> str:
        self.told.append("reply")
        return f"{query} with {memory.text if memory else 'nothing'}"

    async def rate_reply(self, history: Sequence[Utterances], query: str, memory: Fragment | None, reply: str) -> float:
        self.told.append("rate reply")
        return next(self.qualities, 0.5)

    async def decide_to_save(self, turn: Utterances, *, seed: int) -> Decision:
        self.told.append("planner")
        self.seeds.append(seed)
        return Decision(action=next(self.saves, 0), log_prob=-0.7, value=0.2, policy_version=3)

    async def condense(self, turn: Utterances) -> str:
        return turn.user

    def add(self, text: str, turn: Utterances, step_id: str) -> Fragment:
        self.told.append("save")
        self.memories.append(Fragment(memory_id=f"mem:{len(self.memories)}", text=text))
        return self.memories[-1]

    async def rate_turn(self, turn: Utterances) -> float:
        self.told.append("rate turn")
        return next(self.proxies, 0.25)


def start(world: World, session_id: str = "s1", waiting: dict[str, PlannerStep] | None = None, **rewards: float) -> SessionPlayer:
    settings = RewardSettings(**rewards)
    roles = {"agents": world, "responder": world, "rater": world, "desk": world}
    return SessionPlayer(user_id="ana", session_id=session_id, rewards=settings, waiting=waiting or {}, **roles)


def hold(world: World, *queries: str, session_id: str = "s1", waiting: dict[str, PlannerStep] | None = None, **rewards: float):
    player = start(world, session_id, waiting, **rewards)
    return asyncio.run(play_session(player, SessionScript(session_id=session_id, queries=queries)))


def test_a_turn_runs_in_the_order_of_the_algorithm() -> None:
    world = World(saves=[1])
    hold(world, "I am allergic to nuts")
    assert world.told == ["observe", "trigger", "reply", "rate reply", "planner", "save", "rate turn"]


def test_saving_is_paid_the_proxy_in_its_own_session_and_the_truth_once_in_the_session_that_triggers() -> None:
    world = World(saves=[1, 0], proxies=[0.75, 0.25])
    first, entries, waiting = hold(world, "I am allergic to nuts", "nice weather", save_cost=0.25)
    assert [step.reward for step in first.planner] == [0.5, 0.0] and first.late == ()
    assert list(waiting) == ["mem:0"] == list(find_pending(entries))
    world.choices, world.qualities = iter([1, 1]), iter([0.9, 1.0])
    second, more, left = hold(world, "what shall I bake?", "and for dessert?", session_id="s2", waiting=waiting)
    (late,) = second.late
    assert late.amount == pytest.approx(0.45) and late.step is waiting["mem:0"] and late.step.decision.log_prob == -0.7
    assert (late.paid_in, late.trigger_step_id, left) == ("s2", "s2/0/trigger", {})
    assert [step.reward for step in second.trigger] == [0.9, 1.0]
    assert check_entries([*entries, *more], truth_weight=0.5) == [] and list(waiting) == ["mem:0"], "what was given must not change"


def test_discarding_what_the_judge_rates_high_costs_and_the_rest_is_free() -> None:
    trajectory, _, waiting = hold(World(proxies=[0.8, 0.4]), "a", "b")
    assert [step.reward for step in trajectory.planner] == [-0.4, 0.0] and waiting == {}


def test_without_truth_reward_nothing_is_paid_late() -> None:
    world = World(saves=[1], choices=[0, 1])
    trajectory, entries, waiting = hold(world, "a", "b", pays_truth=False)
    assert trajectory.trigger[1].decision.action == 1 and trajectory.late == () and list(waiting) == ["mem:0"]
    assert check_entries(entries) == []


class Failing(World):
    """A judge of replies that gives no verdict on the first, and one of turns that says what is no score."""

    async def rate_reply(self, history: Sequence[Utterances], query: str, memory: Fragment | None, reply: str) -> float:
        if not history:
            raise JudgeError.of("judge", "said nothing that can be read")
        return await super().rate_reply(history, query, memory, reply)

    async def rate_turn(self, turn: Utterances) -> float:
        return 7.0


def test_a_judge_that_fails_leaves_no_reward_and_not_a_reward_of_zero() -> None:
    trajectory, entries, _ = hold(Failing(saves=[1]), "a", "b")
    assert [step.reward for step in trajectory.trigger] == [None, 0.5] and [step.reward for step in trajectory.planner] == [None, None]
    reasons = [entry.why for entry in entries if entry.amount is None and entry.kind is not Kind.END]
    assert len(reasons) == 3 and "said nothing" in reasons[0] and "no score" in reasons[1]
    assert check_entries(entries) == []


def test_truth_waits_where_the_triggering_reply_has_no_quality() -> None:
    world = World(saves=[1])
    _, _, waiting = hold(world, "I am allergic to nuts")
    failing = Failing(choices=[1])
    failing.memories = world.memories
    trajectory, _, left = hold(failing, "what shall I bake?", session_id="s2", waiting=waiting)
    assert trajectory.late == () and list(left) == ["mem:0"]


def test_a_model_that_is_down_ends_the_session_without_a_trace() -> None:
    class Down(World):
        async def reply(self, history: Sequence[Utterances], query: str, memory: Fragment | None) -> str:
            raise LLMError.of("model", "request failed")

    waiting: dict[str, PlannerStep] = {}
    with pytest.raises(LLMError, match="request failed"):
        hold(Down(), "a", waiting=waiting)
    assert waiting == {}


def test_a_session_without_a_turn_is_only_its_end() -> None:
    trajectory, entries, waiting = hold(World())
    assert trajectory.planner == trajectory.trigger == () and entries == (Entry(kind=Kind.END, session_id="s1"),) and waiting == {}


def test_a_session_that_is_held_again_takes_the_same_seeds_and_another_turn_others() -> None:
    first, second = World(), World()
    hold(first, "a", "b")
    hold(second, "a", "b")
    assert first.seeds == second.seeds and len(set(first.seeds)) == 4


def test_payments_are_those_worked_by_hand() -> None:
    settings = RewardSettings(save_cost=0.25)
    assert compute_save_reward(0.75, settings) == 0.5
    assert compute_discard_reward(0.8, settings) == -0.4 and compute_discard_reward(0.49, settings) == 0.0
    assert compute_truth_bonus(0.9, settings) == 0.45
    for wrong in (1.5, -0.1, float("nan"), True, "0.5"):
        with pytest.raises(JudgeError, match="no score"):
            check_score(wrong, "judge")  # type: ignore[arg-type]
