"""Synthetic lives with both agents at work: what is told and needed, what experts would do, and what a stream counts."""

from __future__ import annotations

import asyncio

import pytest

from napmem_rl.backend.icml_learner import PPOLearner
from napmem_rl.backend.icml_stream import SessionRow, run_stream
from napmem_rl.backend.icml_warmup import label_users, warm_up
from napmem_rl.backend.tiny_policy import build_model, build_tokenizer
from napmem_rl.data.session_worlds import TurnKind, build_users, list_texts
from napmem_rl.errors import ConfigError
from napmem_rl.systems.icml.config import Ablation, PPOSettings, RewardSettings
from napmem_rl.systems.icml.model import InteractivePolicy
from napmem_rl.systems.icml.observations import ObservationLimits, Observer
from napmem_rl.systems.icml.scripted import FACT_WORTH, FREE, HIT, MISS, TALK_WORTH, ScriptedWorld
from napmem_rl.systems.icml.steps import Fragment, Utterances

USERS = build_users(2, seed=7, num_sessions=4)


@pytest.fixture
def parts() -> tuple[InteractivePolicy, Observer]:
    tokenizer = build_tokenizer([*list_texts(), "user: assistant: - no memory I see. I remember:"], max_length=1024)
    backbone = build_model(tokenizer, seed=1, width=32, layers=1, heads=2, ffn=64)

    def encode(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]

    observer = Observer(encode, marker_id=tokenizer.eos_token_id, limits=ObservationLimits(max_turns=1))
    return InteractivePolicy(backbone, pad_id=tokenizer.pad_token_id, pointer_width=16), observer


def test_every_question_comes_after_the_fact_that_it_needs_and_lives_follow_from_their_seed() -> None:
    for user in build_users(20, seed=3):
        told = {(turn.topic, turn.value): number for number, session in enumerate(user.sessions) for turn in session if turn.matters}
        asked = [(number, turn) for number, session in enumerate(user.sessions) for turn in session if turn.kind is TurnKind.QUESTION]
        assert len(user.sessions) == 10 and asked
        assert all(told[turn.topic, turn.value] == turn.told_in < number for number, turn in asked)
    assert build_users(3, seed=3) == build_users(3, seed=3) != build_users(3, seed=4)
    assert not {user.user_id for user in build_users(9, seed=3)} & {user.user_id for user in build_users(9, seed=3, split="test")}
    with pytest.raises(ConfigError, match="at least 2"):
        build_users(1, seed=0, num_sessions=1)


def test_the_judge_of_turns_cannot_tell_what_will_matter_and_the_judge_of_replies_can() -> None:
    user = USERS[0]
    world, turns = ScriptedWorld(user), [turn for session in user.sessions for turn in session]
    worth = {(turn.kind, turn.matters): asyncio.run(world.rate_turn(Utterances(user=turn.text, assistant=""))) for turn in turns}
    assert worth[TurnKind.FACT, True] == worth[TurnKind.FACT, False] == FACT_WORTH and worth[TurnKind.TALK, False] == TALK_WORTH
    question = next(turn for turn in turns if turn.kind is TurnKind.QUESTION)
    fact = next(turn for turn in turns if turn.kind is TurnKind.FACT and turn.topic == question.topic)
    scores = [asyncio.run(world.rate_reply((), question.text, memory, "")) for memory in (Fragment(memory_id="m", text=fact.text), None)]
    assert scores == [HIT, MISS] and asyncio.run(world.rate_reply((), fact.text, None, "")) == FREE


def test_experts_save_every_fact_and_choose_the_memory_that_a_question_needs(parts) -> None:
    labels = label_users(USERS, parts[1], seed=0)
    turns = [turn for user in USERS for session in user.sessions for turn in session]
    assert [action for _, action in labels.planner] == [int(turn.kind is TurnKind.FACT) for turn in turns]
    assert [bool(action) for _, action in labels.trigger] == [turn.kind is TurnKind.QUESTION for turn in turns]
    assert all(action < len(observation.markers) for observation, action in labels.trigger)


def test_the_warm_up_learns_the_labels_of_the_planner(parts) -> None:
    model, observer = parts
    labels = label_users(USERS, observer, seed=0)
    first = warm_up(model, labels, epochs=1, lr=3e-3, batch_size=16, seed=0)
    later = warm_up(model, labels, epochs=6, lr=3e-3, batch_size=16, seed=1)
    assert later["planner"] < 0.5 * first["planner"]


def run(parts: tuple[InteractivePolicy, Observer], ablation: Ablation) -> tuple[list[SessionRow], PPOLearner]:
    learner = PPOLearner(*parts, PPOSettings())
    return run_stream(learner, parts[1], USERS, rewards=RewardSettings(), ablation=ablation, seed=1), learner


def test_saving_everything_and_nothing_are_counted_as_what_they_are(parts) -> None:
    everything, learner = run(parts, Ablation.NO_PLANNER)
    nothing, _ = run(parts, Ablation.SAVE_NONE)
    assert all(row.num_saved == row.num_turns and row.num_saved_that_matter == row.num_that_matter for row in everything)
    assert all(row.num_saved == row.num_memories == row.num_recalled == 0 for row in nothing) and learner.version == 4
    last = {row.user_id: row.num_memories for row in everything}
    assert last == {user.user_id: sum(map(len, user.sessions)) for user in USERS}


def test_without_evolution_the_policy_stays_as_it_was(parts) -> None:
    rows, learner = run(parts, Ablation.NO_EVOLUTION)
    assert learner.version == 0 and len(rows) == 8 and sum(row.num_questions for row in rows) == sum(user.num_questions for user in USERS)
