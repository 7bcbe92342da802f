"""One question: what is shown, what is cited, what is learned, and what lasts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from napmem_rl.errors import DataError, LLMError
from napmem_rl.llm.scripted import ScriptedChat
from napmem_rl.memory.bank import MemoryBank
from napmem_rl.memory.builder import build_bank
from napmem_rl.retrieval.encoder import HashingEncoder
from napmem_rl.retrieval.fusion import Ranking
from napmem_rl.retrieval.rerank_learner import RerankSettings
from napmem_rl.schema import Message, Task
from napmem_rl.systems.rmm.prospective import OfflineTopicWriter
from napmem_rl.systems.rmm.retrospective import ModelAnswerer, RmmAnswer, SimulatedCiter, answer_question
from napmem_rl.systems.rmm.scope import ScopedLearner

ENCODER = HashingEncoder(64)
SETTINGS = RerankSettings(num_candidates=4, num_chosen=2, batch_size=1, learning_rate=0.05, init_std=1e-4)
SAID = ("I work as a nurse in Bergen.", "I adopted a cat called Miso.", "I bought a red racing bike.", "I grow tomatoes on the balcony.", "I dislike rain.")


def make_bank(path: Path, said: tuple[str, ...] = SAID) -> MemoryBank:
    messages = [
        Message(message_id=f"msg:{day}", session_id=f"s{day}", role="user", speaker="Ana", text=text, time=f"2024-03-{day:02d}T10:00:00")
        for day, text in enumerate(said, start=1)
    ]
    build_bank(path / "ana", "ana", messages, OfflineTopicWriter())
    return MemoryBank.open(path / "ana", encoder=ENCODER, ranking=Ranking.DENSE)


def make_task(question: str = "Which red racing bike did Ana buy when a nurse with a cat called Miso?", **fields: object) -> Task:
    return Task(**{"task_id": "t1", "bank_id": "ana", "question": question, "category": "fact", "needs_memory": True} | fields)


def open_learner(path: Path, **changes: object) -> ScopedLearner:
    return ScopedLearner.open(path / "state.npz", **{"scope": "user:ana", "encoder": ENCODER.name, "dim": ENCODER.dim, "settings": SETTINGS} | changes)


def ask(bank: MemoryBank, learner: ScopedLearner, chat: ScriptedChat, task: Task, *, is_learning: bool = True) -> RmmAnswer:
    return asyncio.run(answer_question(task, bank, learner, ModelAnswerer(chat), num_candidates=4, is_learning=is_learning))


def test_one_call_shows_summaries_with_their_raw_turns_and_its_citations_are_learned(tmp_path: Path) -> None:
    bank, learner, chat = make_bank(tmp_path), open_learner(tmp_path), ScriptedChat(["A red racing bike [1]."])
    found = ask(bank, learner, chat, make_task())
    shown = json.loads(chat.requests[0]["messages"][1]["content"])
    assert len(chat.requests) == 1 and [memory["number"] for memory in shown["memories"]] == [1, 2]
    first = bank.record(found.shown_ids[0])
    assert shown["memories"][0]["summary"] == first.text
    assert shown["memories"][0]["turns"][0]["text"] == bank.message(first.source_ids[0]).text
    assert found.citations.answer == "A red racing bike." and found.decision.cited == (True, False)
    assert learner.learner.counts.num_updates == 1 and len(found.candidate_ids) == 4


def test_without_learning_the_best_are_shown_and_nothing_changes(tmp_path: Path) -> None:
    bank, learner = make_bank(tmp_path), open_learner(tmp_path)
    found = [ask(bank, learner, ScriptedChat(["[1]"]), make_task(), is_learning=False) for _ in range(2)]
    assert found[0].shown_ids == found[1].shown_ids and found[0].decision is None
    assert learner.learner.counts.num_answers == 0 and "bike" in bank.record(found[0].shown_ids[0]).text


def test_an_endpoint_that_fails_teaches_nothing(tmp_path: Path) -> None:
    learner = open_learner(tmp_path)
    with pytest.raises(LLMError):
        ask(make_bank(tmp_path), learner, ScriptedChat([LLMError("down")]), make_task())
    assert learner.learner.counts.num_answers == 0


def test_an_empty_bank_is_answered_without_memories(tmp_path: Path) -> None:
    learner = open_learner(tmp_path)
    found = ask(make_bank(tmp_path, ()), learner, ScriptedChat(["I do not know [1]."]), make_task())
    assert found.shown_ids == () and found.decision is None and found.citations.num_out_of_range == 1


def test_what_is_said_after_the_question_is_not_shown(tmp_path: Path) -> None:
    found = ask(make_bank(tmp_path), open_learner(tmp_path), ScriptedChat(["[1, 2]"]), make_task(asked_at="2024-03-02T23:00:00"))
    assert len(found.candidate_ids) == 2
    assert set(found.candidate_ids) == {"rec:1", "rec:2"}


def run_simulated(path: Path, bank: MemoryBank, *, restart: bool) -> ScopedLearner:
    """Twelve questions to a simulated citer, in one go, or each by a learner that was opened anew."""
    citer = SimulatedCiter({f"t{number}": ("msg:3",) for number in range(12)}, flip=0.1, seed=0)
    learner = open_learner(path)
    for number in range(12):
        if restart:
            learner.close()
            learner = open_learner(path)
        task = make_task(task_id=f"t{number}")
        asyncio.run(answer_question(task, bank, learner, citer, num_candidates=4, is_learning=True))
    learner.close()
    return learner


def test_a_run_that_is_stopped_after_every_answer_ends_as_one_that_was_not(tmp_path: Path) -> None:
    bank = make_bank(tmp_path)
    whole, parted = (run_simulated(tmp_path / name, bank, restart=restart) for name, restart in (("whole", False), ("parted", True)))
    assert whole.learner.counts == parted.learner.counts and whole.learner.counts.num_updates == 12
    for name, array in whole.learner.export_state().arrays.items():
        np.testing.assert_array_equal(array, parted.learner.export_state().arrays[name])


def test_two_writers_of_one_scope_and_a_bank_of_another_version_are_refused(tmp_path: Path) -> None:
    learner = open_learner(tmp_path)
    with pytest.raises(DataError, match="is being written"):
        open_learner(tmp_path)
    learner.note_bank("ana", "v1")
    learner.save()
    learner.close()
    open_learner(tmp_path, versions={"ana": ("v1", "v2")}).close()
    with pytest.raises(DataError, match="does not hold"):
        open_learner(tmp_path, versions={"ana": ("v2",)})
    open_learner(tmp_path).close()  # a refusal holds no lock


def test_the_simulated_citer_cites_evidence_alone_unless_it_flips(tmp_path: Path) -> None:
    bank = make_bank(tmp_path)
    citer = SimulatedCiter({"t1": ("msg:3",)}, flip=0.0, seed=0)
    learner = open_learner(tmp_path)
    found = asyncio.run(answer_question(make_task(), bank, learner, citer, num_candidates=4, is_learning=False))
    assert [bank.record(name).source_ids == ("msg:3",) for name in found.shown_ids] == list(found.citations.cited) and "simulated" in found.text
